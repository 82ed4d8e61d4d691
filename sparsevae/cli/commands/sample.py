"""`sparsevae sample`: new rows as an array, a sheet of pictures, or texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsevae.cli.options import INT, Folder, Json, image_shape_option, out_option, taking
from sparsevae.cli.places import ending_of, write_whole
from sparsevae.cli.printing import print_result
from sparsevae.cli.sources import load_model, load_second_stage

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def sample(
    folder: Folder,
    out: Annotated[
        Path | None,
        out_option("FILE", "samples.npy, a .png for images; samples.txt for texts."),
    ] = None,
    n: Annotated[int, typer.Option("-n", **taking(int, "N", 1), help="Number of samples.")] = 16,
    seed: Annotated[int, typer.Option(**INT, help="The same seed gives the same samples.")] = 0,
    noise: Annotated[bool, typer.Option("--noise", help="Draw x from p(x|z) instead of taking its mean.")] = False,
    second_stage: Annotated[
        bool, typer.Option("--second-stage", help="Draw codes from the second stage (see `sparsevae second-stage`).")
    ] = False,
    image_shape: Annotated[
        Any, image_shape_option("Size of an image in a .png; by default the model's, else a grey square.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw new rows: z from the prior, x from the decoder."""
    import numpy as np

    from sparsevae.analysis.audit import check_decoder

    est = load_model(folder)
    check_decoder("sample", est)
    written = est.input_.kind == "texts"
    out = Path("samples.txt" if written else "samples.npy") if out is None else out
    ending = ending_of(out, ".txt") if written else ending_of(out, ".npy", ".png")
    if image_shape is not None and ending != ".png":
        raise ValueError(f"--image-shape is for a .png, and --out is {out}: leave one of them out.")
    stage = load_second_stage(folder) if second_stage else None
    rows = est.sample(n, seed=seed, noise=noise, second_stage=stage)
    if written:
        write_whole(out, lambda file: file.write("".join(f"{text}\n" for text in rows).encode()))
    elif ending == ".npy":
        write_whole(out, lambda file: np.save(file, rows))
    else:
        from sparsevae.report.style import prepare

        prepare()
        from matplotlib.image import imsave

        sheet = _sheet(rows, _picture_shape(est, image_shape))
        write_whole(out, lambda file: imsave(file, sheet, format="png"))
    name = type(est).__name__
    result = {"model": name, "out": str(out), "shape": list(np.shape(rows)), "seed": seed}
    print_result(result, f"{out}: {n} samples of {name}", as_json)


def _picture_shape(est: SparseCoder, given: tuple[int, ...] | None) -> tuple[int, ...]:
    """(H, W) or (H, W, 3): as given, as the model has it, or a grey square."""
    from sparsevae.networks.architectures import image_hint
    from sparsevae.report.view import picture_shape

    if shape := picture_shape(est, given):
        return shape
    side = math.isqrt(est.n_features_in_)
    if est.image_shape is not None or side * side != est.n_features_in_:
        what = f"images of shape {est.image_shape}" if est.image_shape else f"rows of {est.n_features_in_} values"
        hint = "" if est.image_shape else image_hint(est.n_features_in_)
        raise ValueError(f"{what} cannot be drawn: give --image-shape H,W or H,W,3, or write a .npy{hint}.")
    return side, side


def _sheet(rows: Any, shape: tuple[int, ...]) -> Any:
    """A square grid of images with lines between them, (H, W, 3); small images are enlarged to about 64 pixels."""
    import numpy as np

    n = len(rows)
    across = math.ceil(math.sqrt(n))
    down = math.ceil(n / across)
    low, high = np.percentile(rows, (1, 99))  # a few extreme values must not reduce the contrast of all images
    cells = np.zeros((down * across, *shape[:2], 3))
    cells[:n] = ((rows - low) / (high - low or 1)).clip(0, 1).reshape(n, *shape[:2], -1)
    zoom = max(1, 64 // max(shape[:2]))
    cells = cells.repeat(zoom, axis=1).repeat(zoom, axis=2)
    cells = np.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=1)
    grid = cells.reshape(down, across, *cells.shape[1:]).swapaxes(1, 2)
    return grid.reshape(down * cells.shape[1], across * cells.shape[2], 3)
