"""Vocabularies: conversion of sentences to ids and of ids to sentences.

A sentence of the model is its words followed by EOS. Id 0 is padding, 1 is EOS, the words have the ids from 2. Padding
and EOS have no spelling, so that no text can contain them. The unknown word is spelled ``_UNK`` and is one of the
``size`` words: a vocabulary of 20,000 words has 20,002 ids, in agreement with HSVAE's published number of parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparsevae.checks import POSITIVE, In
from sparsevae.text.ids import EOS, PAD
from sparsevae.text.reading import read_texts
from sparsevae.text.splitting import UNKNOWN, split_all, splitter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def _enough(counts: Sequence[int], total: int, least: int = 1_000, most: int = 20_000) -> int:
    """Number of words to keep, the unknown one included, of words that occur `counts` times, in descending order.

    `total` is the number of all words of the corpus, of which at most 5 per cent become unknown.

    >>> _enough([60, 30, 6, 2, 1, 1], 100, least=2)  # three words, which are 96 of 100
    4
    >>> _enough([2, 1, 1], 4, least=2), _enough([2] * 100, 200, least=2, most=9)
    (2, 9)
    """
    wanted = int(np.searchsorted(np.cumsum(counts), 0.95 * total)) + 1
    again = int(np.searchsorted(-np.asarray(counts), -1))  # number of words that occur more than once
    return min(max(min(wanted, again) + 1, least), most)


class Sentences(NamedTuple):
    """Concatenated sentences of different lengths; row i is ``ids[offsets[i]:offsets[i + 1]]`` and ends in EOS.

    Attributes
    ----------
    ids : int32 array of shape (sum of lengths,)
    offsets : int64 array of shape (n + 1,)
    cut : bool array of shape (n,)
        True if words were left out because the text was longer than max_length.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    cut: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of ids per row, its EOS included, (n,); never 0."""
        return np.diff(self.offsets)

    def take(self, rows: ArrayLike, width: int) -> NDArray[np.int64]:
        """The given rows, with padding after EOS, (len(rows), width)."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        if len(rows) and lengths.max() > width:
            longest = int(lengths.max())
            raise ValueError(f"a row of {longest} ids does not fit into a width of {width}; widths count the EOS")
        within = np.arange(width)
        at = self.offsets[rows][:, None] + np.minimum(within, lengths[:, None] - 1)
        return np.where(within < lengths[:, None], self.ids[at], PAD).astype(np.int64)

    def padded(self, width: int | None = None) -> NDArray[np.int64]:
        """Every row, (n, width); the default width is the length of the longest row."""
        n = len(self.offsets) - 1
        width = int(self.lengths.max(initial=1)) if width is None else width
        if n * width > 2**28:
            hint = "encode with max_length=, or take batches"
            raise ValueError(f"{n:,} rows of {width:,} ids are too many at once: {hint}")
        return self.take(np.arange(n), width)


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """The words of a model and its tokenizer; a part of the model that is stored with it.

    Parameters
    ----------
    words : sequence of str
        Word i has the id i + 2. ``_UNK``, the unknown word, must be one of them.
    tokenizer : {"words", "space", "paper"}
        - ``"words"``: lower case, composed form (NFC); runs of letters and digits with inner apostrophes are words,
          every other sign or emoji is a word, and so is every letter of a script without spaces (Chinese, Japanese,
          Thai, Lao, Khmer, Burmese). Every text can be split; a word outside the vocabulary becomes ``_UNK``, and
          ``_UNK`` is not changed.
        - ``"space"``: words between white space, unchanged, for text that was split before.
        - ``"paper"``: after HSVAE's preparation of DBpedia. Letters become ASCII (accents and other scripts are
          removed), links and quotes are removed, then words are split by rules like spaCy's (signs at the ends; hyphens
          between letters; abbreviations keep their point) and converted to lower case.

    Attributes
    ----------
    unknown : int
        The id of ``_UNK``.

    Notes
    -----
    White space is never part of a word, and a run of over 1,000 characters without any is split into words of 1,000. An
    empty text is a sentence of EOS alone.

    *Agreement of "paper" with the paper's own files.* All but one of the 493,227 tokens of its valid file are unchanged
    when they are split again. If the spaces around signs are removed first, 99.8 per cent are recovered. Of raw DBpedia
    texts that are not in those files 8.3 per cent of our words are not among the paper's 20,000; in its valid file 8.4
    per cent are ``_UNK``. Measured by ``python -m reproductions.dbpedia_words``.

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
        splitter(self.tokenizer)
        for word in words:
            if not isinstance(word, str) or len(word.split()) != 1 or word.split()[0] != word:
                raise ValueError(f"expected words without white space, got {word!r}")
        if len(set(words)) != len(words):
            twice = next(word for word, count in Counter(words).items() if count > 1)
            raise ValueError(f"the word {twice!r} is in the vocabulary twice")
        if UNKNOWN not in words:
            raise ValueError(f"the vocabulary must contain {UNKNOWN!r}, for all other words: add it at the end")
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
        """The vocabulary of the most frequent words of a corpus.

        Words of equal counts are in alphabetical order (by code point), so that the vocabulary depends on the counts
        alone and not on the order of the texts. ``_UNK`` is the last word.

        Parameters
        ----------
        texts
            Texts in any form that :func:`read_texts` accepts; ``column`` is its parameter.
        tokenizer : {"words", "space", "paper"}
        size : int or None
            Largest number of words, ``_UNK`` included; at least 2. None means the number at which at most 5 per cent of
            the words of the corpus are unknown, without words that occur once, but at least 1,000 and at most 20,000.
        min_count : int
            Words that occur less often are left out.
        """
        if size is not None:
            In(2).check("size", size, "an integer, 2 or above, or None", whole=True)
        POSITIVE.check("min_count", min_count, whole=True)
        corpus = read_texts(texts, column=column)
        counts: Counter[str] = Counter()
        for words in split_all(tokenizer, corpus):
            counts.update(words)
        counts.pop(UNKNOWN, None)
        if not counts:
            raise ValueError(f"no word in {len(corpus)} texts: a vocabulary needs a corpus with words in it")
        frequent = sorted((w for w, c in counts.items() if c >= min_count), key=lambda w: (-counts[w], w))
        if not frequent:
            most = max(counts.values())
            raise ValueError(f"no word occurs {min_count} times; the most frequent occurs {most} times")
        if size is None:
            size = _enough([counts[w] for w in frequent], counts.total())
        return cls((*frequent[: size - 1], UNKNOWN), tokenizer)

    def __len__(self) -> int:
        """Number of ids: the words, padding and EOS."""
        return len(self.words) + EOS + 1

    def __repr__(self) -> str:
        return f"Vocabulary({len(self.words):,} words, tokenizer={self.tokenizer!r})"

    @property
    def unknown(self) -> int:
        return self._ids[UNKNOWN]

    def split(self, texts: Any) -> list[list[str]]:
        """The words of each text, in the vocabulary or not."""
        return list(split_all(self.tokenizer, read_texts(texts)))

    def encode(self, texts: Any, *, max_length: int | None = None, column: str | None = None) -> Sentences:
        """Ids of each text, followed by EOS.

        Parameters
        ----------
        texts
            Texts in any form that :func:`read_texts` accepts; ``column`` is its parameter.
        max_length : int or None
            Largest number of words of a sentence, without its EOS. A longer text is cut, and EOS follows its last
            word; ``cut`` is True for these rows.
        """
        if max_length is not None:
            POSITIVE.check("max_length", max_length, "an integer above 0 or None", whole=True)
        ids: list[int] = []
        offsets, cut = [0], []
        other = self.unknown
        enough = None if max_length is None else max_length + 1  # one more, to detect that a text is cut
        for words in split_all(self.tokenizer, read_texts(texts, column=column), enough):
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
        """The inverse of :meth:`to_dict`."""
        if set(stored) != {"tokenizer", "words"}:
            raise ValueError(f"expected 'tokenizer' and 'words', got {sorted(map(str, stored))}")
        return cls(tuple(stored["words"]), stored["tokenizer"])
