"""Input: one kind of data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.inputs.rows import BLOCK, Rows, place

Array = np.ndarray[Any, Any]


class Input:
    """One kind of data: how it is read, laid out, and given back. It knows neither model nor estimator.

    Attributes
    ----------
    width : int
        Columns of a row that was read.
    likelihood_name : str
        The likelihood's name.
    prepare : nn.Module
        From rows that were read to what the networks see.
    column : str or None
        The column of a table that holds X, where it is but one.
    kind : str
        Its name in a model's `defaults_by_kind`.
    """

    width: int
    likelihood_name: str
    prepare: nn.Module
    column: str | None = None
    kind: ClassVar[str]

    def about(self) -> dict[str, int]:
        """How large a row is, in words."""
        raise NotImplementedError

    def read(self, est: BaseEstimator, X: Any, *, reset: bool) -> Any:
        """Whatever the user has -> checked rows, (n, width); `reset` learns what they are like.

        The number of columns and their names are attributes of `est`, where scikit-learn keeps them.
        """
        raise NotImplementedError

    def as_rows(self, x: Any) -> Any:
        """One row, such as X[0], as rows that can be read."""
        raise NotImplementedError

    def block_size(self, device: torch.device, draws: int = 1) -> int:
        """Rows that are encoded at once, or scored with so many draws of each.

        Always so many, however few there are: matrix products round differently for other shapes.
        """
        return BLOCK

    def lay_out(self, X: Any, device: torch.device) -> Rows:
        """Rows as training takes them."""
        return place(X, device, resident=True)

    def group_by_width(self, X: Any) -> tuple[list[Any], Array | None]:
        """Rows in groups that are best encoded together, and the order that takes all of them back to X's."""
        return [X], None

    def log_det(self, discrete: bool) -> float:
        """Log-determinant that converts a score to the units of X; `discrete` likelihoods need none."""
        return 0.0

    def meaning(self, discrete: bool, blocks: Iterable[Tensor]) -> str:
        """What a score is, as `SparseCoder.score_meaning` says it; `discrete` is the likelihood's."""
        return "bound"

    def to_user(self, values: Tensor) -> Any:
        """Decoded values, (B, width), in X's own form and units."""
        raise NotImplementedError

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """Parts that `to_user` gave, one after the other; of no parts, no rows."""
        raise NotImplementedError

    def errors(self, x: Tensor, decoded: Iterable[Distribution]) -> Tensor:
        """Reconstruction errors of rows x under p(x|z) of several codes, in numbers to be summed: (numbers, B)."""
        raise NotImplementedError

    def summarise(self, errors: Array, rows: int, score: float, nll: float, caps: Sequence[int]) -> dict[str, Any]:
        """What `evaluate` says of all rows, from summed `errors` and the means of score and -log p(x|z) over draws."""
        raise NotImplementedError

    def in_force(self) -> dict[str, Any]:
        """Settings of the estimator as they are for these data, where they belong to the kind of data."""
        raise NotImplementedError

    def signature(self) -> dict[str, Any]:
        """What a run is a function of, as far as it depends on the data."""
        raise NotImplementedError

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values to store."""
        raise NotImplementedError

    def check_restored(self) -> None:
        """Refuse stored numbers that no data can have led to."""
