"""Files: every format gives the numbers that were saved, and nothing that is not numbers gets in."""

import os
import pickle
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse

import sparsevae as sv
from sparsevae import cli
from sparsevae import files as opening
from sparsevae.data import files, load, read_array
from sparsevae.tables import arrow
from sparsevae.text.reading import read_texts

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 7


def test_npy_is_a_read_only_memory_map(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    table = read_array(path)
    assert isinstance(table.X, np.memmap)
    assert not table.X.flags.writeable
    assert table.columns is None
    np.testing.assert_array_equal(table.X, X)
    assert isinstance(load(str(path)).X, np.memmap)


def test_images_become_rows_and_the_shape_is_remembered(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.save(tmp_path / "images.npy", images)
    data = load(tmp_path / "images.npy")
    assert isinstance(data.X, np.memmap)
    assert data.image_shape == (3, 4)
    np.testing.assert_array_equal(data.X.reshape(images.shape), images)


def test_npz_with_one_array_needs_no_key_and_one_with_several_does(tmp_path):
    np.savez(tmp_path / "one.npz", whatever=X)
    np.savez_compressed(tmp_path / "two.npz", train=X, test=X[:2])
    np.testing.assert_array_equal(read_array(tmp_path / "one.npz").X, X)
    np.testing.assert_array_equal(load(tmp_path / "two.npz", key="test").X, X[:2])
    with pytest.raises(ValueError, match=r"contains 2 arrays \(train, test\): name one.*--data-option key=train$"):
        read_array(tmp_path / "two.npz")
    with pytest.raises(ValueError, match=r"two.npz: unknown key 'tset': did you mean 'test'\? There are: train, test$"):
        read_array(tmp_path / "two.npz", key="tset")


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array, sparse.coo_array])
def test_a_sparse_npz_stays_sparse_and_becomes_csr(tmp_path, kind):
    dense = np.where(X > 1, X, 0)
    sparse.save_npz(tmp_path / "s.npz", kind(dense))
    table = read_array(tmp_path / "s.npz")
    assert sparse.issparse(table.X)
    assert table.X.format == "csr"
    assert table.X.dtype == np.float32
    np.testing.assert_array_equal(table.X.toarray(), dense)
    assert load(tmp_path / "s.npz").X.shape == (4, 3)


def test_a_sparse_npz_that_points_outside_itself_is_refused(tmp_path):
    np.savez(
        tmp_path / "s.npz",
        format=b"csr",
        shape=(2, 2),
        data=np.ones(2),
        indices=np.array([0, 99]),
        indptr=np.array([0, 1, 2]),
    )
    with pytest.raises(ValueError, match="indices"):
        read_array(tmp_path / "s.npz")


class Trap:
    """Leaves a file behind when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_are_refused_unopened(tmp_path):
    sprung = tmp_path / "sprung"
    objects = np.array([[Trap(sprung), 1]], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", objects)
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(Trap(sprung)))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Trap(sprung)))
    for name in ("x.npy", "x.npz", "raw.npy", "raw.npz"):
        with pytest.raises(ValueError, match="pickles are never opened"):
            read_array(tmp_path / name)
    assert not sprung.exists()


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet"])
def test_a_truncated_file_is_refused(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    big = np.random.default_rng(0).random((500, 3))
    if ending == "npy":
        np.save(path, big)
    elif ending == "npz":
        np.savez(path, big)
    else:
        parquet.write_table(pa.table({"a": big[:, 0]}), path)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ValueError, match=f"x.{ending}"):
        read_array(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5), r"expected shape \(rows, features\)"),
        (np.zeros((2, 2, 2, 2)), r"got \(2, 2, 2, 2\)"),
        (np.array([["a", "b"]]), "expected numbers, got values of type <U1"),
        (np.zeros((2, 2), complex), "expected numbers, got values of type complex128"),
    ],
)
def test_an_array_that_is_no_table_of_numbers_is_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=message):
        read_array(tmp_path / "x.npy")


@pytest.mark.parametrize("header", ["a,b,c\n", '"a","b, too",c\r\n', "0,1,2\n", ""])
def test_a_header_is_noticed(tmp_path, header):
    path = tmp_path / "x.csv"
    path.write_text(header + "\n".join(",".join(map(str, row)) for row in X.tolist()))
    table = read_array(path)
    np.testing.assert_array_equal(table.X.astype(np.float32), X)
    assert load(path).columns == table.columns
    if header:
        assert len(table.columns) == 3
        assert table.columns[0] == header[1 if header[0] == '"' else 0]
    else:
        assert table.columns is None  # nobody named them


def test_numbers_from_0_in_two_columns_are_data(tmp_path):
    (tmp_path / "x.csv").write_text("0,1\n1,0\n")
    np.testing.assert_array_equal(read_array(tmp_path / "x.csv").X, [[0, 1], [1, 0]])


def test_truth_values_of_a_csv_are_0_and_1_missing_values_nan_and_a_column_without_any_is_left_out(tmp_path):
    (tmp_path / "x.csv").write_text("size,ok,count,note\n1.5,true,3,\n,false,,\n")
    with pytest.warns(UserWarning, match=r"left out, no value in any row: note$"):
        table = read_array(tmp_path / "x.csv")
    assert table.columns == ("size", "ok", "count")
    np.testing.assert_array_equal(table.X, [[1.5, 1, 3], [np.nan, 0, np.nan]])


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_columns_of_texts_are_refused_by_name_in_files_as_in_data_frames(tmp_path, ending, capsys):
    """They are pointed to encoding; to models of texts only where there is one such column."""
    path = tmp_path / f"x.{ending}"
    frame = pd.DataFrame({"size": [1.5, 2.5], "sex": ["f", "m"], "city": ["Bonn", "Rome"]})

    def read(frame):
        if ending == "frame":
            return sv.VSC(2).fit(frame)
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path, index=False)
        if len(frame.columns) == 3:  # the command line says the same
            assert cli.main(["fit", "VSC", "--data", str(path), "--out", str(tmp_path / "model")]) == 1
            assert "there are texts in columns sex, city: encode them" in capsys.readouterr().err
        return read_array(path)

    with pytest.raises(ValueError, match=r"there are texts in columns sex, city: .*OneHotEncoder.*leave them out\.?$"):
        read(frame)
    with pytest.raises(
        ValueError, match=r"in column sex: .*OrdinalEncoder.*leave them out; .*text=Text\(column='sex'\)"
    ):
        read(frame.drop(columns="city"))


def test_a_column_may_turn_from_whole_to_broken_numbers_late(tmp_path):
    rows = [str(i) for i in range(300_000)] + ["0.5"]  # beyond Arrow's first block
    (tmp_path / "x.csv").write_text("n\n" + "\n".join(rows))
    column = read_array(tmp_path / "x.csv").X[:, 0]
    assert (len(column), column[7], column[-1]) == (300_001, 7, 0.5)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_data_frame_written_with_its_index_comes_back_without(tmp_path, ending):
    frame = pd.DataFrame(X, index=[10, 11, 12, 13], columns=["a", "b", "c"])
    path = tmp_path / f"x.{ending}"
    frame.to_csv(path) if ending == "csv" else frame.to_parquet(path)
    with pytest.warns(UserWarning, match="left out, row labels: .*as pandas writes its index$") as reported:
        table = read_array(path)
    assert [w.filename for w in reported] == [__file__]
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.X.astype(np.float32), X)


def test_parquet_keeps_its_type_and_refuses_what_is_neither_numbers_nor_texts(tmp_path):
    table = {"a": X[:, 0], "b": X[:, 1]}
    parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    read = read_array(tmp_path / "x.parquet")
    assert read.columns == ("a", "b")
    assert read.X.dtype == np.float32
    np.testing.assert_array_equal(read.X, X[:, :2])
    parquet.write_table(pa.table(table | {"list": [[1], [2], [3], [4]]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"expected columns of numbers; convert or leave out column list \(list<"):
        read_array(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("name\nanna\n", "no numeric column"),
        ("a,b\n1,2\n3\n", "not a comma-separated table"),
    ],
)
def test_a_csv_without_a_table_of_numbers_is_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_array(tmp_path / "x.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_of_column_names_alone_has_no_rows(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    frame = pd.DataFrame({"a": np.zeros(0), "b": np.zeros(0)})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path, index=False)
    with pytest.raises(ValueError, match="there are no rows, only the names of columns: a, b"):
        read_array(path)


@pytest.mark.parametrize(
    ("ending", "n"), [("csv", 20_000), ("parquet", 2000), pytest.param("parquet", 20_000, marks=pytest.mark.slow)]
)
def test_20000_columns_are_read_in_seconds_and_their_names_asked_for_once(tmp_path, ending, n, monkeypatch):
    path, names = tmp_path / f"x.{ending}", [f"c{i}" for i in range(n)]
    if ending == "csv":
        path.write_text("\n".join(map(",".join, (names, ["0.5"] * n, ["1"] * n))))
    else:
        parquet.write_table(pa.table([[0.5, 1.0]] * n, names), path)

    class Counted:
        asked = 0

        def __init__(self, table):
            self.table = table

        def __getattr__(self, name):
            Counted.asked += 1
            return getattr(self.table, name)

    read, start = files.read_table, time.process_time()
    monkeypatch.setattr(files, "read_table", lambda *a: (Counted((r := read(*a))[0]), r[1]))
    table = read_array(path)
    assert time.process_time() - start < 5
    assert Counted.asked < 10
    assert table.columns == tuple(names)
    np.testing.assert_array_equal(table.X, np.stack([np.full(n, 0.5), np.ones(n)]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_more_columns_than_arrow_reads_in_a_minute_are_refused_at_once(tmp_path, ending, monkeypatch):
    monkeypatch.setattr(arrow, "COLUMNS", 3)
    path = tmp_path / f"x.{ending}"
    frame = pd.DataFrame(np.ones((2, 4)), columns=list("abcd"))
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    with pytest.raises(ValueError, match=rf"x\.{ending}: 4 columns; a \.{ending} may have 3; .*numpy\.save"):
        read_array(path)


@pytest.mark.parametrize("values", [["a" * 10_000, None], [b"a" * 10_000, None], [["a" * 10_000] * 2, []]])
def test_what_a_parquet_holds_once_is_held_once(tmp_path, values):
    """A file of a kilobyte, of values that would take fifty megabytes."""
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": values * 2_500}), path)
    assert path.stat().st_size < 10_000
    table, _ = arrow.read_table(path, texts=True)
    assert table.nbytes < 10**6
    found = arrow.values_of(table.slice(0, 4)["a"])
    assert found == values * 2
    if not isinstance(values[0], list):
        assert found[0] is found[2]


@pytest.mark.parametrize("column", [np.zeros(10**6), np.zeros(10**6, bool), ["a"] * 10**6])
def test_a_parquet_is_measured_by_what_its_values_take(tmp_path, column, monkeypatch):
    """Repeated values take next to nothing in the file."""
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": column}), path)
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(opening, "free_memory", lambda: 5 * 10**6)
    for read in (read_array, read_texts):
        with pytest.raises(ValueError, match=r"x\.parquet: would take [\d.]+ MB of memory, and 5 MB are free"):
            read(path)


@pytest.mark.parametrize("name", ["x" * 10_000 + ".csv", "x/" * 5000 + "x.npy", "x" * 300 + ".txt", "a\0b.parquet"])
def test_a_path_that_is_none_is_an_error_in_a_line_or_two(name, capsys):
    for read in (load, sv.VSC(2).fit):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            read(name)
        assert len(str(caught.value)) < 500
    assert cli.main(["fit", "VSC", "--data", name, "--out", "model"]) == 1
    assert 20 < len(capsys.readouterr().err) < 500


def test_bytes_that_are_no_text_are_refused_as_csv(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00\x80" * 10)
    with pytest.raises(ValueError, match="not a text file in UTF-8"):
        read_array(tmp_path / "x.csv")


def test_a_missing_file_and_a_foreign_ending_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing.npy: no such file"):
        load(tmp_path / "nothing.npy")
    with pytest.raises(ValueError, match=r"unknown file ending '.txt': there are: .npy, .npz, .csv, .parquet"):
        load("table.txt")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=r"only a .npz file can contain"):
        read_array(tmp_path / "x.npy", key="a")
