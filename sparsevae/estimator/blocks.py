"""What methods of a fitted estimator share: no gradients, and rows that come in groups back in the order of X."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sklearn.utils.validation import check_is_fitted

from sparsevae.inputs.base import Array
from sparsevae.threads import inference

F = TypeVar("F", bound=Callable[..., Any])


def fitted(method: F) -> F:
    """Run a method of a fitted estimator without gradients, within the CPU quota, with the same bits every time."""

    @functools.wraps(method)
    def quietly(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        with inference(self._device()):
            return method(self, *args, **kwargs)

    return cast(F, quietly)


def in_order(rows: Any, order: Array | None) -> Any:
    """Rows that were taken in groups, in the order of X."""
    return rows if order is None else rows[order]
