"""Input: one kind of data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.inputs.rows import BLOCK, Rows, place
from sparsevae.inputs.scaling import Scaling
from sparsevae.inputs.stats import Stats

Array = np.ndarray[Any, Any]


class Input:
    """One kind of data: how it is read, laid out, and given back. It knows neither model nor estimator.

    Attributes
    ----------
    width : int
        Columns of a row that was read.
    likelihood_name : str
        The likelihood's name.
    prepare : Scaling
        From rows that were read to what the networks see.
    column : str or None
        The column of a table that holds X, where it is but one.
    kind : str
        Its name in a model's `defaults_by_kind`.
    hidden : tuple of int
        What hidden=None means.
    """

    width: int
    likelihood_name: str
    prepare: Scaling
    column: str | None = None
    kind: ClassVar[str]
    hidden: ClassVar[tuple[int, ...]]

    def about(self) -> dict[str, int]:
        """How large a row is, in words."""
        raise NotImplementedError

    def check_settings(self, model: str, settings: Mapping[str, Any]) -> None:
        """Refuse arguments of a model's constructor that have no meaning for these data.

        `settings` are the constructor's arguments by name, and "training.binarise".
        """

    def training_defaults(self, n_rows: int, batch_size: int | None) -> dict[str, Any]:
        """What steps, batch_size and learning_rate mean where they are None, if not what `Training` says."""
        return {}

    def sizes(self) -> dict[str, int]:
        """Sizes that networks and likelihood take from these data, beside `width`."""
        return {}

    def stats(self, X: Any) -> Stats | None:
        """What scaling and likelihood are chosen and checked by; None where there is no choice and no wrong row."""
        return None

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
