"""Tokenizers, which split a text into a list of words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from sparsevae.exceptions import unknown

UNKNOWN = "_UNK"
LONGEST = 1000  # characters of one word; a longer run without white space is cut into words of this length


def _words() -> Callable[[str], list[str]]:
    """Words of any alphabet, by Unicode's rules; see :class:`Vocabulary`."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    # A letter of a script without spaces is a word, together with its combining marks; so is every sign and emoji
    # (\X is one grapheme). A run of other letters, digits and underscores is a word, with apostrophes between letters.
    alone = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    run = rf"(?:(?![{alone}])[\w\p{{M}}])++"
    matches = Split(Regex(rf"{run}(?:['’]{run})*+|\X"), "removed", invert=True)

    def split(piece: str) -> list[str]:
        if UNKNOWN not in piece:
            return low(piece)
        return [  # UNKNOWN stands for words that were replaced before
            word
            for whole in cut(unicodedata.normalize("NFC", piece))
            for word in ([whole] if whole == UNKNOWN else low(whole))
        ]

    def low(piece: str) -> list[str]:
        # normalised twice, since lower case can undo NFC: the result must not change if it is split again
        return cut(unicodedata.normalize("NFC", unicodedata.normalize("NFC", piece).lower()))

    def cut(piece: str) -> list[str]:
        return [word for part in _slices(piece) for word, _ in matches.pre_tokenize_str(part)]

    return split


def _space() -> Callable[[str], list[str]]:
    """Words between white space, unchanged."""
    return _slices


def _paper() -> Callable[[str], list[str]]:
    """An approximation of HSVAE's preparation of DBpedia; see :class:`Vocabulary`."""
    ascii_of = str.maketrans({**dict.fromkeys("‐‑‒–—―−", "-"), **_SPELT})

    def split(piece: str) -> list[str]:
        folded = unicodedata.normalize("NFKD", piece.translate(ascii_of)).encode("ascii", "ignore").decode()
        kept = _QUOTES.sub("", _LINK.sub("", folded))
        return [word for part in kept.split() for cut in _slices(part) for word in _english(cut)]

    return split


def _slices(piece: str) -> list[str]:
    return [piece[start : start + LONGEST] for start in range(0, len(piece), LONGEST)]


_SPELT = {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d"}
_SPELT |= {"Đ": "D", "ð": "d", "þ": "th", "ı": "i", "×": "x", "⁄": "/"}
_LINK = re.compile(r"(?:https?://|ftp://|www\.).*", re.IGNORECASE)
_QUOTES = re.compile(r"['\"`]")
# Words that keep their last point, or that are not split.
_ABBREVIATIONS = (
    "adm. and/or bros. capt. co. col. corp. dr. e.g. gen. gov. i.e. inc. jr. lt. ltd. messrs. mr. mrs. ms. mt. ph.d. "
    "prof. rep. rev. sen. sgt. sr. st. vs. jan. feb. mar. apr. may. jun. jul. aug. sep. sept. oct. nov. dec."
)
_WHOLE = frozenset([*_ABBREVIATIONS.split(), UNKNOWN.lower()])
_LONGEST_WHOLE = max(map(len, _WHOLE))
_UNITS = "km|cm|mm|m|ft|kg|g|mg|lb|oz|km/h|mph|hp|kb|mb|gb|tb|am|pm|%"
_BEFORE = re.compile(r"\.\.+|(?:US|us|A|C|HK|NZ)\$|\+(?![0-9])|[(){}\[\]<>#$%=&*,;:!?]|_(?!UNK)")
_AFTER = re.compile(
    r"(?:\.\.+|[(){}\[\]<>#$&*,;:!?_]|(?<=[0-9])\+"
    rf"|(?<=[0-9])(?:{_UNITS})"
    r"|(?<=[0-9%+)}\]-])\.|(?<=[A-Za-z0-9][a-z])\.|(?<=[A-Z][A-Z])\.)$"  # not the point of an initial, J. or U.S.
)
_REACH = 8  # characters at the end that _AFTER can match or look behind at
_BETWEEN = re.compile(
    r"(\.\.+|(?<=[0-9])[+*^-](?=[0-9-])|(?<=[a-z])\.(?=[A-Z])|(?<=[A-Za-z])(?:,|~|-{1,3})(?=[A-Za-z])"
    r"|(?<=[A-Za-z0-9])[:<>=/](?=[A-Za-z]))"
)


def _english(piece: str) -> list[str]:
    """Split off signs at both ends of an ASCII piece, then split the rest at hyphens, slashes and missing spaces."""
    start, end = 0, len(piece)
    before, after = [], []
    middle: list[str] | None = None
    while start < end:
        if end - start <= _LONGEST_WHOLE and piece[start:end].lower() in _WHOLE:
            middle = [piece[start:end]]
            break
        if found := _BEFORE.match(piece, start, end):
            before.append(found[0])
            start = found.end()
        elif found := _AFTER.search(piece[max(start, end - _REACH) : end]):
            after.append(found[0])
            end -= len(found[0])
        else:
            break
    if middle is None:
        middle = [part for part in _BETWEEN.split(piece[start:end]) if part]
    return [word if word == UNKNOWN else word.lower() for word in before + middle + after[::-1]]


TOKENIZERS: dict[str, Callable[[], Callable[[str], list[str]]]] = {"paper": _paper, "space": _space, "words": _words}


def splitter(tokenizer: str) -> Callable[[], Callable[[str], list[str]]]:
    """The factory of the function that splits a piece of text into words; a ValueError for an unknown tokenizer."""
    if tokenizer not in TOKENIZERS:
        raise ValueError(unknown("tokenizer", str(tokenizer), TOKENIZERS))
    return TOKENIZERS[tokenizer]


def split_all(tokenizer: str, texts: Iterable[str], enough: int | None = None) -> Iterator[list[str]]:
    """The words of each text; of a longer text only the first ones, at least ``enough``.

    Each different piece between white space is split once, since most pieces of a text occur repeatedly.
    """
    split, seen = splitter(tokenizer)(), dict[str, list[str]]()
    for text in texts:
        words: list[str] = []
        for piece in text.split():
            found = seen.get(piece)
            if found is None:
                found = seen[piece] = split(piece)
            words += found
            if enough is not None and len(words) >= enough:
                break
        yield words
