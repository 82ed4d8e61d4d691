"""Figures of the results of `rate_distortion` and `classes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparsevae.analysis.classes import Classes
from sparsevae.analysis.rates import RateDistortion
from sparsevae.report import style
from sparsevae.report.style import calm, heat_map, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def rate_distortion(curve: RateDistortion) -> Figure:
    """Error and, with labels, probe accuracy against bits per row, of the model and of PCA."""
    panels = [("error: mse per value", curve.mse, curve.pca_mse, curve.mean_mse, "the mean row")]
    if curve.probe is not None and curve.pca_probe is not None and curve.majority is not None:
        panels.append(("probe: test accuracy", curve.probe, curve.pca_probe, curve.majority, "one label for all"))
    figure = new_figure(4.6 * len(panels), 3.2)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (text, own, pca, nothing, what) in zip(axes, panels, strict=True):
        ax.axhline(nothing, color=style.PALE, linewidth=1, linestyle="--")
        note = ax.annotate(f"no bits: {what}", (1, nothing), (0, 3), ("axes fraction", "data"), "offset points")
        note.set(fontsize=7, color=style.FAINT, ha="right")
        ax.plot(curve.pca_bits, pca, "s-", color=style.NEGATIVE, markersize=4, linewidth=1.3, label="quantised PCA")
        label = f"{curve.name} (numbers: its cap)"
        ax.plot(curve.bits, own, "o-", color=style.POSITIVE, markersize=4.5, linewidth=1.6, label=label)
        for cap, bits, value, other in zip(curve.caps, curve.bits, own, pca, strict=True):
            side = 1 if value >= other else -1  # on the side away from PCA's line
            name = ax.annotate(str(cap), (bits, value), (0, 5 * side), textcoords="offset points")
            name.set(fontsize=7, color=style.POSITIVE, ha="center", va="bottom" if side > 0 else "top")
        calm(ax, "bits per row", "")
        _scale(curve, ax)
        ax.set_ylim(bottom=0)
        ax.set_title(text, fontsize=9, color=style.INK, loc="left")
        ax.legend(frameon=False, fontsize=8, labelcolor=style.INK)
    return figure


def _scale(curve: RateDistortion, ax: Axes) -> None:
    """Set a logarithmic axis of bits with ticks at the powers of 2."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log", base=2)
    low, high = int(min(curve.pca_bits.min(), curve.bits.min())), int(curve.bits.max())
    powers = [2**k for k in range(low.bit_length() - 1, high.bit_length() + 1)]
    ax.set_xticks(powers, [str(p) for p in powers])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0.9 * low, 1.1 * high)


def class_gates(found: Classes) -> Figure:
    """The gates of classes, darker for units that are on, and the KL of their words (figure 4), if there are any."""
    panels = [p for p in (("P(off)", found.gates), ("KL of words, nats", found.word_kl)) if p[1] is not None]
    if not panels:
        raise ValueError(f"there is nothing to draw: codes of {found.name} have no gates, and X is not texts.")
    names = [str(c) for c in found.classes]
    figure = new_figure(5.2 * len(panels), 1.2 + 0.2 * len(names))
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (label, values) in zip(axes, panels, strict=True):
        gates = values is found.gates
        heat_map(ax, values, names, None if gates else names, label=label, dark="low" if gates else "high")
    return figure
