"""How every file of data is opened: regular files only, sizes known before memory is taken, one kind of error.

A reader opens its file with `opened`, as `storage` does, refuses with `check_size` what would not fit, and runs each
parser that is not ours, whose exceptions nobody can list, within `parsing`.
"""

from __future__ import annotations

import csv
import io
import lzma
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsevae.checks import amount, free_memory
from sparsevae.exceptions import DataFileError

if TYPE_CHECKING:
    import pyarrow as pa

UNPACKED = 2**28  # bytes that packed data may become, whatever their size in the file
RATIO = 200  # or so many times the size of the file
COLUMNS = 100_000  # of a .csv or .parquet: Arrow takes about 10 kB and 50 microseconds for each
LINE = 2**23  # bytes of its first line
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}  # bytes, in Arrow
_FIRST, _CHUNK = 2**12, 2**22  # bytes that are read at a time
_ARRAYS = "; save so wide a table with numpy.save"


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A regular file, open for reading. A pipe, a device or a folder is refused, and never waited for.

    Raises
    ------
    FileNotFoundError
        Where there is none.
    DataFileError
        Where it is no regular file, or cannot be opened.
    """
    try:
        _check_regular(path, os.stat(path).st_mode)  # before it is opened: some devices act when they are
        file = open(path, "rb", opener=_open)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{path}: no such file (working directory: {Path.cwd()})") from error
    except DataFileError:
        raise
    except (OSError, ValueError) as error:  # no right to read it, links in a circle, a name that is too long or no name
        name = os.fspath(path)
        shown = name if len(name) <= 300 else f"{name[:60]}... ({len(name):,} characters)"
        raise DataFileError(f"{shown!r}: cannot be opened ({getattr(error, 'strerror', None) or error})") from error
    with file:
        _check_regular(path, os.fstat(file.fileno()).st_mode)
        yield file


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # should a pipe have been put there meanwhile


def _check_regular(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    raise DataFileError(f"{path}: expected a regular file, found {kinds.get(stat.S_IFMT(mode), 'a device')}")


@contextmanager
def parsing(path: str | os.PathLike[str], fault: str, advice: str = "") -> Iterator[None]:
    """Around a parser that is not ours: whatever it raises becomes one error that names the file.

    `fault` says what it means that the parser gave up ("not a whole .npy file"), `advice` what would work.
    """
    try:
        yield
    except DataFileError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        reason = "it asks for more memory than there is" if isinstance(error, MemoryError) else text
        reason = reason if len(reason) <= 300 else f"{reason[:297]}..."
        raise DataFileError(f"{path}: {fault} ({reason or type(error).__name__}){advice}") from error


def check_size(path: str | os.PathLike[str], needed: int, packed: int | None = None, advice: str = "") -> None:
    """Refuse data of `needed` bytes that memory does not hold, or that `packed` bytes of a file cannot honestly be."""
    if packed is not None and needed > max(UNPACKED, RATIO * packed):
        raise DataFileError(
            f"{path}: {amount(packed)} would become {amount(needed)} in memory; packed data may become "
            f"{amount(UNPACKED)}, or {RATIO} times their size{advice}"
        )
    if needed > (free := free_memory()):
        raise DataFileError(f"{path}: would take {amount(needed)} of memory, and {amount(free)} are free{advice}")


def size_of(file: io.BufferedReader) -> int:
    """Bytes in an open file."""
    return os.fstat(file.fileno()).st_size


def read_all(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file that is small by its nature, such as a picture."""
    with opened(path) as file:
        size = size_of(file)
        if size > UNPACKED:
            raise DataFileError(f"{path}: has {amount(size)}; such a file has {amount(UNPACKED)} at most")
        with parsing(path, "cannot be read"):
            return file.read(size)


def read_text(path: str | os.PathLike[str]) -> str:
    """A text in UTF-8; that of an .xz unpacked.

    A file that has zero bytes at its beginning is refused: it is binary, or in UTF-16.
    """
    packed = Path(path).suffix.lower() == ".xz"
    fault = "not a whole .xz file" if packed else "cannot be read"
    raw = bytearray()
    with opened(path) as file:
        size = size_of(file)
        stream = lzma.LZMAFile(file, format=lzma.FORMAT_XZ) if packed else file  # noqa: SIM115
        with parsing(path, fault):
            piece = stream.read(_FIRST)
        _check_text(path, piece)
        check_size(path, 3 * size)  # its bytes, the text, its lines
        while piece:
            raw += piece
            if packed:
                check_size(path, len(raw), size, "; unpack it")
            with parsing(path, fault):
                piece = stream.read(_CHUNK)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataFileError(f"{path}, line {line}: not UTF-8 ({error}); convert the file") from error


def _check_text(path: str | os.PathLike[str], beginning: bytes) -> None:
    if b"\0" in beginning:
        raise DataFileError(f"{path}: not a text file in UTF-8 (it holds zero bytes)")


def read_csv(
    path: str | os.PathLike[str], has_header: Callable[[list[str]], bool], **options: Any
) -> tuple[pa.Table, bool]:
    """An Arrow table, and whether its first line names the columns, as `has_header` says of its cells.

    `options` are those of parsing and `column_types`.
    """
    from pyarrow import csv as arrow

    with opened(path) as file:
        size = size_of(file)
        check_size(path, 3 * size)  # the text, Arrow's columns, ours
        first = _first_line(path, file)
        if len(first) > COLUMNS:
            raise DataFileError(f"{path}: {len(first):,} columns; a .csv may have {COLUMNS:,}{_ARRAYS}")
        named = has_header(first)
        file.seek(0)
        with parsing(path, "not a comma-separated table"):
            table = arrow.read_csv(
                file,
                # one block: Arrow settles a column's type on its first block and fails where a later one differs
                arrow.ReadOptions(
                    autogenerate_column_names=not named,
                    block_size=min(max(size, 1), 2**31 - 1),
                    use_threads=size > 2**16 * len(first),  # handing out short columns costs more than it saves
                ),
                arrow.ParseOptions(newlines_in_values=options.pop("newlines_in_values", False)),
                arrow.ConvertOptions(**options),
            )
    return table, named


def _first_line(path: str | os.PathLike[str], file: io.BufferedReader) -> list[str]:
    """The cells of a table's first line."""
    head = file.read(LINE)
    _check_text(path, head[:_FIRST])
    if len(head) == LINE and b"\n" not in head:
        raise DataFileError(f"{path}: its first line is longer than {amount(LINE)}: no table of columns{_ARRAYS}")
    with parsing(path, "not a text file in UTF-8"):
        first = next(csv.reader(io.TextIOWrapper(io.BytesIO(head), encoding="utf-8-sig", newline="")), None)
    if first is None:
        raise DataFileError(f"{path}: the file is empty")
    return first


def read_parquet(path: str | os.PathLike[str]) -> pa.Table:
    """An Arrow table; of texts and bytes each value that a row group repeats is held once, as in the file."""
    from pyarrow import parquet

    with opened(path) as file:
        with parsing(path, "not a .parquet file that can be read"):
            # ParquetFile, not read_table: the latter would take folder names such as "year=1" for columns
            source = parquet.ParquetFile(file)
            about = source.metadata
        if about.num_columns > COLUMNS:
            raise DataFileError(f"{path}: {about.num_columns:,} columns; a .parquet may have {COLUMNS:,}{_ARRAYS}")
        with parsing(path, "not a .parquet file that can be read"):
            leaves = [about.schema.column(k) for k in range(about.num_columns)]
            words = [c.physical_type == "BYTE_ARRAY" and c.logical_type.type != "DECIMAL" for c in leaves]
            size = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
            width = sum(_WIDTHS.get(leaf.physical_type) or max(4, leaf.length) for leaf in leaves)
        # Arrow's columns and ours; how long lists are only a look at each part of a column tells, and Arrow ends the
        # process where a damaged file has none
        check_size(path, max(size, about.num_rows * (width + 8 * about.num_columns)))
        with parsing(path, "not a .parquet file that can be read"):
            repeated = [leaf.path for leaf, word in zip(leaves, words, strict=True) if word]
            return parquet.ParquetFile(file, metadata=about, read_dictionary=repeated).read()


def plain_type(kind: pa.DataType) -> pa.DataType:
    """What a column of Arrow's holds, whether or not each value is held once."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def holds_texts(kind: pa.DataType) -> bool:
    """Whether a column of Arrow's holds texts."""
    import pyarrow as pa

    found = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_such(plain_type(kind)) for is_such in found)


def as_list(column: pa.ChunkedArray) -> list[Any]:
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
