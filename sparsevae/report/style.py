"""Fonts, colours and axes that all figures share, drawn by matplotlib without pyplot or a display."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


def prepare() -> None:
    """Import matplotlib even if MPLBACKEND names an unknown backend, which would make the import fail.

    A valid backend stays in force for the user's own figures.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


Array = np.ndarray[Any, Any]
AnyFigure = TypeVar("AnyFigure", bound="Figure | SubFigure")
POSITIVE, NEGATIVE, INK, FAINT, PALE = "#0072B2", "#D55E00", "#22303c", "#71808e", "#c9d1d9"
LEFT = 0.1  # inches from the left edge of a figure to its headings


def legible(labels: Iterable[Any]) -> list[Any]:
    """The labels with lone surrogates escaped, since matplotlib raises an error for them."""
    return [label.encode(errors="backslashreplace").decode() if isinstance(label, str) else label for label in labels]


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
    """Draw a matrix (len(rows), m) on `ax` in shades of blue with a colour bar: dark is high, or low with dark="low".

    Without `columns` the columns are numbered, if there are at most 60, and labelled "units". `limits` are the lowest
    and highest value of the colour scale; None takes those of the matrix.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ends = ["#ffffff", POSITIVE] if dark == "high" else [POSITIVE, "#ffffff"]
    shades = LinearSegmentedColormap.from_list("shades", ends)
    values = np.asarray(values)
    low, high = (values.min(), values.max()) if limits is None else limits
    drawn = ax.imshow(values, cmap=shades, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    thin_frame(ax)
    ax.set_yticks(range(len(rows)), legible(rows), fontsize=7, color=INK, parse_math=False)
    if columns is not None:
        ax.set_xticks(range(len(columns)), legible(columns), fontsize=7, color=INK, rotation=90, parse_math=False)
    elif values.shape[1] <= 60:
        ax.set_xticks(range(values.shape[1]), [str(j) for j in range(values.shape[1])], fontsize=6, color=FAINT)
        ax.tick_params(axis="x", rotation=90)
    ax.tick_params(length=0)
    ax.set_xlabel("units" if columns is None else "", fontsize=8, color=FAINT)
    bar = ax.figure.colorbar(drawn, ax=ax, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
    bar.set_label(label, fontsize=8, color=FAINT)


def spaced(values: Array, n: int) -> Array:
    """At most n of the values (N,), evenly spaced by position, including the first and the last."""
    chosen: Array = values[np.unique(np.linspace(0, len(values) - 1, n).round().astype(int))]
    return chosen


def nothing(figure: AnyFigure, text: str = "no unit is on in any of these rows") -> AnyFigure:
    """The figure with a sentence in place of a picture."""
    figure.text(0.5, 0.5, text, ha="center", color=FAINT)
    return figure


def heading(figure: SubFigure, width: float, text: str) -> None:
    """Write a heading at the top left of a figure of this width in inches."""
    figure.suptitle(text, fontsize=11, color=INK, x=LEFT / width, ha="left")


def row_label(ax: Axes, text: str, size: int = 8) -> None:
    """Write a horizontal label to the left of `ax`."""
    ax.set_ylabel(text, fontsize=size, color=INK, rotation=0, ha="right", va="center", labelpad=8)


def new_figure(width: float, height: float) -> Figure:
    """An empty white figure, in inches."""
    prepare()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05), facecolor="white")


def whole_ticks(n: int) -> Any:
    """A locator of at most n + 1 ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(n, integer=True)


def thin_frame(ax: Axes) -> None:
    """Draw a thin pale frame and no ticks."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(color=PALE, linewidth=0.6)


def calm(ax: Axes, x: str, y: str) -> None:
    """Draw pale left and bottom axes only, with small grey labels x and y."""
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=PALE)
    ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
    ax.set_xlabel(x, fontsize=8, color=FAINT)
    ax.set_ylabel(y, fontsize=8, color=FAINT)
