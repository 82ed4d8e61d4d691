"""DBpedia and Yelp: both layouts, one form of text, splits that are what they say, clear words where none are."""

from __future__ import annotations

import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from reproductions.dbpedia_words import agreement
from sparsevae.data import info, load
from sparsevae.data.sets import dbpedia
from sparsevae.text.splitting import UNKNOWN
from sparsevae.text.vocabulary import Vocabulary

REAL = Path(os.environ.get("SPARSEVAE_DATA", ""))
POOL = [
    (3, "keaml", "Luka Gusi ( born 1989 in Split ) is a left-footed defender ."),
    (12, "dhim", 'Jack\'s Boating (2010) is a film directed by J. Hoffman.It was "new".'),
    (5, "olora", "The Caudron C.690 was a single-seat aircraft of São Paulo."),
    (11, "cdac", "raise the alarm is the band 's debut album"),
]
FORM = [
    "luka gusi ( born 1989 in split ) is a left - footed defender .",
    "jacks boating ( 2010 ) is a film directed by j. hoffman . it was new .",
    "the caudron c.690 was a single - seat aircraft of sao paulo .",
    "raise the alarm is the band s debut album",
]
VALID = [(0, "_UNK is a company ."), (13, "a book by _UNK")]
TEST = [(8, "_UNK is a village ."), (2, "a singer")]


def pack(path: Path, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def packed(root):
    folder = root / "dbpedia"
    for name, rows in (("train_pool", POOL), ("valid", VALID), ("test", TEST)):
        pack(folder / f"{name}.tsv.xz", rows)
    pack(folder / "vocab.txt.xz", [(word,) for word in (".", "a", "is", UNKNOWN)])
    return folder


@pytest.fixture
def original(root):
    folder = root / "dbpedia"
    folder.mkdir()
    for name, rows in (("train", [(4, "a mayor ."), (9, "a snail .")]), ("valid", VALID), ("test", TEST)):
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for _, text in rows))
        if name != "valid":
            (folder / f"{name}_class_label.txt").write_text("".join(f"{label}\n" for label, _ in rows))
    (folder / "vocab.txt").write_text(f".\na\n{UNKNOWN}\n")
    return folder


def test_a_pool_of_four_formats_becomes_one(packed):
    data = load("dbpedia")
    assert data.X.tolist() == FORM
    assert data.y.tolist() == [3, 12, 5, 11]
    assert data.truth["source"].tolist() == ["keaml", "dhim", "olora", "cdac"]
    assert (data.X_test.tolist(), data.y_test.tolist()) == ([text for _, text in TEST], [8, 2])
    assert data.label_names[data.y[2]] == "MeanOfTransportation"
    assert dbpedia.paper_form(FORM) == FORM  # which does not change any more
    assert repr(data) == "Dataset('dbpedia', X=(4,) object, X_test=(2,) object, y, truth=['source'])"


def test_the_valid_split_takes_the_place_of_the_test_split(packed):
    data = load("dbpedia", held_out="valid")
    assert (data.X_test.tolist(), data.y_test.tolist()) == ([text for _, text in VALID], [0, 13])
    with pytest.raises(ValueError, match="unknown part for held_out 'train': there are: test, valid"):
        load("dbpedia", held_out="train")


def test_the_papers_own_folder_is_read(original):
    data = load("dbpedia")
    assert (data.X.tolist(), data.y.tolist(), data.truth) == (["a mayor .", "a snail ."], [4, 9], {})
    assert (data.X_test.tolist(), data.y_test.tolist()) == ([text for _, text in TEST], [8, 2])
    assert load("dbpedia", held_out="valid").y_test is None  # the authors give no classes for it
    assert dbpedia.vocabulary() == Vocabulary((".", "a", UNKNOWN), "space")


def test_a_train_file_of_ones_own_replaces_the_pool(packed, tmp_path):
    own = tmp_path / "elsewhere" / "train.txt"
    own.parent.mkdir()
    own.write_text("one sentence .\nanother _UNK\n")
    data = load("dbpedia", train=own)
    assert (data.X.tolist(), data.y, data.truth) == (["one sentence .", "another _UNK"], None, {})
    (own.parent / "train_class_label.txt").write_text("1\n13\n")
    assert load("dbpedia", train=str(own)).y.tolist() == [1, 13]
    (own.parent / "train_class_label.txt").write_text("1\n")
    with pytest.raises(ValueError, match=r"has 2 lines and .*train_class_label\.txt has 1"):
        load("dbpedia", train=own)
    (own.parent / "train_class_label.txt").write_text("1\n14\n")
    with pytest.raises(ValueError, match="line 2: expected a class from 0 to 13, got '14'"):
        load("dbpedia", train=own)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt does not exist"):
        load("dbpedia", train=tmp_path / "nowhere.txt")


def test_the_agreement_with_the_papers_words_is_counted(packed):
    found = agreement()
    assert found["unchanged"] == found["rejoined"] == 1
    assert found["unknown_paper"] == 2 / 9
    # of two raw texts of 17 and 13 words, "is", "a", "." (twice) and "a", "." are known
    assert found["unknown_pool"] == pytest.approx(1 - 6 / 30)
    pack(packed / "valid.tsv.xz", [(0, "gmbh. is a-b a - b")])
    found = agreement()
    assert found["unchanged"] == 4 / 6  # "gmbh." and "a-b" are split
    assert found["unknown_paper"] == 0


def test_training_texts_over_a_number_of_words_are_left_out(packed):
    data = load("dbpedia", max_words=12)
    assert (data.X.tolist(), data.y.tolist()) == ([FORM[3]], [11])
    assert data.truth["source"].tolist() == ["cdac"]
    assert len(load("dbpedia", max_words=13).X) == 2
    assert len(data.X_test) == 2
    with pytest.raises(ValueError, match="max_words=2 leaves none of the 4 training texts"):
        load("dbpedia", max_words=2)


def test_damaged_files_are_refused_by_name(packed):
    pack(packed / "test.tsv.xz", [(1, "a", "b")])
    with pytest.raises(ValueError, match=r"test\.tsv\.xz, line 1: expected 2 fields between tabs, got 3"):
        load("dbpedia")
    (packed / "test.tsv.xz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"test\.tsv\.xz: not a whole \.xz file"):
        load("dbpedia")
    pack(packed / "test.tsv.xz", TEST)
    (packed / "train_pool.tsv.xz").unlink()
    with pytest.raises(FileNotFoundError, match=r"train_pool\.tsv\.xz does not exist"):
        load("dbpedia")


@pytest.mark.parametrize("name", ["dbpedia", "yelp"])
def test_where_there_is_none_the_error_says_what_to_put_where(root, name):
    assert not info(name).available
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    for part in ("not downloaded automatically", str(root / name), "path="):
        assert part in str(caught.value)


@pytest.fixture
def reviews(root):
    rows = [(i % 5 + 1, "made-up", f"review {i} — “fine”") for i in range(100)]
    pack(root / "yelp" / "reviews.tsv.xz", rows)
    return root / "yelp"


def test_yelp_is_split_by_seed_with_equal_shares_of_stars(reviews):
    test, valid = load("yelp"), load("yelp", held_out="valid")
    assert (len(test.X), len(test.X_test), len(valid.X_test)) == (80, 10, 10)
    assert np.bincount(test.y).tolist() == [16] * 5
    assert np.bincount(valid.y_test).tolist() == [2] * 5
    parts = [set(part.tolist()) for part in (test.X, test.X_test, valid.X_test)]
    assert len(set.union(*parts)) == 100
    assert valid.X.tolist() == test.X.tolist()
    assert test.X[0].startswith("review ")
    assert "—" in test.X[0]
    assert all(int(x.split()[1]) % 5 == star for x, star in zip(test.X, test.y, strict=True))
    assert load("yelp").X.tolist() == test.X.tolist()
    assert load("yelp", seed=1).X.tolist() != test.X.tolist()
    assert load("yelp", path=reviews / "reviews.tsv.xz").X.tolist() == test.X.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_fraction": 0.95}, "must leave some reviews for training"),
        ({"valid_fraction": -0.1}, r"valid_fraction must be a number in \[0, 1\), got -0.1"),
        ({"test_fraction": 0.0}, "100 reviews are too few for training and a test part"),
        ({"held_out": "tests"}, r"did you mean 'test'\?"),
    ],
)
def test_splits_that_cannot_be_are_refused(reviews, options, message):
    with pytest.raises(ValueError, match=message):
        load("yelp", **options)


def test_reviews_without_stars_are_refused_with_their_line(reviews):
    pack(reviews / "reviews.tsv.xz", [(1, "a", "good"), (6, "a", "bad")])
    with pytest.raises(ValueError, match=r"line 2: expected stars \(1 to 5\), got '6'"):
        load("yelp")
    pack(reviews / "reviews.tsv.xz", [(1, "a", "good"), (2, "bad")])
    with pytest.raises(ValueError, match=r"line 2: expected 3 fields between tabs, got 2"):
        load("yelp")
    (reviews / "reviews.tsv.xz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"not a whole \.xz file"):
        load("yelp")


@pytest.mark.skipif(not (REAL / "dbpedia" / "vocab.txt.xz").is_file(), reason="needs $SPARSEVAE_DATA/dbpedia")
def test_the_papers_splits_have_the_published_lengths_and_share_of_unknown_words(monkeypatch):
    form = dbpedia.paper_form
    monkeypatch.setattr(dbpedia, "paper_form", list)  # of the pool only the number of texts is asked
    data, words = load("dbpedia", path=REAL / "dbpedia"), dbpedia.vocabulary(REAL / "dbpedia")
    assert (len(words), words.words[-1]) == (20_002, UNKNOWN)
    assert np.bincount(data.y_test).tolist() == [1000] * 14
    assert len(data.X) == 38_500
    assert all(form(data.X[::100].tolist()))
    rows = words.encode(data.X_test, max_length=60)
    assert not rows.cut.any()
    assert rows.lengths.max() - 1 == 60
    assert rows.lengths.mean() - 1 == pytest.approx(35.4, abs=0.05)
    assert (rows.ids == words.unknown).sum() / (rows.lengths - 1).sum() == pytest.approx(0.086, abs=5e-4)


@pytest.mark.slow
@pytest.mark.skipif(not (REAL / "dbpedia" / "vocab.txt.xz").is_file(), reason="needs $SPARSEVAE_DATA/dbpedia")
def test_our_stand_in_for_spacy_agrees_with_the_papers_files_as_far_as_its_docstring_says():
    found = agreement(REAL / "dbpedia")
    assert found["unchanged"] == 1 - 1 / 493_227
    assert {name: round(share, 3) for name, share in found.items() if name != "unchanged"} == {
        "rejoined": 0.998,
        "unknown_paper": 0.084,
        "unknown_pool": 0.083,
    }


@pytest.mark.skipif(not (REAL / "yelp" / "reviews.tsv.xz").is_file(), reason="needs $SPARSEVAE_DATA/yelp")
def test_the_real_reviews_are_split_in_their_natural_proportions():
    data = load("yelp", path=REAL / "yelp")
    assert (len(data.X), len(data.X_test)) == (12_000, 1500)
    assert np.bincount(data.y).tolist() == [2006, 1472, 1635, 2560, 4327]
