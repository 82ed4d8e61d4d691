"""The pictures of docs/looking-inside.md. From the repository's root

    python -m docs.make_images

runs that page's session (seed 0, the settings written there) and draws its models into docs/images/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from docs.outputs import ROOT, session
from sparsevae.analysis.audit_result import Audit
from sparsevae.report import figures
from sparsevae.report.elements import png
from sparsevae.report.style import FAINT, INK, NEGATIVE, PALE, POSITIVE
from sparsevae.report.view import make_view
from sparsevae.storage.atomic import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST = 1e-3  # nats; a bar below it is not drawn


def audit_picture(found: Audit) -> Figure:
    """Per unit, largest KL first: the parts of its variance, and KL beside gain."""
    from matplotlib.figure import Figure

    order = np.argsort(-found.kl, kind="stable")
    at = np.arange(len(order))
    figure = Figure(figsize=(9.5, 2.9), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    left.bar(at, found.var_mean[order], color=POSITIVE, label="variance of the mean")
    left.bar(at, found.mean_variance[order], bottom=found.var_mean[order], color=PALE, label="mean variance")
    left.axhline(1, color=INK, linewidth=1, linestyle="--")
    left.set_ylim(0, 1.45)
    left.set_yticks((0, 0.5, 1))
    left.set_title("Variance: what moves with x, and what is noise", fontsize=9, color=INK, loc="left")
    right.bar(at - 0.2, found.kl[order], 0.4, color=NEGATIVE, label="KL: what it costs")
    right.bar(at + 0.2, found.gain[order].clip(min=0), 0.4, color=POSITIVE, label="gain: what it brings")
    right.set_yscale("log")
    right.set_ylim(LEAST, 4 * found.gain.max())
    right.set_title("Nats per row", fontsize=9, color=INK, loc="left")
    for ax in (left, right):
        ax.set_xticks(at, [str(unit) for unit in order])
        ax.set_xlabel("unit, largest KL first", fontsize=8, color=FAINT)
        ax.tick_params(labelsize=7, labelcolor=FAINT, color=PALE, length=2)
        ax.tick_params(which="minor", left=False)
        for side, spine in ax.spines.items():
            spine.set(visible=side in ("left", "bottom"), color=PALE)
        ax.legend(fontsize=8, frameon=False, ncols=2, loc="upper right", labelcolor=INK)
    return figure


def main() -> None:
    names: dict[str, Any] = {}
    for _ in session(ROOT / "docs/looking-inside.md", names):
        pass
    pair = np.stack([names["nought"], names["six"]])
    view = make_view(names["vsc"], pair, image_shape=names["data"].image_shape)
    for name, figure in {
        "audit": audit_picture(names["found"]),
        "walk": figures.interpolation_strip(view, 0, 1),
        "traversal": figures.traversal_grid(view, 1),
    }.items():
        write_file(ROOT / f"docs/images/{name}.png", png(figure))
        print(f"docs/images/{name}.png")


if __name__ == "__main__":
    main()
