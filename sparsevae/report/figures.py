"""Pictures of a fitted model: each function turns a `View` of rows of X into a matplotlib Figure.

    v = make_view(est, X, image_shape=(8, 8))
    figures.codes(v).savefig("codes.png")

Rows are drawn as images where `image_shape` is given or the model has one, as columns of a heat map otherwise. Blue is
positive and orange negative in every picture. Figures are made without pyplot, so they need no display and
leave no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsevae.analysis import traversals
from sparsevae.estimator.coder import SparseCoder
from sparsevae.report.panels import (
    draw_codes,
    draw_features,
    draw_reconstructions,
    draw_traversal,
    name_unit,
    name_value,
)
from sparsevae.report.style import (
    FAINT,
    INK,
    LEFT,
    NEGATIVE,
    PALE,
    POSITIVE,
    Array,
    calm,
    heading,
    heat_map,
    new_figure,
    nothing,
    spaced,
    whole_ticks,
)
from sparsevae.report.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reconstructions(v: View, n_items: int = 10) -> Figure:
    """Originals above their reconstructions: what is left of a row after passing through its code."""
    items = v.items(n_items)
    width, height = v.cell(0.85)
    figure = new_figure(v.margin() + 1.0 + len(items) * (width + 0.12), 2 * height + 0.5)
    draw_reconstructions(figure, v, items)
    return figure


def codes(v: View, n_items: int = 6) -> Figure:
    """A few items, their codes as bars over the units (a zero is no bar), and what the codes decode to."""
    items = v.items(n_items)
    figure = new_figure(9.5, len(items) * v.cell(0.85)[1] + 0.7)
    draw_codes(figure, v, items)
    return figure


def traversal(v: View, n_units: int = 8, n_values: int = 9) -> Figure:
    """What single units do: each line decodes one unit alone, from off to the strong end of its usual values."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = new_figure(v.margin() + 1.2 + n_values * (width + 0.08), max(1, len(units)) * (height + 0.22) + 0.3)
    draw_traversal(figure, v, units, n_values)
    return figure


def traversal_grid(v: View, item: int = 0, n_units: int = 6, values: Sequence[float] | None = None) -> Figure:
    """What the active units of one item do (VSC, figure 4): each line moves one, the rest of the code stays.

    The first picture of a line is the item's own reconstruction, marked with the unit's own value.
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
        rows = [v.decoded[item], *v.est.inverse_transform(codes)]
        for ax, row, value in zip(line, rows, (code[unit], *at), strict=True):
            v.draw(ax, row)
            ax.set_xlabel(name_value(v, value), fontsize=7, color=FAINT, labelpad=1.5)
        line[0].xaxis.label.set(color=POSITIVE if code[unit] > 0 else NEGATIVE, fontweight="bold")
        name_unit(line[0], unit, "")
        v.name_features(line[0])
    axes[0, 0].set_title("item", fontsize=9, color=INK)
    return figure


def interpolation_strip(v: View, a: int, b: int, *, steps: int = 8, mode: str = "mixed") -> Figure:
    """The walk from one item's code to another's (UAI, figure 7): frames, their codes, and what was switched."""
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
    """What each unit adds: decode(code) - decode(code without it), averaged where it is on; and its top items."""
    units = v.units(n_units)
    width, height = v.cell(0.7)
    figure = new_figure(v.margin() + 3.2 + (1 + n_examples) * (width + 0.1), max(1, len(units)) * (height + 0.12) + 0.4)
    draw_features(figure, v, units, n_examples)
    return figure


def usage(v: View) -> Figure:
    """How often each unit is on, most used first; and how many units a row has on."""
    return code_usage(v.codes)


def code_usage(codes: Array) -> Figure:
    """`usage` of codes alone, (n, J)."""
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
    """The course of every quantity in `history_`, a panel each; the first few reports may lie outside."""
    steps = est.history_.column("step")
    wanted = {"loss": "training objective, nats", "validation_loss": "validation objective, nats"}
    wanted |= {k: f"{k}, nats" for row in est.history_[:1] for k in row if k.startswith(("nll_", "kl_"))}
    wanted |= {"nonzeros": "non-zeros per row", "active_units": "active units"}
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
    """Reconstructions, codes and a traversal on one sheet, for images."""
    figure = new_figure(11.0, 7.6)
    if title:
        figure.suptitle(title, fontsize=15, color=INK, x=LEFT / 11, ha="left", parse_math=False)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 2.7))
    top, (left, right) = parts[0], parts[1].subfigures(1, 2, width_ratios=(1.2, 1), wspace=0.02)
    heading(top, 11, "Images, and what their codes decode to")
    draw_reconstructions(top, v, v.items(10))
    heading(left, 6, "A code: a few bars, one a unit; every other unit is exactly zero")
    draw_codes(left, v, v.items(5))
    heading(right, 5, "What a unit means: that unit alone, from off to strong")
    draw_traversal(right, v, v.units(6), 7)
    return figure
