"""The one reader of .csv and .parquet files, of numbers and of texts: each becomes a table of Arrow's."""

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

COLUMNS = 100_000  # of a table: Arrow takes about 10 kB and 50 microseconds for each
LINE = 2**23  # bytes of the first line of a .csv
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # bytes, in Arrow
_ARRAYS = "; save so wide a table with numpy.save"


def read_table(path: Path, *, texts: bool = False, column: str | None = None) -> tuple[pa.Table, bool]:
    """An Arrow table, by the file's ending, and whether its columns have names.

    The first line of a .csv names its columns where `texts` are wanted; of numbers, where it is not all numbers itself,
    or counts 0, 1, 2, ... The `column` asked for holds texts, even if every one of them reads as a number.
    """
    return (_parquet(path), True) if path.suffix.lower() == ".parquet" else _csv(path, texts, column)


def _csv(path: Path, texts: bool, column: str | None) -> tuple[pa.Table, bool]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    with opened(path) as file:
        size = size_of(file)
        check_size(path, 3 * size)  # the text, Arrow's columns, ours
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
                    use_threads=size > 2**16 * len(first),  # handing out short columns costs more than it saves
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
    """Whether a first line is names of columns: it is not all numbers, or counts 0, 1, 2, ..."""
    filled = [cell.strip() for cell in first if cell.strip()]
    counts = len(filled) >= 3 and filled == [str(i) for i in range(len(filled))]
    return counts or not all(map(is_number, filled))


def _native(path: str | os.PathLike[str], file: io.BufferedReader) -> pa.NativeFile:
    """The file that was opened, as one of Arrow's own.

    Arrow's threads hold a file object of Python's beyond the end of the interpreter, and then abort the process.
    """
    import pyarrow as pa

    link = f"/proc/self/fd/{file.fileno()}"
    return pa.OSFile(link if os.path.exists(link) else os.fspath(path))


def _parquet(path: str | os.PathLike[str]) -> pa.Table:
    """An Arrow table; of texts and bytes each value that a row group repeats is held once, as in the file."""
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
        # Arrow's columns and ours; how long lists are only a look at each part of a column tells, and Arrow ends the
        # process where a damaged file has none
        check_size(path, max(size, about.num_rows * (width + 8 * about.num_columns)))
        repeated = [leaf.path for leaf, word in zip(leaves, words, strict=True) if word]
        return parquet.ParquetFile(_native(path, file), metadata=about, read_dictionary=repeated).read()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """What a column of Arrow's holds, whether or not each value is held once."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text_type(kind: pa.DataType) -> bool:
    """Whether a column of Arrow's holds texts."""
    import pyarrow as pa

    found = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_such(plain_type(kind)) for is_such in found)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column of Arrow's; equal ones of a row group that held them once are one object."""
    import pyarrow as pa

    found: list[Any] = []
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray):
            chunk.validate(full=True)  # its places lie within its values
            known = [*chunk.dictionary.to_pylist(), None]
            found += [known[k] for k in chunk.indices.fill_null(len(known) - 1).to_pylist()]
        else:
            found += chunk.to_pylist()
    return found
