"""Text in and out: lists of sentences become numbers, numbers become sentences, batches have few widths.

A sentence of the model is its words followed by the end, EOS. Ids: 0 is padding, 1 is EOS, words follow from 2. Padding
and EOS have no spelling, so that no text can contain them. The unknown word has one, ``_UNK``, and is one of the
``size`` words: a vocabulary of 20,000 words has 20,002 ids, which is what HSVAE's published count of parameters needs.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparsevae.numeric import a_type, check_number
from sparsevae.opening import DataFileError, as_list, holds_texts, parsing, read_csv, read_parquet, read_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["EOS", "PAD", "UNKNOWN", "Sentences", "Vocabulary", "choose_widths", "is_number", "read_texts"]
__all__ += ["text_columns"]

PAD, EOS = 0, 1  # fills a row up after its end; ends a sentence, and is what a writer hears before its first word
UNKNOWN = "_UNK"
FILES = (".txt", ".csv", ".parquet")
LONGEST = 1000  # characters of one word; a longer run without white space is cut into words of this length


# ------------------------------------------------------------------------------------------------------- reading


def read_texts(X: Any, *, column: str | None = None) -> list[str]:
    r"""A list of strings from what users have.

    ==================  ======================================================================================
    list, generator     of str; bytes are read as UTF-8
    numpy array         of strings, of shape (n,) or (n, 1)
    Series, DataFrame   of pandas; of a DataFrame the column named, or the only one of text
    path to .txt        one text a line, in UTF-8; an empty line is an empty text
    path to .csv        with a header; the column named, or the only one of text
    path to .parquet    the column named, or the only one of text
    ==================  ======================================================================================

    A str is taken for a path when it ends like one of these files and holds no line break. Half a surrogate pair, which
    no file can hold, becomes U+FFFD.

    Raises
    ------
    TypeError
        For one bare string, numbers, missing values and lists of words; the message says which text and what to do.
    ValueError, FileNotFoundError
        For a column or file that is not there, is not UTF-8 or has values missing; the message names the file.

    Examples
    --------
    >>> read_texts(word for word in ("one text", b"another"))
    ['one text', 'another']
    """
    file = None
    if isinstance(X, os.PathLike) or (isinstance(X, str) and X.lower().endswith(FILES) and "\n" not in X):
        file, X = Path(X), _read_file(Path(X), column)
    elif is_table(X):
        X = X.iloc[:, _text_column(list(X.columns), column, lambda j: _holds_text(X.iloc[:, j]), "the table")]
    elif column is not None:
        raise ValueError(f"column={column!r} names a column of a table or a file; X is a {type(X).__name__}")
    if isinstance(X, (str, bytes)):
        start = X[:30]
        raise TypeError(
            f"expected a list of texts, got one {type(X).__name__} ({start!r}): pass a list, [text]; a path ends in "
            f"{', '.join(FILES)}, or for numbers .npy or .npz; sparsevae.data.load knows data sets by name"
        )
    if isinstance(X, (Mapping, set, frozenset)):
        raise TypeError(f"expected texts in an order, got a {type(X).__name__}: pass a list of its texts")
    shape = getattr(X, "shape", None)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    elif shape is not None and len(shape) != 1:
        raise TypeError(f"expected texts of shape (n,), got a {type(X).__name__} of shape {tuple(shape)}")
    try:
        items = iter(X)
    except TypeError as error:
        raise TypeError(f"expected a list of texts, got {a_type(X)}") from error
    try:
        return [_as_text(item, row) for row, item in enumerate(items)]
    except (TypeError, ValueError) as error:
        if file is None:
            raise
        raise DataFileError(f"{file}: {error}") from error


def _as_text(item: Any, row: int) -> str:
    if isinstance(item, bytes):
        try:
            return item.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of text {row}"
            raise ValueError(f"{where} is not UTF-8: decode it yourself, with data.decode(encoding)") from error
    if isinstance(item, str):
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            return re.sub("[\ud800-\udfff]", "\ufffd", item)
        return str(item)
    if _is_missing(item):
        raise TypeError(f"text {row} is missing ({item}): drop that row, or put '' there")
    if isinstance(item, (Sequence, np.ndarray, set, frozenset)):
        hint = "join its words, ' '.join(words), and use tokenizer='space'"
        raise TypeError(f"text {row} is a {type(item).__name__}, not a str: {hint}")
    raise TypeError(f"text {row} is {a_type(item)} ({str(item)[:30]}), not a str")


def _is_missing(item: Any) -> bool:
    """Whether it is None, or what else stands for nothing in a table."""
    nan = isinstance(item, (float, np.floating)) and item != item
    return item is None or nan or type(item).__name__ in ("NAType", "NaTType")


def _holds_text(values: Any) -> bool:
    """Whether the first value that is there is a string."""
    return isinstance(next((v for v in values if not _is_missing(v)), None), (str, bytes))


def text_columns(table: Any) -> list[str] | list[int]:
    """The columns of text: of a DataFrame by name, of an array or list of rows by place; none of anything else."""
    if is_table(table):
        return [str(name) for name, values in table.items() if _holds_text(values)]
    if getattr(getattr(table, "dtype", None), "kind", "O") not in "OSU":
        return []
    try:
        items = np.array(table, dtype=object)
    except ValueError:  # rows that differ in shape
        return []
    return [j for j, values in enumerate(items.T) if any(map(_is_word, values))] if items.ndim == 2 else []


def _is_word(item: Any) -> bool:
    return isinstance(item, (str, bytes)) and not is_number(item)


def encode(names: Sequence[str | int]) -> str:
    """What to do about columns of texts among numbers; those of an array have places for names.

    >>> encode(["sex", "city"])[:59]
    'there are texts in columns sex, city: encode them, for inst'
    """
    advice = (
        f"there are texts in {columns_named(names)}: encode them, for instance with scikit-learn's OneHotEncoder or "
        "OrdinalEncoder, or leave them out"
    )
    if len(names) > 1 or isinstance(names[0], int):
        return advice
    return f"{advice}; a model of those texts alone takes text=Text(column={names[0]!r}) (--text-column)"


def columns_named(names: Sequence[str | int]) -> str:
    """Columns by name, as a sentence has them.

    >>> columns_named(["a"]), columns_named(["a", "b"])
    ('column a', 'columns a, b')
    """
    return f"column{'s' * (len(names) > 1)} {some(names)}"


def some(names: Sequence[str | int], most: int = 10) -> str:
    """Names in a row, the first ones of many.

    >>> some(["a", "b", "c"]), some(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def is_number(word: str | bytes) -> bool:
    """Whether a word, or the cell of a table, reads as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def is_table(X: Any) -> bool:
    """Whether X is a DataFrame, of whichever library."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def _text_column(names: list[str], column: str | None, is_text: Callable[[int], bool], where: str) -> int:
    """The place of the column named, or of the only one that holds text."""
    every = some(names)
    if column is not None:
        found = [j for j, name in enumerate(names) if name == column]
        if not found:
            raise ValueError(f"{where} has no column {column!r}: it has {every}")
        if len(found) > 1:
            raise ValueError(f"{where} has several columns of the name {column!r}: rename all but one")
        return found[0]
    found = [j for j in range(len(names)) if is_text(j)]
    if len(found) != 1:
        which = f"{len(found)} columns of text, {some([names[j] for j in found])}" if found else "no column of text"
        raise ValueError(
            f"{where} has {which} (of {every}): name one with column= (before fit Text(column=...), on the command "
            "line --data-option column=...), or pass its texts as a list"
        )
    return found[0]


def _read_file(path: Path, column: str | None) -> Iterable[Any]:
    if path.suffix.lower() not in FILES:
        ending = f"{', '.join(FILES[:-1])} or {FILES[-1]}"
        raise ValueError(f"{path}: expected a file that ends in {ending}, or for numbers in .npy or .npz")
    if path.suffix.lower() == ".txt":
        if column is not None:
            raise ValueError(f"{path} is plain text and has no columns; column={column!r} is for .csv and .parquet")
        return read_lines(path)
    return _table_column(path, column)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file in UTF-8, or of an .xz with one in it.

    They end at a line feed only: str.splitlines would also cut at U+2028 and other rare characters.
    """
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _table_column(path: Path, column: str | None) -> list[Any]:
    import pyarrow as pa

    if path.suffix.lower() == ".parquet":
        table = read_parquet(path)
    else:
        # a column that was asked for is text, also where every text is a number
        kinds = {column: pa.string()} if column else {}
        table, _ = read_csv(path, lambda first: True, newlines_in_values=True, column_types=kinds)
    types = table.schema.types

    chosen = table.column(_text_column(table.column_names, column, lambda k: holds_texts(types[k]), str(path)))
    with parsing(path, "not a table whose texts are UTF-8"):
        return as_list(chosen)


# ----------------------------------------------------------------------------------------------------- splitting


def _words() -> Callable[[str], list[str]]:
    """Words of any alphabet, by Unicode's rules; see :class:`Vocabulary`."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    # A letter of a script without spaces is a word of its own, together with its marks; so is every sign and emoji
    # (\X is what a reader sees as one character). Other letters, digits and underscores run together; an apostrophe
    # holds two letters together.
    alone = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    run = rf"(?:(?![{alone}])[\w\p{{M}}])++"
    matches = Split(Regex(rf"{run}(?:['’]{run})*+|\X"), "removed", invert=True)

    def split(piece: str) -> list[str]:
        if UNKNOWN not in piece:
            return low(piece)
        return [  # rare words have been replaced already
            word
            for whole in cut(unicodedata.normalize("NFC", piece))
            for word in ([whole] if whole == UNKNOWN else low(whole))
        ]

    def low(piece: str) -> list[str]:
        # lower case can undo the composed form, so it is made twice: the result must not change when split again
        return cut(unicodedata.normalize("NFC", unicodedata.normalize("NFC", piece).lower()))

    def cut(piece: str) -> list[str]:
        return [word for part in _slices(piece) for word, _ in matches.pre_tokenize_str(part)]

    return split


def _space() -> Callable[[str], list[str]]:
    """What stands between white space is a word."""
    return _slices


def _paper() -> Callable[[str], list[str]]:
    """A stand-in for HSVAE's preparation of DBpedia; see :class:`Vocabulary`."""
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
# Words that keep their last point, or that are not taken apart.
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
    r"|(?<=[0-9%+)}\]-])\.|(?<=[A-Za-z0-9][a-z])\.|(?<=[A-Z][A-Z])\.)$"  # the point of an initial, J. or U.S., stays
)
_REACH = 8  # characters that _AFTER looks at
_BETWEEN = re.compile(
    r"(\.\.+|(?<=[0-9])[+*^-](?=[0-9-])|(?<=[a-z])\.(?=[A-Z])|(?<=[A-Za-z])(?:,|~|-{1,3})(?=[A-Za-z])"
    r"|(?<=[A-Za-z0-9])[:<>=/](?=[A-Za-z]))"
)


def _english(piece: str) -> list[str]:
    """Take signs off both ends of an ASCII piece, then cut what is left at hyphens, slashes and lost spaces."""
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


def _splitter(tokenizer: str) -> Callable[[], Callable[[str], list[str]]]:
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {tokenizer!r}: there are {', '.join(TOKENIZERS)}")
    return TOKENIZERS[tokenizer]


def _split_all(tokenizer: str, texts: Iterable[str], enough: int | None = None) -> Iterator[list[str]]:
    """Words of each text, or at least ``enough`` of them.

    A piece between white space is split once: most of a text are pieces seen before.
    """
    split, seen = _splitter(tokenizer)(), dict[str, list[str]]()
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


# ---------------------------------------------------------------------------------------------------- vocabulary


def _enough(counts: Sequence[int], total: int, least: int = 1_000, most: int = 20_000) -> int:
    """How many words to keep, the unknown one among them, of those seen `counts` times, the most frequent first.

    `total` counts all words of the corpus, of which 5 per cent may stay unknown.

    >>> _enough([60, 30, 6, 2, 1, 1], 100, least=2)  # three words, which are 96 of 100
    4
    >>> _enough([2, 1, 1], 4, least=2), _enough([2] * 100, 200, least=2, most=9)
    (2, 9)
    """
    wanted = int(np.searchsorted(np.cumsum(counts), 0.95 * total)) + 1
    again = int(np.searchsorted(-np.asarray(counts), -1))  # words that are seen more than once
    return min(max(min(wanted, again) + 1, least), most)


class Sentences(NamedTuple):
    """Sentences of different lengths end to end; row i is ``ids[offsets[i]:offsets[i + 1]]`` and ends in EOS.

    Attributes
    ----------
    ids : int32 array of shape (sum of lengths,)
    offsets : int64 array of shape (n + 1,)
    cut : bool array of shape (n,)
        Whether words were left out because the text was longer than max_length.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,): words of each row, with its EOS; never 0."""
        return np.diff(self.offsets)

    def take(self, rows: ArrayLike, width: int) -> NDArray[np.int64]:
        """(len(rows), width): the rows asked for, with padding after EOS."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        if len(rows) and lengths.max() > width:
            longest = int(lengths.max())
            raise ValueError(f"a row of {longest} ids does not fit into a width of {width}; widths count the EOS")
        within = np.arange(width)
        at = self.offsets[rows][:, None] + np.minimum(within, lengths[:, None] - 1)
        return np.where(within < lengths[:, None], self.ids[at], PAD).astype(np.int64)

    def padded(self, width: int | None = None) -> NDArray[np.int64]:
        """(n, width): every row; by default as wide as the longest."""
        n = len(self.offsets) - 1
        width = int(self.lengths.max(initial=1)) if width is None else width
        if n * width > 2**28:
            hint = "encode with max_length=, or take batches"
            raise ValueError(f"{n:,} rows of {width:,} ids are too many at once: {hint}")
        return self.take(np.arange(n), width)


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """The words a model knows, and how a text is split into them; part of the model and stored with it.

    Parameters
    ----------
    words : sequence of str
        Word i has the id i + 2. ``_UNK``, the unknown word, must be one of them.
    tokenizer : {"words", "space", "paper"}
        - ``"words"``: lower case, composed form (NFC); runs of letters and digits with inner apostrophes are words,
          every other sign or emoji is a word of its own, and so is every letter of a script without spaces (Chinese,
          Japanese, Thai, Lao, Khmer, Burmese). No text is unreadable; a word that is not known becomes ``_UNK``, and
          ``_UNK`` stays what it is.
        - ``"space"``: what stands between white space, unchanged: for text that is split already.
        - ``"paper"``: after HSVAE's preparation of DBpedia. Letters become ASCII (accents are taken off, other scripts
          vanish), links and quotes are dropped, then words are split by rules like spaCy's (signs at the ends; hyphens
          between letters; abbreviations keep their point) and put in lower case.

    Attributes
    ----------
    unknown : int
        The id of ``_UNK``.

    Notes
    -----
    White space is never part of a word, and a run of over 1,000 characters without any is cut into words of 1,000. An
    empty text is a sentence of EOS alone.

    *Agreement of "paper" with the paper's own files.* Split again, all but one of the 493,227 tokens of its valid file
    are themselves. With the spaces around signs taken out first, 99.8 per cent are found again. Of raw DBpedia texts
    that are not in those files 8.3 per cent of our words are not among the paper's 20,000; in its valid file 8.4 per
    cent are ``_UNK``. Measured by ``python -m reproductions.dbpedia_words``.

    Examples
    --------
    >>> vocabulary = Vocabulary.fit(["The cat sat.", "The dog sat!"], size=5)
    >>> vocabulary.words
    ('sat', 'the', '!', '.', '_UNK')
    >>> rows = vocabulary.encode(["the CAT sat.", ""])
    >>> rows.padded()
    array([[3, 6, 2, 5, 1],
           [1, 0, 0, 0, 0]])
    >>> vocabulary.decode(rows)
    ['the _UNK sat .', '']
    """

    words: tuple[str, ...]
    tokenizer: str = "words"
    _ids: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        words = tuple(self.words)
        _splitter(self.tokenizer)
        for word in words:
            if not isinstance(word, str) or len(word.split()) != 1 or word.split()[0] != word:
                raise ValueError(f"expected words without white space, got {word!r}")
        if len(set(words)) != len(words):
            twice = next(word for word, count in Counter(words).items() if count > 1)
            raise ValueError(f"the word {twice!r} stands in the vocabulary twice")
        if UNKNOWN not in words:
            raise ValueError(f"the vocabulary must hold {UNKNOWN!r}, for words it does not know: add it at the end")
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "_ids", {word: i for i, word in enumerate(words, start=EOS + 1)})

    @classmethod
    def fit(
        cls,
        texts: Any,
        *,
        tokenizer: str = "words",
        size: int | None = 20_000,
        min_count: int = 1,
        column: str | None = None,
    ) -> Vocabulary:
        """Choose the most frequent words of a corpus.

        Words of one count are ordered alphabetically (by code point), so that the vocabulary depends on the counts
        alone and not on the order of the texts. ``_UNK`` comes last.

        Parameters
        ----------
        texts
            Whatever :func:`read_texts` reads; ``column`` is its parameter.
        tokenizer : {"words", "space", "paper"}
        size : int or None
            Most words, ``_UNK`` among them; at least 2. None: as many as leave at most 5 per cent of the corpus's words
            unknown, and none that is seen but once, from 1,000 to 20,000.
        min_count : int
            Words that are seen less often are left out.
        """
        if size is not None:
            check_number("size", size, "an integer above 1, or None", lambda n: n > 1, whole=True)
        check_number("min_count", min_count, "an integer above 0", lambda n: n > 0, whole=True)
        corpus = read_texts(texts, column=column)
        counts: Counter[str] = Counter()
        for words in _split_all(tokenizer, corpus):
            counts.update(words)
        counts.pop(UNKNOWN, None)
        if not counts:
            raise ValueError(f"no word in {len(corpus)} texts: a vocabulary needs a corpus with words in it")
        frequent = sorted((w for w, c in counts.items() if c >= min_count), key=lambda w: (-counts[w], w))
        if not frequent:
            most = max(counts.values())
            raise ValueError(f"no word is seen {min_count} times; the most frequent is seen {most} times")
        if size is None:
            size = _enough([counts[w] for w in frequent], counts.total())
        return cls((*frequent[: size - 1], UNKNOWN), tokenizer)

    def __len__(self) -> int:
        """Ids: the words, padding and EOS."""
        return len(self.words) + EOS + 1

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words):,} words, tokenizer={self.tokenizer!r})"

    @property
    def unknown(self) -> int:
        return self._ids[UNKNOWN]

    def split(self, texts: Any) -> list[list[str]]:
        """The words of each text, known or not."""
        return list(_split_all(self.tokenizer, read_texts(texts)))

    def encode(self, texts: Any, *, max_length: int | None = None, column: str | None = None) -> Sentences:
        """Ids of each text, followed by EOS.

        Parameters
        ----------
        texts
            Whatever :func:`read_texts` reads; ``column`` is its parameter.
        max_length : int or None
            Most words of a sentence, its EOS not counted. Of a longer text the beginning is kept and EOS put behind
            it, so that every row has one end; ``cut`` says which rows those are.
        """
        if max_length is not None:
            check_number("max_length", max_length, "at least 1 word, or None for no limit", lambda n: n > 0, whole=True)
        ids: list[int] = []
        offsets, cut = [0], []
        other = self.unknown
        enough = None if max_length is None else max_length + 1  # one more tells whether the text is cut
        for words in _split_all(self.tokenizer, read_texts(texts, column=column), enough):
            cut.append(max_length is not None and len(words) > max_length)
            ids += [self._ids.get(word, other) for word in words[:max_length]]
            ids.append(EOS)
            offsets.append(len(ids))
        return Sentences(np.array(ids, np.int32), np.array(offsets, np.int64), np.array(cut, np.bool_))

    def decode(self, rows: Sentences | Iterable[ArrayLike]) -> list[str]:
        """Texts: the words of each row up to its first EOS or padding, with one space between them.

        Parameters
        ----------
        rows : Sentences, array of shape (n, T), or list of rows of ids
            For one row pass ``[row]``.
        """
        if isinstance(rows, Sentences):
            rows = np.split(rows.ids, rows.offsets[1:-1]) if len(rows.offsets) > 1 else []
        texts = []
        for row in rows:
            ids = np.asarray(row)
            if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
                raise ValueError(f"expected rows of ids, got shape {ids.shape} of {ids.dtype}: for one row pass [row]")
            end = np.flatnonzero((ids == PAD) | (ids == EOS))
            ids = ids[: end[0]] if len(end) else ids
            if len(ids) and not (ids.min() > EOS and ids.max() < len(self)):
                raise ValueError(f"ids go from 0 to {len(self) - 1}, got {int(ids.min())} to {int(ids.max())}")
            texts.append(" ".join(self.words[i - EOS - 1] for i in ids.tolist()))
        return texts

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"tokenizer": self.tokenizer, "words": list(self.words)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Vocabulary:
        """What :meth:`to_dict` gave."""
        if set(stored) != {"tokenizer", "words"}:
            raise ValueError(f"expected 'tokenizer' and 'words', got {sorted(map(str, stored))}")
        return cls(tuple(stored["words"]), stored["tokenizer"])


# -------------------------------------------------------------------------------------------------------- widths


def choose_widths(lengths: ArrayLike, n_widths: int = 4, *, multiple: int = 8) -> tuple[int, ...]:
    """At most ``n_widths`` widths, the last one for the longest row, with the least padding in all.

    With F(w) the number of rows of length <= w, widths w_1 < ... < w_k cost sum_j w_j (F(w_j) - F(w_{j-1})) positions.
    The least cost over all choices from the multiples of ``multiple`` is found by dynamic programming.

    Examples
    --------
    >>> choose_widths([3, 5, 7, 30, 31, 61], n_widths=2)
    (8, 64)
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if lengths.ndim != 1 or not len(lengths) or lengths.min() < 1:
        raise ValueError(f"expected lengths of shape (n,), each at least 1; got shape {lengths.shape}")
    if n_widths < 1 or multiple < 1:
        raise ValueError(f"n_widths and multiple must be at least 1, got {n_widths} and {multiple}")
    widths, counts = np.unique(-(-lengths // multiple) * multiple, return_counts=True)  # (m,), only widths in use
    upto = np.concatenate([[0], counts.cumsum()])  # (m + 1,): F, from 0
    cost = widths * upto[1:]  # least cost of the rows up to widths[i] with one width
    came = []
    for _ in range(min(n_widths, len(widths)) - 1):
        best, arg = np.empty_like(cost), np.zeros(len(widths), dtype=np.int64)
        best[0] = cost[0]
        for i in range(1, len(widths)):  # widths[i] serves all rows above widths[j]
            through = cost[:i] + widths[i] * (upto[i + 1] - upto[1 : i + 1])
            arg[i] = through.argmin()
            best[i] = through[arg[i]]
        cost = best
        came.append(arg)
    chosen, i = [int(widths[-1])], len(widths) - 1
    for arg in reversed(came):
        if i == 0:
            break
        i = int(arg[i])
        chosen.append(int(widths[i]))
    return tuple(reversed(chosen))
