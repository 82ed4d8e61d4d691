"""Pictures of a fitted model: each function turns a `View` of rows of X into a matplotlib Figure.

    v = make_view(est, X, image_shape=(8, 8))
    figures.codes(v).savefig("codes.png")

Rows are drawn as images where `image_shape` is given or the model has one, otherwise as columns of a heat map. Blue is
positive and orange negative in every picture. Figures are made without pyplot: they need no display and change no
global state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsevae.analysis import traversals
from sparsevae.estimator.coder import SparseCoder
from sparsevae.report.style import (
    FAINT,
    INK,
    LEFT,
    NEGATIVE,
    PALE,
    POSITIVE,
    AnyFigure,
    Array,
    calm,
    heading,
    heat_map,
    new_figure,
    nothing,
    row_label,
    spaced,
    whole_ticks,
)
from sparsevae.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TWO_SIDED = 0.1  # a unit counts as used with both signs if the rarer sign has this share of its non-zero values


def reconstructions(v: View, n_items: int = 10) -> Figure:
    """Rows above their reconstructions from their codes."""
    items = v.items(n_items)
    width, height = v.cell(0.85)
    return draw_reconstructions(new_figure(v.margin() + 1.0 + len(items) * (width + 0.12), 2 * height + 0.5), v, items)


def codes(v: View, n_items: int = 6) -> Figure:
    """A few rows, their codes as bars over the units (no bar for a zero), and the decoded codes."""
    items = v.items(n_items)
    return draw_codes(new_figure(9.5, len(items) * v.cell(0.85)[1] + 0.7), v, items)


def traversal(v: View, n_units: int = 8, n_values: int = 9) -> Figure:
    """Effect of single units: each line decodes codes with one non-zero unit, at the values that `sweep` returns."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = new_figure(v.margin() + 1.2 + n_values * (width + 0.08), max(1, len(units)) * (height + 0.22) + 0.3)
    return draw_traversal(figure, v, units, n_values)


def traversal_grid(v: View, item: int = 0, n_units: int = 6, values: Sequence[float] | None = None) -> Figure:
    """Effect of the active units of one row (VSC, figure 4): each line changes one unit and keeps the rest of the code.

    The first picture of a line is the reconstruction of the row itself, labelled with the unit's value in its code.
    """
    code = v.codes[item]
    units = traversals.active(code)[:n_units]
    width, height = v.cell(0.7)
    if not len(units):
        return nothing(
            new_figure(v.margin() + 1.2 + 10 * (width + 0.08), height + 0.52), "no unit is on in this row's code"
        )
    at = spaced(traversals.unit_values(v.est, units), 9) if values is None else np.asarray(values, dtype=np.float32)
    figure = new_figure(v.margin() + 1.2 + (1 + len(at)) * (width + 0.08), len(units) * (height + 0.22) + 0.3)
    axes = figure.subplots(len(units), 1 + len(at), squeeze=False)
    for line, unit, codes in zip(axes, units, traversals.set_units(code, units, at), strict=True):
        _draw_line(v, line, unit, [v.decoded[item], *v.est.inverse_transform(codes)], (code[unit], *at))
        line[0].xaxis.label.set(color=POSITIVE if code[unit] > 0 else NEGATIVE, fontweight="bold")
    axes[0, 0].set_title("item", fontsize=9, color=INK)
    return figure


def interpolation_strip(v: View, a: int, b: int, *, steps: int = 8, mode: str = "mixed") -> Figure:
    """The walk from one row's code to another's (UAI, figure 7): decoded frames, codes, and switched units.

    Bars have the numbers of their units if at most 8 units are on in any frame.
    """
    frames, labels = traversals.walk(v.codes[a], v.codes[b], steps, mode, whole=v.whole)
    decoded = v.est.inverse_transform(frames)
    used = np.flatnonzero((frames != 0).any(0))
    width, height = v.cell(0.8)
    figure = new_figure(v.margin() + 1.0 + len(frames) * (max(width, 0.65) + 0.1), 2 * height + 0.7)
    axes = figure.subplots(2, len(frames), squeeze=False)
    limit = 1.1 * np.abs(frames).max() or 1.0
    for top, bottom, row, code, label in zip(*axes, decoded, frames, labels, strict=True):
        v.draw(top, row)
        top.set_title(label, fontsize=7, color=INK)
        value = code[used]
        bottom.bar(np.arange(len(used)), value, color=np.where(value > 0, POSITIVE, NEGATIVE))
        for at in np.flatnonzero(value).tolist() if len(used) <= 8 else ():
            number_bar(bottom, at, float(value[at]), int(used[at]))
        bottom.axhline(0, color=PALE, linewidth=0.8, zorder=0)
        bottom.set(xlim=(-0.6, max(1, len(used)) - 0.4), ylim=(-1.2 * limit, 1.2 * limit))
        bottom.axis("off")
    v.name_features(axes[0, 0])
    return figure


def activation_matrix(v: View) -> Figure:
    """Share of the rows of each class in which each unit is on (UAI, figure 6). Needs labels.

    Units that are off in all rows are left out; the others are grouped by the class that uses them most.
    """
    if v.labels is None:
        raise ValueError("an activation matrix needs classes: make the view with labels=y.")
    classes, share = traversals.class_shares(v.codes, v.labels, sparse=v.sparse)
    order = np.lexsort((-share.max(0), share.argmax(0)))
    order = order[share.max(0)[order] > 0]
    figure = new_figure(9.5, 0.9 + 0.2 * len(classes))
    if not len(order):
        return nothing(figure)
    ax = figure.subplots()
    units = [str(unit) for unit in order] if len(order) <= 60 else []
    label = "on in % of its rows" if v.sparse else "strong in % of its rows"
    heat_map(ax, 100 * share[:, order], [str(c) for c in classes], units, label=label, limits=(0, 100))
    ax.set_xlabel(f"units that some class uses, {len(order)} of {share.shape[1]}", fontsize=8, color=FAINT)
    return figure


def features(v: View, n_units: int = 8, n_examples: int = 7) -> Figure:
    """decode(code) - decode(code without the unit), averaged over rows, and the rows that use it most."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = new_figure(v.margin() + 3.2 + (1 + n_examples) * (width + 0.1), max(1, len(units)) * (height + 0.12) + 0.4)
    if not units:
        return nothing(figure)
    ratios = [*[width] * (1 + n_examples), 2.0]
    axes = figure.subplots(len(units), 2 + n_examples, squeeze=False, width_ratios=ratios)
    changes = [v.change(unit) for unit in units]
    deepest = 0.9 * max(float(np.abs(added).max()) for added, _ in changes) or 1.0
    for line, unit, (added, strongest) in zip(axes, units, changes, strict=True):
        v.draw(line[0], added, change=deepest)
        v.name_features(line[0])
        row_label(line[0], f"unit {unit}")
        for ax, item in zip(line[1:-1], strongest, strict=False):
            v.draw(ax, v.rows[item])
        for ax in line[1 + len(strongest) : -1]:
            ax.set_visible(False)
        line[-1].axis("off")
        use = line[-1].text(0.03, 0.5, _describe_unit(v, unit), va="center", transform=line[-1].transAxes)
        use.set(fontsize=9, color=INK, parse_math=False)
    axes[0, 0].set_title("adds", fontsize=9, color=INK)
    text = axes[0, 1].annotate("items in which it is strongest", (0, 1), (0, 4), "axes fraction", "offset points")
    text.set(fontsize=9, color=INK, in_layout=False)
    return figure


def usage(v: View) -> Figure:
    """Share of rows in which each unit is on, in falling order, and a histogram of the number of units on per row."""
    return code_usage(v.codes)


def code_usage(codes: Array) -> Figure:
    """`usage` of codes (n, J)."""
    figure = new_figure(9.5, 2.5)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    share = 100 * np.sort((codes != 0).mean(0))[::-1]
    left.bar(np.arange(1, len(share) + 1)[share > 0], share[share > 0], width=0.85, color=POSITIVE)
    calm(left, "units, most used first", "on in % of rows")
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
    calm(right, f"units on in a row, of {codes.shape[1]}", "% of rows")
    right.set_xlim(-0.6, counts.max() + 0.6)
    right.xaxis.set_major_locator(whole_ticks(9))
    return figure


def training_curves(est: SparseCoder) -> Figure:
    """Every quantity of `history_` against the step, one panel each; axes fit all but the first 5 % of the reports."""
    steps = est.history_.column("step")
    wanted = {"loss": "training objective, nats", "validation_loss": "validation objective, nats"}
    wanted |= {k: f"{k}, nats" for row in est.history_[:1] for k in row if k.startswith(("nll_", "kl_"))}
    wanted |= {"nonzeros": "non-zeros per row", "used": "used units", "active_units": "active units"}
    shown = {k: text for k, text in wanted.items() if any(v is not None for v in est.history_.column(k))}
    figure = new_figure(9.5, 1.9)
    for ax, (name, text) in zip(np.ravel(figure.subplots(1, max(1, len(shown)))), shown.items(), strict=False):
        values = np.array([np.nan if v is None else v for v in est.history_.column(name)], dtype=float)
        values[np.isinf(values)] = np.nan
        ax.plot(steps, values, color=POSITIVE, linewidth=1.3)
        late = values[len(values) // 20 :]
        low, high = np.nanmin(late, initial=np.inf), np.nanmax(late, initial=-np.inf)
        if low <= high:  # some report is finite
            ax.set_ylim(low - 0.05 * (high - low or 1), high + 0.05 * (high - low or 1))
        calm(ax, "step", "")
        ax.set_title(text, fontsize=8, color=INK, loc="left")
        ax.xaxis.set_major_locator(whole_ticks(3))
    return figure


def overview(v: View, title: str = "") -> Figure:
    """Reconstructions, codes and a traversal in one figure, for images."""
    figure = new_figure(11.0, 7.6)
    if title:
        figure.suptitle(title, fontsize=15, color=INK, x=LEFT / 11, ha="left", parse_math=False)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 2.7))
    top, (left, right) = parts[0], parts[1].subfigures(1, 2, width_ratios=(1.2, 1), wspace=0.02)
    heading(top, 11, "Images, and what their codes decode to")
    draw_reconstructions(top, v, v.items(10))
    heading(left, 6, "A code: one bar per unit that is on; every other unit is exactly zero")
    draw_codes(left, v, v.items(5))
    heading(right, 5, "What a unit means: that unit alone, from off to strong")
    draw_traversal(right, v, v.units(6), 7)
    return figure


def draw_reconstructions(figure: AnyFigure, v: View, items: list[int]) -> AnyFigure:
    """`reconstructions` of the given rows, in a figure of any size."""
    axes = figure.subplots(2, len(items), squeeze=False)
    for column, item in enumerate(items):
        v.draw(axes[0, column], v.rows[item])
        v.draw(axes[1, column], v.decoded[item])
        if v.labels is not None:
            axes[0, column].set_title(str(v.labels[item]), fontsize=8, color=FAINT, parse_math=False)
    for ax, text in zip(axes[:, 0], ("original", "decoded"), strict=True):
        row_label(ax, text, 9)
        v.name_features(ax)
    return figure


def draw_codes(figure: AnyFigure, v: View, items: list[int]) -> AnyFigure:
    """`codes` of the given rows, in a figure of any size."""
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
    return figure


def draw_code(ax: Axes, code: Array, limit: float) -> None:
    """One code (J,) as bars over its units: no bar for a zero, and unit numbers at the bars if at most 12 are on."""
    on = np.flatnonzero(code)
    colours = [POSITIVE if value > 0 else NEGATIVE for value in code[on]]
    ax.bar(on, code[on], width=max(0.8, len(code) / 90), color=colours)
    ax.hlines(0, -0.5, len(code) - 0.5, color=PALE, linewidth=0.8, zorder=0)
    if len(on) <= 12:
        for unit in on.tolist():
            number_bar(ax, unit, float(code[unit]), unit)
    ax.text(1.19 * len(code), 0, f"{len(on)} of {len(code)}\nunits on", ha="right", va="center", fontsize=8, color=INK)
    ax.set_xlim(-1, 1.19 * len(code))
    ax.set_xticks([t for t in whole_ticks(7).tick_values(0, len(code) - 1) if 0 <= t < len(code)])
    ax.set_ylim(-limit, limit)
    calm(ax, "", "")
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)


def number_bar(ax: Axes, at: int, value: float, unit: int) -> None:
    """The number of a unit at the end of its bar."""
    side = 1 if value > 0 else -1
    style: dict[str, Any] = {"fontsize": 7, "color": INK, "ha": "center", "va": "bottom" if side > 0 else "top"}
    ax.annotate(str(unit), (at, value), (0, side), textcoords="offset points", **style)


def sweep(codes: Array, n: int, *, whole: bool = False) -> Array:
    """Values of one unit to decode, from its codes (n_rows,): n values between 0 and a quantile of its non-zero values.

    The quantile is 95 % where most non-zero values are positive, else 5 %; a unit that uses both signs goes from the
    one, through 0, to the other. With `whole` (bits and counts): at most n whole numbers from 0 to the 95 % quantile.
    """
    on = codes[codes != 0]
    low, high = (float(q) for q in np.quantile(on, (0.05, 0.95))) if len(on) else (0.0, 0.0)
    if whole:
        return spaced(np.arange(round(high) + 1), n)
    if TWO_SIDED <= (on > 0).mean() <= 1 - TWO_SIDED:
        half = n // 2
        return np.concatenate([np.linspace(low, 0, half + 1), np.linspace(0, high, n - half)[1:]])
    return np.linspace(0, high if (on > 0).mean() > 0.5 else low, n)


def draw_traversal(figure: AnyFigure, v: View, units: list[int], n_values: int) -> AnyFigure:
    """`traversal` of the given units, in a figure of any size."""
    if not units:
        return nothing(figure)
    axes = figure.subplots(len(units), n_values, squeeze=False)
    for line, unit in zip(axes, units, strict=True):
        values = sweep(v.codes[:, unit], n_values, whole=v.whole)
        walk = np.zeros((len(values), v.codes.shape[1]), dtype=np.float32)
        walk[:, unit] = values
        for ax in line[len(values) :]:
            ax.set_visible(False)
        _draw_line(v, line, unit, v.est.inverse_transform(walk), walk[:, unit])
        line[0].yaxis.label.set_text(f"unit {unit}\n{v.describe(unit)}")
    return figure


def _draw_line(v: View, line: Sequence[Axes], unit: int, rows: Iterable[Array], values: Iterable[float]) -> None:
    """One line of a traversal: decoded rows, each above the unit's value in its code."""
    for ax, row, value in zip(line, rows, values, strict=False):
        v.draw(ax, row)
        name = "off" if value == 0 and v.sparse else f"{value:.0f}" if v.whole else f"{value:.1f}"
        ax.set_xlabel(name, fontsize=7, color=FAINT, labelpad=1.5)
    row_label(line[0], f"unit {unit}")
    v.name_features(line[0])


def _describe_unit(v: View, unit: int) -> str:
    """How often a unit is on and, with labels, the three commonest labels of the rows that use it."""
    lines = [f"{v.describe(unit)} of rows" if v.sparse else v.describe(unit)]
    if v.labels is not None and v.sparse:
        values, counts = np.unique(v.labels[v.codes[:, unit] != 0], return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        lines.append(", ".join(f"{values[k]}: {counts[k] / counts.sum():.0%}" for k in best))
    return "\n".join(lines)
