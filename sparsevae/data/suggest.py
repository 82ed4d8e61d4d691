"""Error messages that say what exists."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """The sentence for a name nobody knows, with the nearest known name first.

    >>> unknown("data set", "mnsit", ["digits", "mnist"])
    "unknown data set 'mnsit': did you mean 'mnist'? There are: digits, mnist"
    >>> unknown("option", "seed", [])
    "unknown option 'seed': there are none"
    """
    known = list(known)
    if not known:
        return f"unknown {kind} {word!r}: there are none"
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1)
    hint = f"did you mean {names[close[0]]!r}? There are" if close else "there are"
    return f"unknown {kind} {word!r}: {hint}: {', '.join(known)}"
