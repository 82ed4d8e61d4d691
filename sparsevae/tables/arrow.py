"""The reader of .csv and .parquet files, of numbers and of texts: each becomes an Arrow table."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsevae.checks import amount
from sparsevae.exceptions import DataFileError
from sparsevae.files import FIRST, check_size, check_text, opened, parsing, size_of
from sparsevae.tables.columns import is_number

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = 100_000  # most columns of a table: Arrow takes about 10 kB and 50 microseconds for each
LINE = 2**23  # most bytes of the first line of a .csv
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # bytes, in Arrow
_ARRAYS = "; save so wide a table with numpy.save"


def read_table(path: Path, *, texts: bool = False, column: str | None = None) -> tuple[pa.Table, bool]:
    """An Arrow table, read by the file's ending, and whether its columns have names.

    The first line of a .csv is a header if `texts` is true; in a table of numbers, if some cell is no number or the
    cells are 0, 1, 2, ... The given `column` is read as texts, even if every cell is a number.
    """
    return (_parquet(path), True) if path.suffix.lower() == ".parquet" else _csv(path, texts, column)


def _csv(path: Path, texts: bool, column: str | None) -> tuple[pa.Table, bool]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    with opened(path) as file:
        size = size_of(file)
        check_size(path, 3 * size)  # the text, Arrow's columns and the numpy array
        first = _first_line(path, file)
        if len(first) > COLUMNS:
            raise DataFileError(f"{path}: {len(first):,} columns; a .csv may have {COLUMNS:,}{_ARRAYS}")
        named = texts or _names_columns(first)
        file.seek(0)
        with parsing(path, "not a comma-separated table"):
            table = arrow.read_csv(
                _native(path, file),
                # one block: Arrow chooses a column's type by its first block and fails where a later one differs
                arrow.ReadOptions(
                    autogenerate_column_names=not named,
                    block_size=min(max(size, 1), 2**31 - 1),
                    use_threads=size > 2**16 * len(first),  # for short columns threads cost more than they save
                ),
                arrow.ParseOptions(newlines_in_values=texts),
                arrow.ConvertOptions(column_types={column: pa.string()} if column else {}),
            )
    return table, named


def _first_line(path: str | os.PathLike[str], file: io.BufferedReader) -> list[str]:
    """The cells of a table's first line."""
    head = file.read(LINE)
    check_text(path, head[:FIRST])
    if len(head) == LINE and b"\n" not in head:
        raise DataFileError(f"{path}: its first line is longer than {amount(LINE)}: no table of columns{_ARRAYS}")
    with parsing(path, "not a text file in UTF-8"):
        first = next(csv.reader(io.TextIOWrapper(io.BytesIO(head), encoding="utf-8-sig", newline="")), None)
    if first is None:
        raise DataFileError(f"{path}: the file is empty")
    return first


def _names_columns(first: list[str]) -> bool:
    """True if a first line is a header: some cell is no number, or the cells are 0, 1, 2, ..."""
    filled = [cell.strip() for cell in first if cell.strip()]
    counts = len(filled) >= 3 and filled == [str(i) for i in range(len(filled))]
    return counts or not all(map(is_number, filled))


def _native(path: str | os.PathLike[str], file: io.BufferedReader) -> pa.NativeFile:
    """The open file as an Arrow file.

    Arrow's threads may use a Python file object after the interpreter has ended, which aborts the process.
    """
    import pyarrow as pa

    link = f"/proc/self/fd/{file.fileno()}"
    return pa.OSFile(link if os.path.exists(link) else os.fspath(path))


def _parquet(path: str | os.PathLike[str]) -> pa.Table:
    """An Arrow table; columns of texts and bytes are dictionary-encoded, so that repeated values take memory once."""
    from pyarrow import parquet

    with opened(path) as file, parsing(path, "not a .parquet file that can be read"):
        # ParquetFile, not read_table: the latter would take folder names such as "year=1" for columns
        about = parquet.ParquetFile(_native(path, file)).metadata
        if about.num_columns > COLUMNS:
            raise DataFileError(f"{path}: {about.num_columns:,} columns; a .parquet may have {COLUMNS:,}{_ARRAYS}")
        leaves = [about.schema.column(k) for k in range(about.num_columns)]
        words = [c.physical_type == "BYTE_ARRAY" and c.logical_type.type != "DECIMAL" for c in leaves]
        size = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
        width = sum(_WIDTHS.get(leaf.physical_type) or max(4, leaf.length) for leaf in leaves)
        # Arrow's columns and the numpy array. Lengths of lists are unknown until each column chunk is read, and Arrow
        # aborts the process if a damaged file lacks one.
        check_size(path, max(size, about.num_rows * (width + 8 * about.num_columns)))
        repeated = [leaf.path for leaf, word in zip(leaves, words, strict=True) if word]
        return parquet.ParquetFile(_native(path, file), metadata=about, read_dictionary=repeated).read()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of an Arrow column's values, also of a dictionary-encoded column."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text_type(kind: pa.DataType) -> bool:
    """True if an Arrow column holds texts."""
    import pyarrow as pa

    found = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_such(plain_type(kind)) for is_such in found)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of an Arrow column; equal values of a dictionary-encoded chunk are one Python object."""
    import pyarrow as pa

    found: list[Any] = []
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray):
            chunk.validate(full=True)  # every index lies within the dictionary
            known = [*chunk.dictionary.to_pylist(), None]
            found += [known[k] for k in chunk.indices.fill_null(len(known) - 1).to_pylist()]
        else:
            found += chunk.to_pylist()
    return found
