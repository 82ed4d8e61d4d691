"""Arrays from the user's own files."""

from __future__ import annotations

import csv
import os
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..advice import advise
from ..text import NAMED, is_number
from .dataset import Rows
from .suggest import unknown

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ROW_LABELS = ("", "__index_level_0__")  # what pandas calls a data frame's index in CSV and in Parquet


class Table(NamedTuple):
    """Rows of shape (n, d), and what the file says about their columns."""

    X: Rows
    columns: tuple[str, ...] | None = None
    image_shape: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of X."""
        return self.X.shape


def read_array(path: str | os.PathLike[str], *, key: str | None = None) -> Table:
    """Read a numeric table from a file; the file's ending says how.

    ========  =====================================================================================
    .npy      a read-only memory map: nothing is read until a row is asked for
    .npz      a scipy sparse matrix, returned as CSR; or one array (of several, the one named ``key``)
    .csv      comma separated; a first line that is not all numbers (or counts 0, 1, 2, ...) names the columns
    .parquet
    ========  =====================================================================================

    CSV and Parquet give their numeric columns (truth values count as 0 and 1, missing entries as NaN). Other
    columns, and the unnamed index column that pandas likes to write, are left out with a warning.
    Images of shape (n, height, width) become rows of height * width. Nothing is ever unpickled.

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
        raise ValueError(f"{path}: {problem}; a .txt, one text a line, is for models of texts")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file (working directory: {Path.cwd()})")
    if not isinstance(key, str | None):
        raise TypeError(f"{path}: key must be the name of an array, got {key!r}")
    if key is not None and path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: key={key!r} names one of several arrays, which only a .npz file can hold")
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
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), None
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a plain, whole .npy file ({error}){_SAFE}") from error


def _npz(path: Path, key: str | None) -> tuple[Rows, None]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):  # a .npy under a false name
                raise ValueError("it is not a zip archive")
            names = archive.files
            if not names:
                raise ValueError("it holds no array")
            if key is None and {"format", "shape", "data"} <= set(names):
                return _sparse(path), None
            if key in names or (key is None and len(names) == 1):
                return archive[names[0] if key is None else key], None
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as .npz: {error}{_SAFE}") from error
    if key is not None:
        raise ValueError(f"{path}: {unknown('key', key, names)}")
    ways = f"key={names[0]!r}, on the command line with --data-option {shlex.quote(f'key={names[0]}')}"
    raise ValueError(f"{path} holds {len(names)} arrays ({', '.join(names)}): name one, in Python with {ways}")


def _sparse(path: Path) -> csr_array:
    from scipy import sparse

    X = sparse.csr_array(sparse.load_npz(path))
    X.check_format(full_check=True)  # an index beyond the edge would be read from foreign memory later
    return X


def _csv(path: Path, key: str | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    from pyarrow import csv as arrow

    named = _has_header(path)
    # one block: Arrow settles a column's type on its first block and fails where a later one differs
    block = min(max(path.stat().st_size, 1), 2**31 - 1)
    try:
        table = arrow.read_csv(
            path, arrow.ReadOptions(autogenerate_column_names=not named, block_size=block, use_threads=True)
        )
    except ValueError as error:  # pyarrow.ArrowInvalid
        raise ValueError(f"{path}: not a comma-separated table: {error}") from error
    X, columns = _numeric(path, table)
    return X, columns if named else None


def _has_header(path: Path) -> bool:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            first = next(csv.reader(file))
        except StopIteration:
            raise ValueError(f"{path}: the file is empty") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path}: not a text file in UTF-8 ({error})") from error
    filled = [cell.strip() for cell in first if cell.strip()]
    counts = len(filled) >= 3 and filled == [str(i) for i in range(len(filled))]
    return counts or not all(map(is_number, filled))


def _parquet(path: Path, key: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    from pyarrow import parquet

    try:
        # ParquetFile, not read_table: the latter would take folder names such as "year=1" for columns
        table = parquet.ParquetFile(path).read()
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from error
    return _numeric(path, table)


def _numeric(path: Path, table: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """The numeric columns of an Arrow table, side by side."""
    import pyarrow as pa

    if not table.num_rows:
        raise ValueError(f"{path}: there are no rows, only the names of columns: {', '.join(table.column_names)}")
    columns: dict[int, np.ndarray] = {}
    for index, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        kind = column.type
        if name in ROW_LABELS:
            continue
        if pa.types.is_boolean(kind):
            column = column.cast(pa.uint8())
        elif pa.types.is_decimal(kind):
            column = column.cast(pa.float64())
        elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            continue
        columns[index] = column.to_numpy()  # a missing integer makes its column floating point, with NaN
    others = [
        (name, kind)
        for index, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True))
        if index not in columns
    ]
    strange = [f"{name} ({kind})" for name, kind in others if name not in ROW_LABELS]
    texts = any(pa.types.is_string(kind) or pa.types.is_large_string(kind) for _, kind in others)
    advice = f"; {NAMED}" if texts else ""
    if not columns:
        raise ValueError(f"{path}: no numeric column; there are: {', '.join(strange) or 'row labels alone'}{advice}.")
    if strange:
        advise(f"{path}: left out, not numbers: {', '.join(strange)}{advice}")
    if len(strange) < len(others):
        advise(f"{path}: left out, row labels: the column without a name, as pandas writes its index")
    X = np.empty((table.num_rows, len(columns)), dtype=np.result_type(*columns.values()))
    for place, column in enumerate(columns.values()):
        X[:, place] = column
    return X, tuple(table.column_names[index] for index in columns)


_SAFE = "; save plain numbers with numpy.save, numpy.savez or scipy.sparse.save_npz: pickles are never opened"
READERS: dict[str, Callable[[Path, str | None], tuple[Rows, tuple[str, ...] | None]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
}
