"""The demonstration: train a sparse coder on scikit-learn's digits and write a page about it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparsevae import data
from sparsevae.messages import note
from sparsevae.models import VSC
from sparsevae.report import figures
from sparsevae.report.elements import png
from sparsevae.report.page import report
from sparsevae.report.view import make_view
from sparsevae.storage.atomic import write_file
from sparsevae.storage.folder import check_folder
from sparsevae.threads import threads
from sparsevae.training.settings import Training

TITLE = "Handwritten digits as sparse codes"
PICTURE = "Handwritten digits that a sparse coder has never seen, as codes"


class Demo(NamedTuple):
    """Paths of the page, the picture and the saved model, and the result of `evaluate` on test digits."""

    page: Path
    picture: Path
    model: Path
    numbers: dict[str, Any]


def model(seed: int = 0) -> VSC:
    """A VSC whose codes of 8 x 8 digits have few non-zero units.

    With straight-through gates many units are used (with the sigmoid gate a few units are always on), and a fixed
    variance gives sharp reconstructions.
    """
    return VSC(
        64,
        alpha=0.1,
        hidden=(256,),
        gate="straight-through-concrete",
        likelihood="fixed-gaussian",
        variance=0.02,
        training=Training(steps=4000, batch_size=256, learning_rate=3e-3, seed=seed, device="cpu"),
    )


def _check(out: Path) -> None:
    """Raise an error unless the folder is new, empty, or the result of an earlier demonstration."""
    names = os.listdir(out) if out.is_dir() else []
    if not {"index.html", "demo.png", "model"} <= set(names):
        check_folder(out, kind="demonstration")
    check_folder(out / "model")


def run(out: Path, seed: int = 0) -> Demo:
    """Train, save the model in out/model, and write out/index.html and out/demo.png."""
    out = Path(out)
    began = time.monotonic()
    _check(out)
    digits = data.load("digits")
    X, unseen, labels = digits.X, np.asarray(digits.X_test), np.asarray(digits.y_test)
    note(f"Training a sparse coder on {X.shape[0]:,} handwritten digits of 8 x 8 pixels ...")
    with threads(1):  # more threads hardly help so small a network, and the numbers depend on their number
        est = model(seed).fit(X)
        est.save(out / "model")
        note(f"Drawing the page from {len(unseen)} digits it has not seen ...")
        page = report(est, unseen, out / "index.html", image_shape=digits.image_shape, labels=labels, title=TITLE)
        view = make_view(est, unseen, image_shape=digits.image_shape, labels=labels)
        write_file(out / "demo.png", png(figures.overview(view, PICTURE)))
        numbers = est.evaluate(unseen)
    explained = 1 - numbers["mse"] / unseen.var(0).mean()
    summary = f"On average {numbers['nonzeros_mode']:.1f} of {est.n_components} units are on, the others exactly zero; "
    summary += f"decoded, they explain {explained:.0%} of the variance of unseen digits. "
    summary += f"The score is {numbers['score']:.1f} nats per digit, a lower bound on log p(x)."
    note(f"Done in {time.monotonic() - began:.0f} s. {summary}")
    note(f"Beside the page: {out / 'model'} (the model), {out / 'demo.png'} (a picture).")
    return Demo(page, out / "demo.png", out / "model", numbers)
