"""The parts of figures: reconstructions, codes, traversals and what units add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsevae.report.style import FAINT, INK, NEGATIVE, PALE, POSITIVE, Array, calm, nothing, spaced, whole_ticks
from sparsevae.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

TWO_SIDED = 0.1  # a unit goes both ways when its rarer sign has this share of its uses


def draw_reconstructions(figure: Figure | SubFigure, v: View, items: list[int]) -> None:
    axes = figure.subplots(2, len(items), squeeze=False)
    for column, item in enumerate(items):
        v.draw(axes[0, column], v.rows[item])
        v.draw(axes[1, column], v.decoded[item])
        if v.labels is not None:
            axes[0, column].set_title(str(v.labels[item]), fontsize=8, color=FAINT, parse_math=False)
    for ax, text in zip(axes[:, 0], ("original", "decoded"), strict=True):
        ax.set_ylabel(text, fontsize=9, color=INK, rotation=0, ha="right", va="center", labelpad=8)
        v.name_features(ax)


def draw_codes(figure: Figure | SubFigure, v: View, items: list[int]) -> None:
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
    ax.set_xticks([t for t in whole_ticks(7).tick_values(0, len(code) - 1) if 0 <= t < len(code)])
    ax.set_ylim(-limit, limit)
    calm(ax, "", "")
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


def draw_traversal(figure: Figure | SubFigure, v: View, units: list[int], n_values: int) -> None:
    if not units:
        nothing(figure)
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
            ax.set_xlabel(name_value(v, value), fontsize=7, color=FAINT, labelpad=1.5)
        name_unit(line[0], unit, v.describe(unit))
        v.name_features(line[0])


def draw_features(figure: Figure | SubFigure, v: View, units: list[int], n_examples: int) -> None:
    if not units:
        nothing(figure)
        return
    width = v.cell(0.7)[0]
    ratios = [*[width] * (1 + n_examples), 2.0]
    axes = figure.subplots(len(units), 2 + n_examples, squeeze=False, width_ratios=ratios)
    changes = [v.change(unit) for unit in units]
    deepest = 0.9 * max(float(np.abs(added).max()) for added, _ in changes) or 1.0
    for line, unit, (added, strongest) in zip(axes, units, changes, strict=True):
        v.draw(line[0], added, change=deepest)
        v.name_features(line[0])
        name_unit(line[0], unit, "")
        for ax, item in zip(line[1:-1], strongest, strict=False):
            v.draw(ax, v.rows[item])
        for ax in line[1 + len(strongest) : -1]:
            ax.set_visible(False)
        line[-1].axis("off")
        text_of_unit = line[-1].text(0.03, 0.5, _describe_unit(v, unit), va="center", transform=line[-1].transAxes)
        text_of_unit.set(fontsize=9, color=INK, parse_math=False)
    axes[0, 0].set_title("adds", fontsize=9, color=INK)
    text = axes[0, 1].annotate("items in which it is strongest", (0, 1), (0, 4), "axes fraction", "offset points")
    text.set(fontsize=9, color=INK, in_layout=False)


def _describe_unit(v: View, unit: int) -> str:
    """How much a unit is used and, where labels are known, by whom."""
    lines = [f"{v.describe(unit)} of rows" if v.sparse else v.describe(unit)]
    if v.labels is not None and v.sparse:
        values, counts = np.unique(v.labels[v.codes[:, unit] != 0], return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        lines.append(", ".join(f"{values[k]}: {counts[k] / counts.sum():.0%}" for k in best))
    return "\n".join(lines)


def name_value(v: View, value: float) -> str:
    return "off" if value == 0 and v.sparse else f"{value:.0f}" if v.whole else f"{value:.1f}"


def name_unit(ax: Axes, unit: int, more: str) -> None:
    text = f"unit {unit}\n{more}" if more else f"unit {unit}"
    ax.set_ylabel(text, fontsize=8, color=INK, rotation=0, ha="right", va="center", labelpad=8)
