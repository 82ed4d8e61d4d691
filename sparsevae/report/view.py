"""View: rows of X with their codes and reconstructions, and how a row is drawn."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sparsevae.checks import In
from sparsevae.estimator.coder import SparseCoder
from sparsevae.metrics import arrays
from sparsevae.networks.architectures import image_hint
from sparsevae.report.style import FAINT, NEGATIVE, POSITIVE, Array, legible, spaced, thin_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 2000  # most rows of a view: the standard error of a unit's usage is then about 1 %
MAX_FEATURES = 24  # most features of a heat map, so that their names can be read
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class View:
    """Rows of X with their codes and reconstructions, and how a row is drawn.

    `rows` and `decoded` are (N, D), in X's own units (of normalised rows for scale="unit-norm"), `codes` is (N, J).
    """

    est: SparseCoder
    rows: Array
    codes: Array
    decoded: Array
    labels: Array | None
    image_shape: tuple[int, ...] | None
    names: list[str]

    @cached_property
    def usage(self) -> Array:
        """Share of rows in which each unit is on, (J,)."""
        share: Array = (self.codes != 0).mean(0)
        return share

    @cached_property
    def sparse(self) -> bool:
        """True if codes have exact zeros."""
        return self.est.fitted_.sparse

    @cached_property
    def whole(self) -> bool:
        """True if codes are whole numbers: bits or counts."""
        return self.est.fitted_.largest is not None

    def describe(self, unit: int) -> str:
        """The share of rows in which a unit is on, or in a dense code the standard deviation of its values."""
        return f"on in {self.usage[unit]:.0%}" if self.sparse else f"spread {self.codes[:, unit].std():.2f}"

    def units(self, n: int) -> list[int]:
        """The n units most often on; ties, such as all units of a dense code, by falling standard deviation."""
        order = np.lexsort((-self.codes.std(0), -self.usage))
        return [int(unit) for unit in order[:n] if self.usage[unit] > 0]

    def items(self, n: int) -> list[int]:
        """At most n rows, evenly over the labels and, within a label, over the quantiles of the squared error."""
        labels = np.zeros(len(self.rows)) if self.labels is None else self.labels
        values = spaced(np.unique(labels), n)
        order = np.argsort(np.square(self.rows - self.decoded).mean(1), kind="stable")
        chosen = []
        for value in values:
            own = order[labels[order] == value]
            chosen += [int(part[len(part) // 2]) for part in np.array_split(own, min(n // len(values), len(own)))]
        return chosen

    def draw(self, ax: Axes, row: Array, *, change: float | None = None) -> None:
        """Draw a row (D,) as an image or a column; with `change`, a difference of rows, scale +-change."""
        from matplotlib.colors import LinearSegmentedColormap

        diverging = LinearSegmentedColormap.from_list("change", [NEGATIVE, "#ffffff", POSITIVE])
        thin_frame(ax)
        if self.image_shape is None:
            value = row if change else (row - self.rows.mean(0)) / self.deviation
            limit = change or 2.5
            column = value[self.columns][:, None]
            ax.imshow(column, cmap=diverging, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
            return
        image = row.reshape(self.image_shape)
        if change:
            grey = image.mean(-1) if image.ndim == 3 else image
            ax.imshow(grey, cmap=diverging, vmin=-change, vmax=change, interpolation="nearest")
        elif image.ndim == 3:
            low, high = self.greys["vmin"], self.greys["vmax"]
            ax.imshow(((image - low) / (high - low or 1)).clip(0, 1), interpolation="nearest")
        else:
            ax.imshow(image, interpolation="nearest", **self.greys)

    def change(self, unit: int) -> tuple[Array, Array]:
        """The mean of decode(code) - decode(code without the unit), (D,), and the rows in it, largest value first.

        The rows are those that use the unit with its commoner sign. Unless rows are images, the mean is divided by the
        standard deviation of each feature.
        """
        on = np.flatnonzero(self.codes[:, unit])
        common = np.sign(np.median(np.sign(self.codes[on, unit])) or 1)
        on = on[np.sign(self.codes[on, unit]) == common]
        without = self.codes[on].copy()
        without[:, unit] = 0
        added: Array = (self.decoded[on] - self.est.inverse_transform(without)).mean(0)
        strongest = on[np.argsort(-np.abs(self.codes[on, unit]), kind="stable")]
        return added / (1 if self.image_shape else self.deviation), strongest

    def name_features(self, ax: Axes) -> None:
        """Write feature names to the left of a column of values; for images do nothing."""
        if self.image_shape is None:
            names = [self.names[c] for c in self.columns]
            ax.set_yticks(range(len(names)), names, fontsize=7, color=FAINT, parse_math=False)
            ax.tick_params(left=False)

    def cell(self, height: float) -> tuple[float, float]:
        """Width and height of one drawn row in inches; `height` is that of an image."""
        if self.image_shape is None:
            return 0.5, max(1.1, 0.15 * min(MAX_FEATURES, self.rows.shape[1]))
        return height * self.image_shape[1] / self.image_shape[0], height

    def margin(self) -> float:
        """Width of the feature names in inches."""
        return 0.0 if self.image_shape else 0.3 + 0.075 * max(len(self.names[c]) for c in self.columns)

    @cached_property
    def deviation(self) -> Array:
        """Standard deviation of each feature, 1 where it is constant, (D,)."""
        deviation = self.rows.std(0)
        return np.where(deviation > 0, deviation, 1.0)

    @cached_property
    def columns(self) -> Array:
        """The features to draw: the `MAX_FEATURES` with the largest share of explained variance; constant ones last."""
        unexplained = ((self.rows - self.decoded) ** 2).mean(0) / self.deviation**2
        unexplained[self.rows.std(0) == 0] = np.inf
        return np.sort(np.argsort(unexplained, kind="stable")[:MAX_FEATURES])

    @cached_property
    def greys(self) -> dict[str, Any]:
        """Colour map and scale of all images; images with a dark background (a low median) are drawn inverted."""
        low, high, middle = (float(q) for q in np.quantile(self.rows, (0, 1, 0.5)))
        return {"cmap": "gray_r" if middle < low + (high - low) / 3 else "gray", "vmin": low, "vmax": high}


def make_view(est: SparseCoder, X: Any, *, image_shape: Sequence[int] | None = None, labels: Any = None) -> View:
    """A view of at most 2,000 evenly spaced rows of X. Default of `image_shape`: the model's own."""
    check_is_fitted(est)
    if est.input_.kind == "texts":
        raise ValueError(
            f"rows of numbers can be drawn, and this {type(est).__name__} was fitted on texts: "
            "sparsevae.report.page.report writes a page about texts, sparsevae.top_words returns the words of units."
        )
    checked = est.fitted_.rows(X)
    n, d = checked.shape
    shape = picture_shape(est, image_shape)
    index = spaced(np.arange(n), MAX_ROWS)
    known = None if labels is None else arrays.labels(labels, n, "labels")[index]
    if shape is None and est.image_shape is None and (hint := image_hint(d)):
        _LOG.warning(
            "rows of %d values are drawn as columns of a heat map%s", d, hint
        )  # shown without any logging setup
    picked = checked[index]
    rows = np.asarray(picked.toarray() if hasattr(picked, "toarray") else picked, dtype=np.float32)
    with torch.no_grad():
        found = est.fitted_.blocks(rows).map(
            lambda x: {"rows": est.scaling_.inverse(x), "codes": est.fitted_.code(est.model_.encode(x))}
        )
    names = getattr(est, "feature_names_in_", None)
    return View(
        est,
        **found,
        decoded=est.inverse_transform(found["codes"]),
        labels=known if known is None or known.dtype.kind not in "OU" else np.array(legible(known), dtype=object),
        image_shape=shape,
        names=legible([f"x{k}" for k in range(d)] if names is None else map(str, names)),
    )


def picture_shape(est: SparseCoder, given: Sequence[int] | None = None) -> tuple[int, ...] | None:
    """(H, W) or (H, W, 3) of a row drawn as an image: as given, else the model's own; None if neither can be drawn."""
    shape = est.image_shape if given is None else given
    if shape is None:
        return None
    expected = f"(height, width) or (height, width, 3) of {est.n_features_in_} values"
    size = tuple(shape) if np.iterable(shape) else (shape,)
    for side in size:
        In(1).check("image_shape", side, expected, whole=True)
    size = tuple(int(side) for side in size)
    size = size[:2] if size[2:] == (1,) else size
    drawable = len(size) in (2, 3) and size[2:] in ((), (3,)) and math.prod(size) == est.n_features_in_
    if drawable or given is None:  # a model's images may have another number of channels, which is no error
        return size if drawable else None
    raise ValueError(f"image_shape must be {expected}; got {size}.")
