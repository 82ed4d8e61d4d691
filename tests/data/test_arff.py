"""ARFF: every way of writing a table gives the same numbers, and a fault is named with its line."""

import numpy as np
import pytest

from sparsevae.data import read_arff

HEADER = """% a comment
@RELATION 'made up'

@Attribute length REAL
@attribute "it's a name" integer
@ATTRIBUTE 'colour, main' {red, 'deep \\'sea\\' blue', "green, light"}
@attribute place\t{10,2,-1.5}
@DATA
"""
ROWS = [[1.5, -2.0, 0.0, 10.0], [0.0, 3e4, 1.0, 2.0], [0.25, 0.0, 2.0, -1.5]]
DENSE = """1.5, -2, red, 10
% between rows

0,3E4,'deep \\'sea\\' blue','2'
  .25 ,\t0, "green, light" , -1.5
"""
SPARSE = """{0 1.5, 1 -2}
{1 3E4,2 'deep \\'sea\\' blue', 3 2}
{ 3 -1.5 , 2 "green, light" , 0 .25 }
"""


@pytest.fixture
def write(tmp_path):
    def write(text, header=HEADER):
        path = tmp_path / "table.arff"
        path.write_text(header + text, encoding="utf-8")
        return path

    return write


def test_quotes_comments_and_case_do_not_matter(write):
    table = read_arff(write(DENSE))
    np.testing.assert_array_equal(table.X, ROWS)
    assert table.X.dtype == np.float64
    assert table.columns == ("length", "it's a name", "colour, main", "place")
    assert table.values == (None, None, ("red", "deep 'sea' blue", "green, light"), ("10", "2", "-1.5"))


def test_sparse_rows_are_the_dense_ones_as_csr(write):
    # a row is silent about zeros and about the first value of a nominal column, which may be 10
    table = read_arff(write(SPARSE))
    assert table.X.format == "csr"
    np.testing.assert_array_equal(table.X.toarray(), ROWS)
    assert table.X.nnz == np.count_nonzero(ROWS)
    assert table.columns == read_arff(write(DENSE)).columns


def test_a_sparse_row_may_name_nothing(write):
    np.testing.assert_array_equal(read_arff(write("{}\n{ }\n")).X.toarray(), [[0, 0, 0, 10]] * 2)


def test_nominal_values_count_as_themselves_only_where_all_are_numbers(write):
    header = "@attribute a {3, 1}\n@attribute b {3, one}\n@attribute c {3, nan}\n@data\n"
    np.testing.assert_array_equal(read_arff(write("3,3,3\n1,one,nan\n", header)).X, [[3, 0, 0], [1, 1, 1]])


@pytest.mark.parametrize(("rows", "dense"), [("?, 1, ?, 2\n", True), ("{0 ?, 1 1, 2 ?, 3 2}\n", False)])
def test_a_missing_value_is_nan(write, rows, dense):
    X = read_arff(write(rows)).X
    np.testing.assert_array_equal(X if dense else X.toarray(), [[np.nan, 1, np.nan, 2]])


def test_windows_line_ends_and_a_byte_order_mark_are_read_past(tmp_path):
    path = tmp_path / "table.arff"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + DENSE).replace("\n", "\r\n").encode())
    np.testing.assert_array_equal(read_arff(path).X, ROWS)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1,2,red\n", 9, "expected 4 values between commas, one per attribute, got 3"),
        ("1,2,red,10,\n", 9, "expected 4 values .* got 5"),
        (
            "1,2,red,10\n\nx,2,red,10\n",
            11,
            "expected a finite number for 'length', or \\? for a missing value; got 'x'",
        ),
        ("inf,2,red,10\n", 9, "expected a finite number for 'length'"),
        ("1,,red,10\n", 9, 'expected a finite number for "it\'s a name"'),
        ("1,2,purple,10\n", 9, "'colour, main' has no value 'purple'; it was declared with"),
        ("1,2,'red,10\n", 9, "expected a value, its quotes closed"),
        ("{0 1, 4 2}\n", 9, "names index 4, but the attributes are 0 to 3"),
        ("{0 1, 0 2}\n", 9, "names index 0 twice"),
        ("{0 1, 1}\n", 9, "expected index and value, then a comma or the end; got ' 1'"),
        ("{0 1, 1 2\n", 9, "a sparse row must end with }"),
        ("{0 1}\n1,2,red,10\n", 10, "dense and sparse rows are mixed"),
        ("1,2,red,10\n{0 1}\n", 10, "dense and sparse rows are mixed"),
    ],
)
def test_a_bad_row_is_named_with_file_and_line(write, text, line, message):
    with pytest.raises(ValueError, match=rf"table\.arff, line {line}: .*{message}"):
        read_arff(write(text))


@pytest.mark.parametrize(
    ("header", "line", "message"),
    [
        (
            "@attribute words string\n",
            1,
            "'words' is of type 'string'; expected numeric, real, integer, .*take the col",
        ),
        ("@attribute day date 'yyyy'\n", 1, "text and dates are no numbers"),
        ("@attribute day\n", 1, "is of type ''"),
        ("@attribute 'day numeric\n", 1, "expected @attribute, a name"),
        ("@attribute\n", 1, "expected @attribute, a name"),
        ("@attribute a {x, x}\n", 1, "the values of 'a' must be different"),
        ("@attribute a {x,}\n", 1, "must be different and not empty"),
        ("@attribute a {}\n", 1, "must be different and not empty"),
        ("@attribute a real\n% more\n@attribute 'a' real\n", 3, "'a' is declared twice"),
        ("@attribute a real\n1\n", 2, "expected @relation, @attribute or @data, got '1'"),
        ("@data\n1\n", 2, "expected 0 values"),
    ],
)
def test_a_bad_header_is_named_with_file_and_line(write, header, line, message):
    with pytest.raises(ValueError, match=rf"table\.arff, line {line}: .*{message}"):
        read_arff(write("", header))


def test_a_table_without_data_or_rows_is_refused(write):
    with pytest.raises(ValueError, match="expected a line @data before the rows, and there is none in 2 lines"):
        read_arff(write("", "@attribute a real\n"))
    with pytest.raises(ValueError, match="no row follows @data in line 2"):
        read_arff(write("% nothing\n", "@attribute a real\n@data\n"))


def test_what_is_no_text_file_is_refused_by_name(tmp_path):
    (tmp_path / "table.arff").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"table\.arff: not a text file in UTF-8"):
        read_arff(tmp_path / "table.arff")
    with pytest.raises(FileNotFoundError, match=r"other\.arff: no such file"):
        read_arff(tmp_path / "other.arff")
