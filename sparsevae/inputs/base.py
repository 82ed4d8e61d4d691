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
Pairs = Iterable[tuple[Tensor, int]]  # blocks of prepared rows, of which the first n are rows of X


class Input:
    """One kind of data: reading, layout in memory, and conversion of decoded rows to X's form.

    Attributes
    ----------
    width : int
        Columns of a checked row.
    likelihood_name : str
        The name of the likelihood.
    prepare : Scaling
        From checked rows to the networks' input.
    column : str or None
        The column of a table that holds X, if X is a single column.
    kind : str
        The key in a model's `defaults_by_kind`.
    hidden : tuple of int
        The value of hidden=None.
    """

    width: int
    likelihood_name: str
    prepare: Scaling
    column: str | None = None
    kind: ClassVar[str]
    hidden: ClassVar[tuple[int, ...]]

    @property
    def scaling(self) -> Scaling:
        """From X's units to those of the networks, and back."""
        return self.prepare

    def about(self) -> dict[str, int]:
        """The size of a row by name, for messages."""
        raise NotImplementedError

    def check_settings(self, model: str, settings: Mapping[str, Any]) -> None:
        """Refuse constructor arguments of a model that do not apply to this kind of data.

        `settings` are the constructor's arguments by name, and "training.binarise".
        """

    def training_defaults(self, n_rows: int, batch_size: int | None) -> dict[str, Any]:
        """Defaults for steps, batch_size and learning_rate where they are None, if they differ from `Training`'s."""
        return {}

    def sizes(self) -> dict[str, int]:
        """Sizes of these data that networks and likelihood need, beside `width`."""
        return {}

    def stats(self, X: Any) -> Stats | None:
        """Statistics by which scaling and likelihood are chosen and checked; None if there is nothing to choose."""
        return None

    def read(self, est: BaseEstimator, X: Any, *, reset: bool) -> Any:
        """X as checked rows, (n, width). With `reset`, in `fit`, the width and so on are learned from X.

        The number of columns and their names are set on `est`, as scikit-learn does.
        """
        raise NotImplementedError

    def as_rows(self, x: Any) -> Any:
        """A single row, such as X[0], as an X of one row."""
        raise NotImplementedError

    def block_size(self, device: torch.device, draws: int = 1) -> int:
        """Rows per block for encoding, or for scoring with `draws` per row.

        It does not depend on the number of rows: matrix products of other shapes round differently.
        """
        return BLOCK

    def lay_out(self, X: Any, device: torch.device) -> Rows:
        """Checked rows placed for training."""
        return place(X, device, resident=True)

    def group_by_width(self, X: Any) -> tuple[list[Any], Array | None]:
        """Rows in groups of one width, and the position of each row of X in the concatenated groups; None: the same."""
        return [X], None

    def to_user(self, values: Tensor) -> Any:
        """Decoded values, (B, width), in X's own form and units."""
        raise NotImplementedError

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """Concatenate results of `to_user`; no parts give no rows."""
        raise NotImplementedError

    def errors(self, x: Tensor, decoded: Iterable[Distribution]) -> Tensor:
        """Reconstruction errors of rows x, (B, D), under p(x|z) of several codes, (numbers, B); rows are summed."""
        raise NotImplementedError

    def summarise(
        self, errors: Array, rows: int, blocks: Pairs, score: float, nll: float, caps: Sequence[int]
    ) -> dict[str, Any]:
        """Entries of `evaluate`, from summed `errors`, the rows in blocks, and the means of score and -log p(x|z)."""
        raise NotImplementedError

    def in_force(self) -> dict[str, Any]:
        """Settings of the estimator that depend on the kind of data, resolved for these data."""
        raise NotImplementedError

    def signature(self) -> dict[str, Any]:
        """The part of a run's signature that depends on the data."""
        raise NotImplementedError

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and plain values, to store."""
        raise NotImplementedError

    def check_restored(self) -> None:
        """Refuse stored numbers that no data can lead to."""
