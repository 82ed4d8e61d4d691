"""Mulan's sets: the XML says which columns are labels; the real files (where they are) have the known sizes."""

import os
from pathlib import Path

import numpy as np
import pooch
import pytest

from sparsevae.data import info, load, read_mulan
from sparsevae.data.fetch import _sha256
from sparsevae.data.readers.mulan import read_labels
from sparsevae.data.sets import multilabel as mulan

REAL = Path(os.environ.get("SPARSEVAE_DATA", "nowhere"))
NAMES = ("birds", "cal500", "emotions")
needs = {name: pytest.mark.skipif(not (REAL / name).is_dir(), reason=f"needs $SPARSEVAE_DATA/{name}") for name in NAMES}
XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="loud">
  <label name="very loud"></label>
</label>
<label name="cat &amp; dog"/>
</labels>
"""
HEADER = """@relation sounds
@attribute 'cat & dog' {0,1}
@attribute pitch numeric
@attribute 'very loud' {1,0}
@attribute length numeric
@attribute loud numeric
@data
"""
TRAIN = "1, 440, 0, 2.5, 0\n0, 220, 1, 1.5, 1\n0, 110, 0, 3.5, 0\n"
TEST = "{0 1, 1 55, 4 1}\n{1 5, 2 0}\n"


@pytest.fixture
def files(tmp_path):
    for name, text in (("train.arff", HEADER + TRAIN), ("test.arff", HEADER + TEST), ("labels.xml", XML)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_labels_leave_the_table_and_come_in_the_order_of_the_xml(files):
    data = read_mulan(files / "train.arff", files / "labels.xml", test=files / "test.arff")
    assert data.label_names == ("loud", "very loud", "cat & dog")  # nested ones too, the outer first
    assert data.columns == ("pitch", "length")
    np.testing.assert_array_equal(data.X, [[440, 2.5], [220, 1.5], [110, 3.5]])
    np.testing.assert_array_equal(data.y, [[0, 0, 1], [1, 1, 0], [0, 0, 0]])
    assert data.y.dtype == np.uint8
    assert data.name == "train"


def test_sparse_rows_give_csr_features_and_dense_labels(files):
    data = read_mulan(files / "train.arff", files / "labels.xml", test=files / "test.arff")
    assert data.X_test.format == "csr"
    np.testing.assert_array_equal(data.X_test.toarray(), [[55, 0], [5, 0]])
    # of {1, 0} the first value is 1: the row that does not name it has the label
    np.testing.assert_array_equal(data.y_test, [[1, 1, 1], [0, 0, 0]])


def test_rows_without_a_label_are_dropped_from_both_parts_if_asked(files):
    data = read_mulan(files / "train.arff", files / "labels.xml", test=files / "test.arff", drop_unlabelled=True)
    np.testing.assert_array_equal(data.X, [[440, 2.5], [220, 1.5]])
    np.testing.assert_array_equal(data.X_test.toarray(), [[55, 0]])
    assert data.y.sum(1).tolist() == [1, 2]
    assert data.y_test.sum(1).tolist() == [3]


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<labels>\n<label name='a'/>\n</label>", r"line 3: not XML \(mismatched tag"),
        ("", "not XML"),
        ("<names/>", "line 1: expected <labels>, got <names>"),
        ("<labels>\n<label name='a'/>\n<tag name='b'/></labels>", "line 3: expected <label>, got <tag>"),
        ("<labels>\n\n<label/></labels>", "line 3: expected <label name="),
        ("<labels>\n<label name='a'/>\n<label name='a'/></labels>", "line 3: the label 'a' is in line 2 too"),
        ("<labels></labels>", "no label in it"),
    ],
)
def test_a_bad_list_of_labels_is_named_with_file_and_line(files, xml, message):
    (files / "labels.xml").write_text(xml)
    with pytest.raises(ValueError, match=rf"labels\.xml.*{message}"):
        read_labels(files / "labels.xml")


def test_files_that_do_not_belong_together_are_refused(files):
    other = files / "other.xml"
    other.write_text("<labels><label name='lound'/></labels>")
    with pytest.raises(
        ValueError, match=r"other\.xml names a label 'lound', and .*train\.arff has no such attr.*mean 'loud'\?"
    ):
        read_mulan(files / "train.arff", other)
    other.write_text("<labels>" + "".join(f"<label name='{n}'/>" for n in ("loud", "pitch")) + "</labels>")
    with pytest.raises(ValueError, match=r"the label 'pitch' must be 0 or 1 in every row; its values are \(110\.0"):
        read_mulan(files / "train.arff", other)
    (files / "test.arff").write_text(HEADER.replace("length", "width") + TEST)
    with pytest.raises(ValueError, match=r"test\.arff: expected the attributes of .*train\.arff"):
        read_mulan(files / "train.arff", files / "labels.xml", test=files / "test.arff")


@pytest.mark.parametrize(("kind", "cell"), [("{no,yes}", "no"), ("{0,1}", "?"), ("numeric", "?"), ("{0,1,2}", "1")])
def test_a_label_that_is_not_surely_0_or_1_is_refused(files, kind, cell):
    (files / "train.arff").write_text(f"@attribute x real\n@attribute a {kind}\n@data\n1,{cell}\n")
    (files / "labels.xml").write_text("<labels><label name='a'/></labels>")
    with pytest.raises(ValueError, match="the label 'a' must be 0 or 1 in every row"):
        read_mulan(files / "train.arff", files / "labels.xml")


def test_a_table_of_labels_alone_is_refused(files):
    (files / "train.arff").write_text("@attribute a {0,1}\n@data\n1\n")
    (files / "labels.xml").write_text("<labels><label name='a'/></labels>")
    with pytest.raises(ValueError, match=r"every attribute is a label in .*labels\.xml, and no feature is left"):
        read_mulan(files / "train.arff", files / "labels.xml")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Ten songs under the name of CAL500."""
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    (tmp_path / "cal500").mkdir()
    rows = "".join(f"{i},{int(i != 3)}\n" for i in range(10))
    (tmp_path / "cal500" / "cal500.arff").write_text("@attribute x real\n@attribute a {0,1}\n@data\n" + rows)
    (tmp_path / "cal500" / "cal500.xml").write_text("<labels><label name='a'/></labels>")


def test_cal500_is_split_in_the_order_of_the_file_or_by_a_seed(own):
    first = load("cal500", n_train=6)
    assert first.X[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert first.X_test[:, 0].tolist() == [6, 7, 8, 9]
    drawn, same, other = (load("cal500", n_train=6, seed=seed) for seed in (1, 1, 2))
    assert sorted([*drawn.X[:, 0], *drawn.X_test[:, 0]]) == list(range(10))
    np.testing.assert_array_equal(drawn.X, same.X)
    assert drawn.X.tolist() != other.X.tolist()
    np.testing.assert_array_equal(drawn.y[:, 0], drawn.X[:, 0] != 3)
    assert load("cal500", n_train=10).X_test is None
    assert load("cal500", n_train=6, drop_unlabelled=True).X[:, 0].tolist() == [0, 1, 2, 4, 5]
    for n in (0, 11):
        with pytest.raises(ValueError, match=f"n_train must be an integer from 1 to 10, the number of rows, got {n}"):
            load("cal500", n_train=n)


@pytest.mark.parametrize("name", NAMES)
def test_without_files_and_network_the_sets_are_described_and_asked_for(name, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("offline")

    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", fail)
    about = info(name)
    assert not about.available
    assert about.options["drop_unlabelled"] is False
    with pytest.raises(FileNotFoundError, match=rf"(?s)wanted: {name}.*tried:.*mulan"):
        load(name)


@pytest.mark.parametrize(
    ("name", "labels", "cardinality", "most"),
    [
        pytest.param("birds", 19, 1.014, 6, marks=needs["birds"]),
        pytest.param("cal500", 174, 26.044, 48, marks=needs["cal500"]),
        pytest.param("emotions", 6, 1.868, 3, marks=needs["emotions"]),
    ],
)
def test_the_real_sets_have_the_published_statistics(name, labels, cardinality, most):
    data, about = load(name), info(name)
    assert (about.rows, about.rows_test, about.features) == (len(data.X), len(data.X_test), data.X.shape[1])
    assert about.about == data.about
    Y = np.vstack([data.y, data.y_test])
    assert Y.shape[1] == labels == len(data.label_names)
    assert Y.sum(1).mean() == pytest.approx(cardinality, abs=5e-4)
    assert Y.sum(1).max() == most
    assert np.isfinite(data.X).all()


@needs["birds"]
def test_294_recordings_of_birds_hold_none_and_places_keep_their_numbers():
    data, received = load("birds"), load("birds", drop_unlabelled=True)
    assert (len(received.X), len(received.X_test)) == (179, 172)
    assert len(data.X) + len(data.X_test) - len(received.X) - len(received.X_test) == 294
    places = data.X[:, data.columns.index("location")]
    assert set(places) <= {1, 2, 4, 5, 7, 8, 10, 11, 13, 15, 16, 17}
    assert "Swainson's Thrush" in data.label_names


@pytest.mark.parametrize(
    "collection",
    [pytest.param(c, marks=needs[c.name]) for c in (mulan.BIRDS, mulan.CAL500, mulan.EMOTIONS)],
    ids=lambda collection: collection.name,
)
def test_the_real_files_have_the_checksums_we_ask_the_mirrors_for(collection):
    for file, path in collection.fetch().items():
        assert _sha256(path) == collection.sha256[file]
