"""Read arrays from .npy, .npz, .csv and .parquet files."""

from __future__ import annotations

import math
import os
import shlex
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparsevae.data.dataset import Rows
from sparsevae.exceptions import DataFileError, unknown, warn_caller
from sparsevae.files import check_size, opened, parsing, size_of
from sparsevae.tables.arrow import is_text_type, plain_type, read_table
from sparsevae.tables.columns import columns_named, encode, some

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ROW_LABELS = ("", "__index_level_0__")  # pandas' names for the index of a DataFrame in CSV and in Parquet


class Table(NamedTuple):
    """Rows of shape (n, d), and the names of their columns or the shape of their images."""

    X: Rows
    columns: tuple[str, ...] | None = None
    image_shape: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of X."""
        return self.X.shape


def read_array(path: str | os.PathLike[str], *, key: str | None = None) -> Table:
    """Read a numeric table from a file; the ending of its name determines the format.

    ========  =====================================================================================
    .npy      a read-only memory map: rows are read when they are used
    .npz      a scipy sparse matrix, returned as CSR; or one array (of several, the one named ``key``)
    .csv      comma separated; a first line that is not all numbers (or is 0, 1, 2, ...) names the columns
    .parquet
    ========  =====================================================================================

    Columns of CSV and Parquet must be numbers (booleans become 0 and 1, missing entries NaN); an error names columns of
    texts, dates and lists. The unnamed index column that pandas writes by default, and columns without any value, are
    left out with a warning. Images of shape (n, height, width) become rows of height * width. Pickles are never opened.

    Only regular files that fit into memory are read: an .npz that unpacks to over 256 MB and over 200 times its size is
    refused (unpack it yourself), a .csv or .parquet may have at most 100,000 columns. A file that cannot be read is a
    ValueError that names it; a missing one is a FileNotFoundError.

    Returns
    -------
    Table ``(X, columns, image_shape)``; X keeps the type of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("height,weight\\n1.7,70\\n1.8,75\\n")
    >>> X, columns, _ = read_array(path)
    >>> X.shape, columns
    ((2, 2), ('height', 'weight'))
    """
    path = Path(path)
    if path.suffix.lower() not in READERS:
        problem = unknown("file ending", path.suffix, READERS)
        raise ValueError(f"{path}: {problem}; a .txt, one text per line, is for models of texts")
    if not isinstance(key, str | None):
        raise TypeError(f"{path}: key must be the name of an array, got {key!r}")
    if key is not None and path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: key={key!r} names one of several arrays, which only a .npz file can contain")
    X, columns = READERS[path.suffix.lower()](path, key)
    if X.dtype.kind not in "biuf":
        raise ValueError(f"{path}: expected numbers, got values of type {X.dtype}")
    if isinstance(X, np.ndarray) and X.ndim == 3:
        n, height, width = X.shape
        return Table(X.reshape(n, height * width), None, (height, width))
    if len(X.shape) != 2:
        raise ValueError(f"{path}: expected shape (rows, features), or (rows, height, width) for images; got {X.shape}")
    return Table(X, columns)


def _npy(path: Path, key: str | None) -> tuple[np.ndarray, None]:
    with opened(path), parsing(path, "not a plain, whole .npy file", _SAFE):
        return np.lib.format.open_memmap(path, mode="r"), None


def _npz(path: Path, key: str | None) -> tuple[Rows, None]:
    with Npz.open(path) as archive:
        names = list(archive.members)
        if not names:
            raise DataFileError(f"{path}: cannot be read as .npz: it contains no array{_SAFE}")
        if key is None and {"format", "shape", "data"} <= set(names):
            return _sparse(archive), None
        if key in names or (key is None and len(names) == 1):
            return archive.read(names[0] if key is None else key), None
    if key is not None:
        raise ValueError(f"{path}: {unknown('key', key, names)}")
    ways = f"key={names[0]!r}, on the command line with --data-option {shlex.quote(f'key={names[0]}')}"
    raise ValueError(f"{path} contains {len(names)} arrays ({some(names)}): name one, in Python with {ways}")


class Npz:
    """An open .npz file; an array is read only if its header states the size that the archive has for it."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, size: int, fault: str) -> None:
        self.path, self.archive, self.size, self.fault = path, archive, size, fault
        self.members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}

    @classmethod
    @contextmanager
    def open(cls, path: Path, fault: str = "cannot be read as .npz") -> Iterator[Npz]:
        """Open the archive at `path` for the duration; an error begins with `fault`."""
        with opened(path) as file:
            with parsing(path, fault, _SAFE):
                archive = zipfile.ZipFile(file)
            yield cls(path, archive, size_of(file), fault)

    def check(self, *names: str) -> None:
        """Refuse arrays that do not fit into memory, or whose size differs from the one in their header."""
        check_size(self.path, sum(self.members[name].file_size for name in names), self.size, _AS_NPY)
        for name in names:
            with self._opened(name) as content:
                old = np.lib.format.read_magic(content) == (1, 0)
                header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
                shape, _, dtype = header(content)
                want, have = math.prod(shape) * dtype.itemsize, self.members[name].file_size - content.tell()
                if want != have and not dtype.hasobject:
                    raise ValueError(f"shape {shape} of {dtype} needs {want:,} bytes of values, there are {have:,}")

    def read(self, name: str) -> np.ndarray:
        """Read one array."""
        self.check(name)
        with self._opened(name) as content:
            return np.lib.format.read_array(content, allow_pickle=False)

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        with parsing(f"{self.path}, {name}", self.fault, _SAFE), self.archive.open(self.members[name]) as content:
            yield content


def _sparse(archive: Npz) -> csr_array:
    """Read a scipy matrix of any format as CSR."""
    from scipy import sparse

    archive.check(*archive.members)
    with parsing(archive.path, "not a whole sparse matrix", _SAFE):
        X = sparse.load_npz(archive.path)
        if hasattr(X, "check_format"):  # before conversion: an index out of range writes outside of the arrays
            X.check_format(full_check=True)
    check_size(archive.path, 8 * X.shape[0], archive.size)  # a row without entries takes memory as CSR, none as COO
    with parsing(archive.path, "not a whole sparse matrix", _SAFE):
        found = sparse.csr_array(X)
        found.check_format(full_check=True)
    return found


def _table(path: Path, key: str | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    table, named = read_table(path)
    X, columns = _numeric(path, table)
    return X, columns if named else None


def _numeric(path: Path, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The columns of an Arrow table as (n, d); all must be numbers, except for row labels and empty columns."""
    import pyarrow as pa

    names, kinds = table.column_names, table.schema.types  # once: Arrow builds both lists at every access
    if not table.num_rows:
        raise ValueError(f"{path}: there are no rows, only the names of columns: {', '.join(names)}")
    columns: dict[int, np.ndarray] = {}
    texts, strange, empty, labels = [], [], [], False
    for index, (name, kind, column) in enumerate(zip(names, kinds, table.columns, strict=True)):
        if name in ROW_LABELS:
            labels = True
        elif pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
            to = pa.uint8() if pa.types.is_boolean(kind) else pa.float64()
            with parsing(path, "not a table of numbers"):
                columns[index] = column.cast(to).to_numpy()
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
            columns[index] = column.to_numpy()  # a missing integer makes its column floating point, with NaN
        elif pa.types.is_null(kind):
            empty.append(name)
        elif is_text_type(kind):
            texts.append(name)
        else:
            strange.append(f"{name} ({plain_type(kind)})")
    if len(names) == 1 and texts and (mark := next((m for m in ";\t|" if m in names[0] and m in str(table[0][0])), "")):
        raise ValueError(
            f"{path}: expected commas between columns, found one column {names[0]!r}; if it is written with {mark!r}, "
            f"read it with pandas.read_csv(..., sep={mark!r}) and pass the table, or save it with to_csv"
        )
    if texts or strange or not columns:
        expected = f"{path}: {'expected columns of numbers' if columns else 'no numeric column'}; "
        if texts:
            raise ValueError(expected + encode(texts))
        if strange:
            raise ValueError(f"{expected}convert or leave out {columns_named(strange)}")
        raise ValueError(expected + (some(empty) or "there are row labels alone"))
    if empty:
        warn_caller(f"{path}: left out, no value in any row: {some(empty)}")
    if labels:
        warn_caller(f"{path}: left out, row labels: the column without a name, as pandas writes its index")
    return np.column_stack(list(columns.values())), tuple(names[index] for index in columns)


_AS_NPY = "; save the array with numpy.save"
_SAFE = "; save plain numbers with numpy.save, numpy.savez or scipy.sparse.save_npz: pickles are never opened"
READERS: dict[str, Callable[[Path, str | None], tuple[Rows, tuple[str, ...] | None]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": _table,
    ".parquet": _table,
}
