"""Checks of the codes Z that a user passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array

from sparsevae.inputs.arrays import REACH, as_array, check_kind


def read_codes(Z: Any, n_components: int) -> Any:
    """Z as a float32 array or CSR matrix, (n, n_components), checked as rows of X are."""
    try:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused
            Z = check_array(as_array(Z, "Z"), accept_sparse="csr", dtype=None, ensure_all_finite=False, input_name="Z")
            if Z.dtype != object:  # objects may be numbers: converted below
                check_kind(Z, "Z")
            Z = check_array(Z, accept_sparse="csr", dtype=np.float32, input_name="Z")
    except (TypeError, OverflowError, ValueError) as error:
        if "damaged" in str(error):
            raise
        what = str(error).partition("\n")[0].partition(" array instead:")[0]  # scikit-learn shows the values, too
        raise ValueError(f"Z must hold codes, finite numbers of shape (n, {n_components}): {what}") from error
    if Z.shape[1] != n_components:
        raise ValueError(f"codes have {n_components} columns, one per unit; got {Z.shape[1]}.")
    values: Any = getattr(Z, "data", Z) if scipy.sparse.issparse(Z) else Z
    if (largest := float(np.abs(values).max(initial=0))) > REACH:
        raise ValueError(f"Z has values up to {largest:.1e}: beyond {REACH:.0e}, networks overflow in float32.")
    return Z
