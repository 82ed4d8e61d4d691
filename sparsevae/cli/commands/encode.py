"""`sparsevae encode`: the code of every row, in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsevae.cli.options import Data, DataOptions, Folder, Json, Split, out_option, taking
from sparsevae.cli.places import check_other, ending_of, write_whole
from sparsevae.cli.printing import print_result
from sparsevae.cli.sources import load_model, rows

_ROWS = 4096  # rows of sparse codes that are made dense at a time


def encode(
    folder: Folder,
    data: Data,
    out: Annotated[Path, out_option("FILE", "codes.npz, codes.parquet or codes.csv.")],
    max_active: Annotated[
        int | None,
        typer.Option(
            **taking(int, "K"),
            help="Keep at most K non-zeros per row: those that bring most to the output.",
        ),
    ] = None,
    refine: Annotated[bool, typer.Option("--refine", help="Spend more time on each row for a better code.")] = False,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Write the code of every row.

    Sparse codes: .npz is a CSR matrix for scipy.sparse.load_npz; .parquet has the columns row, indices (the units
    that are on) and values, one line per row, the form of sparse vectors in vector databases.

    Dense codes: .npz has one array, codes; .parquet has one column per unit.

    A .csv has one column per unit and one line per row, zeros included, for sparse and dense codes.
    """
    from scipy.sparse import issparse, save_npz

    ending = ending_of(out, ".npz", ".parquet", ".csv")
    check_other(out, data)
    est = load_model(folder)
    X, part, _ = rows(est, data, split, data_option)
    codes = est.transform(X, max_active=max_active, refine=refine)
    sparse = bool(issparse(codes))
    if ending == ".parquet":
        from pyarrow import parquet

        table = _lists(codes) if sparse else _columns(codes, est.get_feature_names_out())
        write_whole(out, lambda file: parquet.write_table(table, file))
    elif ending == ".csv":
        write_whole(out, lambda file: _write_csv(file, codes, est.get_feature_names_out()))
    elif sparse:
        write_whole(out, lambda file: save_npz(file, codes))
    else:
        import numpy as np

        write_whole(out, lambda file: np.savez(file, codes=codes))
    n, units = codes.shape
    nonzeros = int((codes != 0).sum()) / n
    result = {"out": str(out), "sparse": sparse, "split": part, "rows": n, "units": units, "nonzeros": nonzeros}
    print_result(result, f"{out}: {n:,} rows ({part}) x {units:,} units, {nonzeros:.4g} non-zeros per row", as_json)


def _lists(codes: Any) -> Any:
    """A CSR matrix as an Arrow table with the columns row, indices and values."""
    import pyarrow as pa

    ends = pa.array(codes.indptr, pa.int64())
    indices, values = (pa.LargeListArray.from_arrays(ends, v) for v in (codes.indices, codes.data))
    return pa.table({"row": range(codes.shape[0]), "indices": indices, "values": values})


def _write_csv(file: Any, codes: Any, names: Sequence[str]) -> None:
    """Write one line per row and one column per unit, with the shortest decimals that restore the same float32."""
    from pyarrow import csv

    plain = csv.WriteOptions(include_header=False)
    file.write(f"{','.join(names)}\n".encode())
    for start in range(0, codes.shape[0], _ROWS):
        rows = codes[start : start + _ROWS]
        csv.write_csv(_columns(rows.toarray() if hasattr(rows, "toarray") else rows, names), file, plain)


def _columns(codes: Any, names: Iterable[str]) -> Any:
    """An array as an Arrow table with one column per unit."""
    import pyarrow as pa

    return pa.table(dict(zip(names, codes.T, strict=True)))
