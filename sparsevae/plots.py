"""Pictures of a fitted model: `view` looks at rows of X, and each function turns a view into a matplotlib Figure.

    v = plots.view(est, X, image_shape=(8, 8))
    plots.codes(v).savefig("codes.png")

Rows are drawn as images where `image_shape` is given or the model has one, as columns of a heat map otherwise. Blue is
positive and orange negative in every picture. Figures are made without pyplot, so they need no display and
leave no state.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sparsevae import drawing, traversals
from sparsevae.architectures import image_hint
from sparsevae.estimator import SparseCoder
from sparsevae.metrics import arrays
from sparsevae.parameters import check_number
from sparsevae.texts import Texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = [
    "View",
    "activation_matrix",
    "code_usage",
    "codes",
    "features",
    "heat_map",
    "interpolation_strip",
    "overview",
]
__all__ += ["reconstructions", "training_curves", "traversal", "traversal_grid", "usage", "view"]

Array = np.ndarray[Any, Any]
AnyFigure = TypeVar("AnyFigure", bound="Figure | SubFigure")

POSITIVE, NEGATIVE, INK, FAINT, PALE = "#0072B2", "#D55E00", "#22303c", "#71808e", "#c9d1d9"
MAX_ROWS = 2000  # rows a picture is computed from: usage is then known to about 1 %
_LOG = logging.getLogger(__name__)
MAX_FEATURES = 24  # names that can be read beside a heat map
_LEFT = 0.1  # inches from a sheet's edge to its headings
TWO_SIDED = 0.1  # a unit goes both ways when its rarer sign has this share of its uses


@dataclass(frozen=True)
class View:
    """Rows of X with their codes and reconstructions, and how to draw a row.

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
        """Whether units can be off."""
        return self.est._sparse()

    @cached_property
    def whole(self) -> bool:
        """Whether codes are whole numbers: bits or counts."""
        return self.est._largest() is not None

    def describe(self, unit: int) -> str:
        """How much a unit is used: how often it is on, or how far a dense code's value spreads."""
        return f"on in {self.usage[unit]:.0%}" if self.sparse else f"spread {self.codes[:, unit].std():.2f}"

    def units(self, n: int) -> list[int]:
        """The n units most often on; where all are equally so (dense codes), those that vary most."""
        order = np.lexsort((-self.codes.std(0), -self.usage))
        return [int(unit) for unit in order[:n] if self.usage[unit] > 0]

    def items(self, n: int) -> list[int]:
        """At most n rows, evenly over the labels and, within a label, from well to badly reconstructed ones."""
        labels = np.zeros(len(self.rows)) if self.labels is None else self.labels
        values = np.unique(labels)
        values = values[np.linspace(0, len(values) - 1, min(n, len(values))).round().astype(int)]
        order = np.argsort(np.square(self.rows - self.decoded).mean(1), kind="stable")
        chosen = []
        for value in values:
            own = order[labels[order] == value]
            chosen += [int(part[len(part) // 2]) for part in np.array_split(own, min(n // len(values), len(own)))]
        return chosen

    def draw(self, ax: Axes, row: Array, *, change: float | None = None) -> None:
        """One row as an image or a column; or the difference of two rows, where `change` has the deepest colour."""
        from matplotlib.colors import LinearSegmentedColormap

        diverging = LinearSegmentedColormap.from_list("change", [NEGATIVE, "#ffffff", POSITIVE])
        _frame(ax)
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
        """What a unit adds, (D,), and the rows that use it with its usual sign, strongest first.

        The mean over those rows of decode(code) - decode(code without the unit); for a table in each feature's
        standard deviations.
        """
        on = np.flatnonzero(self.codes[:, unit])
        usual = np.sign(np.median(np.sign(self.codes[on, unit])) or 1)
        on = on[np.sign(self.codes[on, unit]) == usual]
        without = self.codes[on].copy()
        without[:, unit] = 0
        added: Array = (self.decoded[on] - self.est.inverse_transform(without)).mean(0)
        strongest = on[np.argsort(-np.abs(self.codes[on, unit]), kind="stable")]
        return added / (1 if self.image_shape else self.deviation), strongest

    def name_features(self, ax: Axes) -> None:
        """Feature names on the left of a column of values; nothing for images."""
        if self.image_shape is None:
            names = [self.names[c] for c in self.columns]
            ax.set_yticks(range(len(names)), names, fontsize=7, color=FAINT, parse_math=False)
            ax.tick_params(left=False)

    def cell(self, height: float) -> tuple[float, float]:
        """Width and height in inches that suit one drawn row."""
        if self.image_shape is None:
            return 0.5, max(1.1, 0.15 * min(MAX_FEATURES, self.rows.shape[1]))
        return height * self.image_shape[1] / self.image_shape[0], height

    def margin(self) -> float:
        """Inches for the feature names."""
        return 0.0 if self.image_shape else 0.3 + 0.075 * max(len(self.names[c]) for c in self.columns)

    @cached_property
    def deviation(self) -> Array:
        """Standard deviation of each feature, 1 where it is constant, (D,)."""
        deviation = self.rows.std(0)
        return np.where(deviation > 0, deviation, 1.0)

    @cached_property
    def columns(self) -> Array:
        """The features to draw: all, or those of whose variance reconstructions explain most; constant ones last."""
        unexplained = ((self.rows - self.decoded) ** 2).mean(0) / self.deviation**2
        unexplained[self.rows.std(0) == 0] = np.inf
        return np.sort(np.argsort(unexplained, kind="stable")[:MAX_FEATURES])

    @cached_property
    def greys(self) -> dict[str, Any]:
        """One scale for all images; those on a dark ground (most values at the low end) are drawn as ink on paper."""
        low, high, middle = (float(q) for q in np.quantile(self.rows, (0, 1, 0.5)))
        return {"cmap": "gray_r" if middle < low + (high - low) / 3 else "gray", "vmin": low, "vmax": high}


def view(est: SparseCoder, X: Any, *, image_shape: Sequence[int] | None = None, labels: Any = None) -> View:
    """At most 2,000 evenly spaced rows of X, encoded and decoded. `image_shape` is the model's own when not given."""
    check_is_fitted(est)
    if isinstance(est.input_, Texts):
        raise ValueError(
            f"rows of numbers can be drawn, and this {type(est).__name__} was fitted on texts: sparsevae.report.report "
            "writes a page about them, sparsevae.top_words has the words of every unit."
        )
    checked = est._read(X, reset=False)
    n, d = checked.shape
    shape = picture_shape(est, image_shape)
    index = np.linspace(0, n - 1, min(n, MAX_ROWS)).round().astype(int)
    known = None if labels is None else arrays.labels(labels, n, "labels")[index]
    if shape is None and est.image_shape is None and (hint := image_hint(d)):
        _LOG.warning("rows of %d values are drawn as columns of a heat map%s", d, hint)  # seen where no log is set up
    picked = checked[index]
    rows = np.asarray(picked.toarray() if hasattr(picked, "toarray") else picked, dtype=np.float32)
    with torch.no_grad():
        blocks = [
            (est.scaling_.inverse(x)[:m], est._code(est.model_.encode(x), None)[:m]) for x, m in est._blocks(rows)
        ]
    seen, codes = (np.concatenate([part.cpu().numpy() for part in parts]) for parts in zip(*blocks, strict=True))
    names = getattr(est, "feature_names_in_", None)
    return View(
        est,
        rows=seen,
        codes=codes,
        decoded=est.inverse_transform(codes),
        labels=known if known is None or known.dtype.kind not in "OU" else np.array(_legible(known), dtype=object),
        image_shape=shape,
        names=_legible([f"x{k}" for k in range(d)] if names is None else map(str, names)),
    )


def _legible(labels: Iterable[Any]) -> list[Any]:
    """Labels as they can be drawn: without lone surrogates, which matplotlib refuses."""
    return [label.encode(errors="backslashreplace").decode() if isinstance(label, str) else label for label in labels]


def picture_shape(est: SparseCoder, given: Sequence[int] | None = None) -> tuple[int, ...] | None:
    """(H, W) or (H, W, 3) of a row as a picture: as given, or as the model has it; None where it is none."""
    shape = est.image_shape if given is None else given
    if shape is None:
        return None
    expected = f"(height, width) or (height, width, 3) of {est.n_features_in_} values"
    size = tuple(shape) if np.iterable(shape) else (shape,)
    for side in size:
        check_number("image_shape", side, expected, lambda n: n > 0, whole=True)
    size = tuple(int(side) for side in size)
    size = size[:2] if size[2:] == (1,) else size
    drawable = len(size) in (2, 3) and size[2:] in ((), (3,)) and math.prod(size) == est.n_features_in_
    if drawable or given is None:  # images of other channels are no mistake; they have no picture
        return size if drawable else None
    raise ValueError(f"image_shape must be {expected}; got {size}.")


# -- the pictures -----------------------------------------------------------------------------------------------


def reconstructions(v: View, n_items: int = 10) -> Figure:
    """Originals above their reconstructions: what is left of a row after passing through its code."""
    items = v.items(n_items)
    width, height = v.cell(0.85)
    figure = _figure(v.margin() + 1.0 + len(items) * (width + 0.12), 2 * height + 0.5)
    _draw_reconstructions(figure, v, items)
    return figure


def codes(v: View, n_items: int = 6) -> Figure:
    """A few items, their codes as bars over the units (a zero is no bar), and what the codes decode to."""
    items = v.items(n_items)
    figure = _figure(9.5, len(items) * v.cell(0.85)[1] + 0.7)
    _draw_codes(figure, v, items)
    return figure


def traversal(v: View, n_units: int = 8, n_values: int = 9) -> Figure:
    """What single units do: each line decodes one unit alone, from off to the strong end of its usual values."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = _figure(v.margin() + 1.2 + n_values * (width + 0.08), max(1, len(units)) * (height + 0.22) + 0.3)
    _draw_traversal(figure, v, units, n_values)
    return figure


def traversal_grid(v: View, item: int = 0, n_units: int = 6, values: Sequence[float] | None = None) -> Figure:
    """What the active units of one item do (VSC, figure 4): each line moves one, the rest of the code stays.

    The first picture of a line is the item's own reconstruction, marked with the unit's own value.
    """
    code = v.codes[item]
    units = traversals.active(code)[:n_units]
    width, height = v.cell(0.7)
    if not len(units):
        return _nothing(
            _figure(v.margin() + 1.2 + 10 * (width + 0.08), height + 0.52), "no unit is on in this row's code"
        )
    at = spaced(traversals.unit_values(v.est, units), 9) if values is None else np.asarray(values, dtype=np.float32)
    figure = _figure(v.margin() + 1.2 + (1 + len(at)) * (width + 0.08), len(units) * (height + 0.22) + 0.3)
    axes = figure.subplots(len(units), 1 + len(at), squeeze=False)
    for line, unit, codes in zip(axes, units, traversals.set_units(code, units, at), strict=True):
        rows = [v.decoded[item], *v.est.inverse_transform(codes)]
        for ax, row, value in zip(line, rows, (code[unit], *at), strict=True):
            v.draw(ax, row)
            ax.set_xlabel(_name_value(v, value), fontsize=7, color=FAINT, labelpad=1.5)
        line[0].xaxis.label.set(color=POSITIVE if code[unit] > 0 else NEGATIVE, fontweight="bold")
        _name_unit(line[0], unit, "")
        v.name_features(line[0])
    axes[0, 0].set_title("item", fontsize=9, color=INK)
    return figure


def interpolation_strip(v: View, a: int, b: int, *, steps: int = 8, mode: str = "mixed") -> Figure:
    """The walk from one item's code to another's (UAI, figure 7): frames, their codes, and what was switched."""
    frames, labels = traversals.walk(v.codes[a], v.codes[b], steps, mode, whole=v.whole)
    decoded = v.est.inverse_transform(frames)
    used = np.flatnonzero((frames != 0).any(0))
    width, height = v.cell(0.8)
    figure = _figure(v.margin() + 1.0 + len(frames) * (max(width, 0.65) + 0.1), 2 * height + 0.7)
    axes = figure.subplots(2, len(frames), squeeze=False)
    limit = 1.1 * np.abs(frames).max() or 1.0
    for top, bottom, row, code, label in zip(*axes, decoded, frames, labels, strict=True):
        v.draw(top, row)
        top.set_title(label, fontsize=7, color=INK)
        value = code[used]
        bottom.bar(np.arange(len(used)), value, color=np.where(value > 0, POSITIVE, NEGATIVE))
        bottom.axhline(0, color=PALE, linewidth=0.8, zorder=0)
        bottom.set(xlim=(-0.6, max(1, len(used)) - 0.4), ylim=(-limit, limit))
        bottom.axis("off")
    v.name_features(axes[0, 0])
    return figure


def activation_matrix(v: View) -> Figure:
    """Which class uses which units (UAI, figure 6): the share of its rows with the unit on. Needs labels.

    Units that no class uses are left out; the rest stand under the class that uses them most.
    """
    if v.labels is None:
        raise ValueError("an activation matrix needs classes: make the view with labels=y.")
    classes, share = traversals.class_shares(v.codes, v.labels, sparse=v.sparse)
    order = np.lexsort((-share.max(0), share.argmax(0)))
    order = order[share.max(0)[order] > 0]
    figure = _figure(9.5, 0.9 + 0.2 * len(classes))
    if not len(order):
        return _nothing(figure)
    from matplotlib.colors import LinearSegmentedColormap

    ax = figure.subplots()
    shades = LinearSegmentedColormap.from_list("share", ["#ffffff", POSITIVE])
    drawn = ax.imshow(100 * share[:, order], cmap=shades, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    _frame(ax)
    ax.set_yticks(range(len(classes)), [str(c) for c in classes], fontsize=8, color=INK, parse_math=False)
    if len(order) <= 60:
        ax.set_xticks(range(len(order)), [str(unit) for unit in order], fontsize=6, color=FAINT, rotation=90)
    ax.tick_params(length=0)
    ax.set_xlabel(f"units that some class uses, {len(order)} of {share.shape[1]}", fontsize=8, color=FAINT)
    bar = figure.colorbar(drawn, ax=ax, shrink=0.8, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
    bar.set_label("on in % of its rows" if v.sparse else "strong in % of its rows", fontsize=8, color=FAINT)
    return figure


def heat_map(
    ax: Axes,
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    label: str = "",
    dark: str = "high",
    limits: tuple[float, float] | None = None,
) -> None:
    """A matrix (len(rows), m) in shades of blue on `ax`, with a bar: dark is high, or low with dark="low".

    Columns without names are numbered, and called units. `limits` are the values of the lightest and darkest shade, in
    rising order; None takes the least and greatest value.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ends = ["#ffffff", POSITIVE] if dark == "high" else [POSITIVE, "#ffffff"]
    shades = LinearSegmentedColormap.from_list("shades", ends)
    values = np.asarray(values)
    low, high = (values.min(), values.max()) if limits is None else limits
    drawn = ax.imshow(values, cmap=shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    _frame(ax)
    ax.set_yticks(range(len(rows)), _legible(rows), fontsize=7, color=INK, parse_math=False)
    if columns is not None:
        ax.set_xticks(range(len(columns)), _legible(columns), fontsize=7, color=INK, rotation=90, parse_math=False)
    elif values.shape[1] <= 60:
        ax.set_xticks(range(values.shape[1]), [str(j) for j in range(values.shape[1])], fontsize=6, color=FAINT)
        ax.tick_params(axis="x", rotation=90)
    ax.tick_params(length=0)
    ax.set_xlabel("units" if columns is None else "", fontsize=8, color=FAINT)
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
    bar.set_label(label, fontsize=8, color=FAINT)


def features(v: View, n_units: int = 8, n_examples: int = 7) -> Figure:
    """What each unit adds: decode(code) - decode(code without it), averaged where it is on; and its top items."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = _figure(v.margin() + 3.2 + (1 + n_examples) * (width + 0.1), max(1, len(units)) * (height + 0.12) + 0.4)
    _draw_features(figure, v, units, n_examples)
    return figure


def usage(v: View) -> Figure:
    """How often each unit is on, most used first; and how many units a row has on."""
    return code_usage(v.codes)


def code_usage(codes: Array) -> Figure:
    """`usage` of codes alone, (n, J)."""
    figure = _figure(9.5, 2.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    share = 100 * np.sort((codes != 0).mean(0))[::-1]
    left.bar(np.arange(1, len(share) + 1)[share > 0], share[share > 0], width=0.85, color=POSITIVE)
    _calm(left, "units, most used first", "on in % of rows")
    left.set_xlim(0.3, len(share) + 0.7)
    left.set_ylim(0, max(1.0, 1.1 * share.max()))
    if never := int((share == 0).sum()):
        note = left.text(0.98, 0.92, f"{never} of {len(share)} never on", transform=left.transAxes)
        note.set(ha="right", color=FAINT, fontsize=9)
    counts = (codes != 0).sum(1)
    values, rows = np.unique(counts, return_counts=True)
    right.bar(values, 100 * rows / len(counts), width=0.85, color=POSITIVE)
    right.axvline(counts.mean(), color=INK, linewidth=1, linestyle="--")
    right.set_ylim(0, 120 * rows.max() / len(counts))
    right.annotate(f" mean {counts.mean():.1f}", (counts.mean(), 0.92), xycoords=("data", "axes fraction"), fontsize=9)
    _calm(right, f"units on in a row, of {codes.shape[1]}", "% of rows")
    right.set_xlim(-0.6, counts.max() + 0.6)
    right.xaxis.set_major_locator(_ticks(9))
    return figure


def training_curves(est: SparseCoder) -> Figure:
    """The course of every quantity in `history_`, a panel each; the first few reports may lie outside."""
    steps = est.history_.column("step")
    wanted = {"loss": "training objective, nats", "validation_loss": "validation objective, nats"}
    wanted |= {k: f"{k}, nats" for row in est.history_[:1] for k in row if k.startswith(("nll_", "kl_"))}
    wanted |= {"nonzeros": "non-zeros per row", "active_units": "active units"}
    shown = {k: text for k, text in wanted.items() if any(v is not None for v in est.history_.column(k))}
    figure = _figure(9.5, 1.9)
    for ax, (name, text) in zip(np.ravel(figure.subplots(1, max(1, len(shown)))), shown.items(), strict=False):
        values = np.array([np.nan if v is None else v for v in est.history_.column(name)], dtype=float)
        values[np.isinf(values)] = np.nan
        ax.plot(steps, values, color=POSITIVE, linewidth=1.3)
        late = values[len(values) // 20 :]
        low, high = np.nanmin(late, initial=np.inf), np.nanmax(late, initial=-np.inf)
        if low <= high:  # some report is finite
            ax.set_ylim(low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1))
        _calm(ax, "step", "")
        ax.set_title(text, fontsize=8, color=INK, loc="left")
        ax.xaxis.set_major_locator(_ticks(3))
    return figure


def overview(v: View, title: str = "") -> Figure:
    """Reconstructions, codes and a traversal on one sheet, for images."""
    figure = _figure(11.0, 7.6)
    if title:
        figure.suptitle(title, fontsize=15, color=INK, x=_LEFT / 11, ha="left", parse_math=False)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 2.7))
    top, (left, right) = parts[0], parts[1].subfigures(1, 2, width_ratios=(1.2, 1), wspace=0.02)
    _head(top, 11, "Images, and what their codes decode to")
    _draw_reconstructions(top, v, v.items(10))
    _head(left, 6, "A code: a few bars, one a unit; every other unit is exactly zero")
    _draw_codes(left, v, v.items(5))
    _head(right, 5, "What a unit means: that unit alone, from off to strong")
    _draw_traversal(right, v, v.units(6), 7)
    return figure


# -- their parts ------------------------------------------------------------------------------------------------


def _draw_reconstructions(figure: Figure | SubFigure, v: View, items: list[int]) -> None:
    axes = figure.subplots(2, len(items), squeeze=False)
    for column, item in enumerate(items):
        v.draw(axes[0, column], v.rows[item])
        v.draw(axes[1, column], v.decoded[item])
        if v.labels is not None:
            axes[0, column].set_title(str(v.labels[item]), fontsize=8, color=FAINT, parse_math=False)
    for ax, text in zip(axes[:, 0], ("original", "decoded"), strict=True):
        ax.set_ylabel(text, fontsize=9, color=INK, rotation=0, ha="right", va="center", labelpad=8)
        v.name_features(ax)


def _draw_codes(figure: Figure | SubFigure, v: View, items: list[int]) -> None:
    width = v.cell(0.85)[0]
    axes = figure.subplots(len(items), 3, squeeze=False, width_ratios=(width, 6, width))
    limit = 1.3 * np.abs(v.codes[items]).max() or 1.0
    for (image, bars, decoded), item in zip(axes, items, strict=True):
        v.draw(image, v.rows[item])
        v.name_features(image)
        v.draw(decoded, v.decoded[item])
        draw_code(bars, v.codes[item], limit)
    axes[-1, 1].tick_params(labelbottom=True)
    axes[-1, 1].set_xlabel("unit", fontsize=8, color=FAINT)
    for ax, text in zip(axes[0, ::2], ("item", "decoded"), strict=True):
        ax.set_title(text, fontsize=9, color=INK)


def draw_code(ax: Axes, code: Array, limit: float) -> None:
    """One code as bars over its units: nothing at all where it is zero, the unit's number where bars are few."""
    on = np.flatnonzero(code)
    colours = [POSITIVE if value > 0 else NEGATIVE for value in code[on]]
    ax.bar(on, code[on], width=max(0.8, len(code) / 90), color=colours)
    ax.hlines(0, -0.5, len(code) - 0.5, color=PALE, linewidth=0.8, zorder=0)
    if len(on) <= 12:
        for unit in on:
            side = 1 if code[unit] > 0 else -1
            style: dict[str, Any] = {"fontsize": 7, "color": INK, "ha": "center", "va": "bottom" if side > 0 else "top"}
            ax.annotate(str(unit), (unit, code[unit]), (0, side), textcoords="offset points", **style)
    ax.text(1.19 * len(code), 0, f"{len(on)} of {len(code)}\nunits on", ha="right", va="center", fontsize=8, color=INK)
    ax.set_xlim(-1, 1.19 * len(code))
    ax.set_xticks([t for t in _ticks(7).tick_values(0, len(code) - 1) if 0 <= t < len(code)])
    ax.set_ylim(-limit, limit)
    _calm(ax, "", "")
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)


def sweep(codes: Array, n: int, *, whole: bool = False) -> Array:
    """Values to walk one unit through, from its non-zero values: 0 to the strong end, or end to end through 0.

    n of them, or of bits and counts (`whole`) all whole numbers up to there, n at most.
    """
    on = codes[codes != 0]
    low, high = (float(q) for q in np.quantile(on, (0.05, 0.95))) if len(on) else (0.0, 0.0)
    if whole:
        return spaced(np.arange(round(high) + 1), n)
    if TWO_SIDED <= (on > 0).mean() <= 1 - TWO_SIDED:
        half = n // 2
        return np.concatenate([np.linspace(low, 0, half + 1), np.linspace(0, high, n - half)[1:]])
    return np.linspace(0, high if (on > 0).mean() > 0.5 else low, n)


def spaced(values: Array, n: int) -> Array:
    """At most n of some values, evenly spaced, the first and the last among them."""
    chosen: Array = values[np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))]
    return chosen


def _draw_traversal(figure: Figure | SubFigure, v: View, units: list[int], n_values: int) -> None:
    if not units:
        _nothing(figure)
        return
    axes = figure.subplots(len(units), n_values, squeeze=False)
    for line, unit in zip(axes, units, strict=True):
        values = sweep(v.codes[:, unit], n_values, whole=v.whole)
        walk = np.zeros((len(values), v.codes.shape[1]), dtype=np.float32)
        walk[:, unit] = values
        for ax in line[len(values) :]:
            ax.set_visible(False)
        for ax, row, value in zip(line, v.est.inverse_transform(walk), walk[:, unit], strict=False):
            v.draw(ax, row)
            ax.set_xlabel(_name_value(v, value), fontsize=7, color=FAINT, labelpad=1.5)
        _name_unit(line[0], unit, v.describe(unit))
        v.name_features(line[0])


def _draw_features(figure: Figure | SubFigure, v: View, units: list[int], n_examples: int) -> None:
    if not units:
        _nothing(figure)
        return
    width = v.cell(0.7)[0]
    ratios = [*[width] * (1 + n_examples), 2.0]
    axes = figure.subplots(len(units), 2 + n_examples, squeeze=False, width_ratios=ratios)
    changes = [v.change(unit) for unit in units]
    deepest = 0.9 * max(float(np.abs(added).max()) for added, _ in changes) or 1.0
    for line, unit, (added, strongest) in zip(axes, units, changes, strict=True):
        v.draw(line[0], added, change=deepest)
        v.name_features(line[0])
        _name_unit(line[0], unit, "")
        for ax, item in zip(line[1:-1], strongest, strict=False):
            v.draw(ax, v.rows[item])
        for ax in line[1 + len(strongest) : -1]:
            ax.set_visible(False)
        line[-1].axis("off")
        told = line[-1].text(0.03, 0.5, _tell(v, unit), va="center", transform=line[-1].transAxes)
        told.set(fontsize=9, color=INK, parse_math=False)
    axes[0, 0].set_title("adds", fontsize=9, color=INK)
    text = axes[0, 1].annotate("items in which it is strongest", (0, 1), (0, 4), "axes fraction", "offset points")
    text.set(fontsize=9, color=INK, in_layout=False)


def _tell(v: View, unit: int) -> str:
    """How much a unit is used and, where labels are known, by whom."""
    lines = [f"{v.describe(unit)} of rows" if v.sparse else v.describe(unit)]
    if v.labels is not None and v.sparse:
        values, counts = np.unique(v.labels[v.codes[:, unit] != 0], return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        lines.append(", ".join(f"{values[k]}: {counts[k] / counts.sum():.0%}" for k in best))
    return "\n".join(lines)


def _name_value(v: View, value: float) -> str:
    return "off" if value == 0 and v.sparse else f"{value:.0f}" if v.whole else f"{value:.1f}"


def _name_unit(ax: Axes, unit: int, more: str) -> None:
    text = f"unit {unit}\n{more}" if more else f"unit {unit}"
    ax.set_ylabel(text, fontsize=8, color=INK, rotation=0, ha="right", va="center", labelpad=8)


def _nothing(figure: AnyFigure, text: str = "no unit is on in any of these rows") -> AnyFigure:
    figure.text(0.5, 0.5, text, ha="center", color=FAINT)
    return figure


def _head(figure: SubFigure, width: float, text: str) -> None:
    figure.suptitle(text, fontsize=11, color=INK, x=_LEFT / width, ha="left")


def _figure(width: float, height: float) -> Figure:
    drawing.prepare()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05), facecolor="white")


def _ticks(n: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(n, integer=True)


def _frame(ax: Axes) -> None:
    """No ticks, a thin pale frame."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(color=PALE, linewidth=0.6)


def _calm(ax: Axes, x: str, y: str) -> None:
    """Two pale axes and small grey labels."""
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=PALE)
    ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
    ax.set_xlabel(x, fontsize=8, color=FAINT)
    ax.set_ylabel(y, fontsize=8, color=FAINT)
