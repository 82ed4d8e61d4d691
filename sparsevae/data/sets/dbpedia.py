"""DBpedia: the first sentences of encyclopaedia articles, in 14 classes, as HSVAE's authors prepared them.

References
----------
X. Zhang, J. Zhao, Y. LeCun, "Character-level convolutional networks for text classification", NIPS 2015 (the set).
V. Prokhorov, Y. Li, E. Shareghi, N. Collier, "Hierarchical sparse variational autoencoder for text encoding", 2020.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand
from sparsevae.data.readers.tsv import class_numbers, read_tsv, texts_array
from sparsevae.exceptions import unknown
from sparsevae.files import parsing, read_lines
from sparsevae.text.splitting import UNKNOWN
from sparsevae.text.vocabulary import Vocabulary

ABOUT = (
    "Texts about companies, schools, artists, athletes, ... (14 classes of DBpedia; Zhang, Zhao and LeCun 2015); valid "
    "and test are the 14,000 sentences each of HSVAE's authors (Prokhorov, Li, Shareghi and Collier 2020), training "
    "texts are theirs or a pool of others; CC BY-SA and GFDL."
)
DBPEDIA = ByHand(
    "dbpedia",
    ("dbpedia",),
    ("test.tsv.xz", "test.txt"),
    "The authors' files are in the folder Data/New_DBPedia of https://github.com/VictorProkhorov/HSVAE: train.txt, "
    "valid.txt, test.txt, vocab.txt (one sentence or word per line) and train_class_label.txt, test_class_label.txt.",
)
CLASSES = (
    *("Company", "EducationalInstitution", "Artist", "Athlete", "OfficeHolder", "MeanOfTransportation", "Building"),
    *("NaturalPlace", "Village", "Animal", "Plant", "Album", "Film", "WrittenWork"),
)
PARTS = ("test", "valid")


def make(
    *,
    held_out: str = "test",
    train: str | os.PathLike[str] | None = None,
    max_words: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load DBpedia in the paper's form: lower case, words split by spaces (``Vocabulary(tokenizer="space")``).

    Parameters
    ----------
    held_out : {"test", "valid"}
        Which of the paper's two splits is X_test. Their rare words have been replaced by ``_UNK``.
    train : path or None
        The paper's own train.txt, one sentence per line; classes are read from train_class_label.txt beside it, if
        it exists. None means train.txt of the folder, or else train_pool.tsv.xz (lines of class, source and text):
        other DBpedia texts of four sources, cased or not, split or not, with or without punctuation. These are
        converted to the paper's form by ``Vocabulary(tokenizer="paper")``; the punctuation that the source "cdac"
        lacks cannot be restored.
    max_words : int or None
        Leave out training texts of more words. The paper's sentences have at most 60 words. They seem to be selected,
        not cut: raw texts of up to 60 words are as long as those of its test file (35.9 words on average against 35.4).
    path : path or None
        The folder; None means ``$SPARSEVAE_DATA/dbpedia/``.

    Returns
    -------
    Dataset with X and X_test arrays of str of shape (n,); y from 0 to 13, named by ``label_names``, or None if the
    classes are unknown; of a pool ``truth["source"]``, (n,). No text is cut: use ``Vocabulary.encode(max_length=60)``.
    """
    if held_out not in PARTS:
        raise ValueError(unknown("part for held_out", str(held_out), PARTS))
    folder = DBPEDIA.find(path)
    X_test, y_test = _part(folder, held_out)
    truth: dict[str, np.ndarray] = {}
    if train is not None or (folder / "train.txt").is_file():
        X, y = _lines(Path(train).expanduser() if train is not None else folder / "train.txt")
    else:
        pool = DBPEDIA.existing(folder / "train_pool.tsv.xz")
        classes, sources, texts = read_tsv(pool, 3)
        y = _classes(classes, pool)
        truth["source"] = np.array(sources)
        X = texts_array(paper_form(texts))
    if max_words is not None:
        short = np.array([len(text.split()) <= max_words for text in X], dtype=np.bool_)
        if not short.any():
            raise ValueError(f"max_words={max_words} leaves none of the {len(X)} training texts")
        X, y = X[short], None if y is None else y[short]
        truth = {key: value[short] for key, value in truth.items()}
    return Dataset("dbpedia", X=X, X_test=X_test, y=y, y_test=y_test, truth=truth, label_names=CLASSES, about=ABOUT)


def paper_form(texts: list[str]) -> list[str]:
    """Texts in the form of the paper's files: words of ``tokenizer="paper"`` between single spaces."""
    return [" ".join(words) for words in Vocabulary((UNKNOWN,), "paper").split(texts)]


def vocabulary(path: str | os.PathLike[str] | None = None, *, tokenizer: str = "space") -> Vocabulary:
    """The paper's 20,000 words, from vocab.txt or vocab.txt.xz; ``_UNK`` is the last of them."""
    folder = DBPEDIA.find(path)
    for name in ("vocab.txt", "vocab.txt.xz"):
        if (folder / name).is_file():
            words = tuple(read_lines(folder / name))
            with parsing(folder / name, "not a vocabulary"):
                return Vocabulary(words, tokenizer)
    raise DBPEDIA.missing(f"{folder} has neither vocab.txt nor vocab.txt.xz")


def _part(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Texts and classes of valid or test, from NAME.tsv.xz or from the paper's NAME.txt."""
    packed = folder / f"{name}.tsv.xz"
    if packed.is_file():
        classes, texts = read_tsv(packed, 2)
        return texts_array(texts), _classes(classes, packed)
    return _lines(folder / f"{name}.txt")


def _lines(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read the paper's format: NAME.txt, a sentence per line, and NAME_class_label.txt, a class (0 to 13) per line."""
    texts = texts_array(read_lines(DBPEDIA.existing(path)))
    beside = path.with_name(f"{path.stem}_class_label.txt")
    if not beside.is_file():
        return texts, None
    classes = _classes(read_lines(beside), beside)
    if len(classes) != len(texts):
        raise ValueError(f"{path} has {len(texts)} lines and {beside} has {len(classes)}")
    return texts, classes


def _classes(values: list[str], path: Path) -> np.ndarray:
    classes = {str(k): k for k in range(len(CLASSES))}
    return class_numbers([value.strip() for value in values], classes, path, f"a class from 0 to {len(CLASSES) - 1}")
