"""Draws of codes, decoded codes and samples of a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from sparsevae.checks import POSITIVE, In, check_room, check_seed
from sparsevae.estimator.blocks import fitted
from sparsevae.inputs.base import Array
from sparsevae.inputs.texts import Texts
from sparsevae.latent.bounds import SPREAD
from sparsevae.latent.codes import code_sites, means_of
from sparsevae.likelihoods.tokens import TokenData
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh, PerRow, mix, row_keys

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


@fitted
def draws(est: SparseCoder, rows: Any, n: int, seed: int) -> Array:
    """n hard draws of q(z|x) per checked row, (n, rows, J), float32. Every row is encoded once."""
    own = est.fitted_
    found = np.empty((n, rows.shape[0], own.n_units), np.float32)
    for x, m, at in own.blocks(rows):
        keys, q = row_keys(x), own.model.encode(x)
        streams = keys + torch.arange(1, n + 1, device=x.device)[:, None] * SPREAD  # (n, B), one for every draw
        for k, stream in enumerate(streams):
            found[k, at] = Draw(PerRow(stream, mix(seed, 10)), hard=True)(q)[:m].cpu().numpy()
    return found


@fitted
def means(est: SparseCoder, rows: Any, seed: int | None = None) -> dict[str, Array]:
    """`posterior_means` of checked rows."""
    own = est.fitted_

    def of(x: Tensor) -> dict[str, Tensor]:
        if seed is None or not est.decodes:  # without p(x|z) all latent variables are the code itself
            return means_of([own.model.encode(x)])
        trace = own.model(x, Draw(PerRow(row_keys(x), mix(seed, 11)), hard=True))
        return means_of([site.q for site in code_sites(trace)])

    found: dict[str, Array] = own.blocks(rows).map(of)
    return found


def decode(est: SparseCoder, z: Tensor, draw: Draw | None = None) -> Any:
    """Rows in X's own form for codes z, (B, J): the point estimate of p(x|z), or a draw of it."""
    own = est.fitted_
    likelihood, p = own.model.likelihood, own.model.decode(z)
    return own.input.to_user(likelihood.point(p) if draw is None else likelihood.draw(p, draw))


def _draw(est: SparseCoder, n: int, seed: int) -> Draw:
    """Hard draws for n samples, from a new generator."""
    own = est.fitted_
    In(0).check("n", n, whole=True)
    check_room(n * (own.n_units + own.input.width), {"n": n}, "samples and their codes", own.device)
    check_seed("seed", seed)
    return Draw(Fresh(torch.Generator(own.device).manual_seed(mix(seed, 6))), hard=True)


def sample(est: SparseCoder, n: int, seed: int, noise: bool, second_stage: SparseCoder | None) -> Any:
    """As `SparseCoder.sample`."""
    own = est.fitted_
    draw = _draw(est, n, seed)
    if second_stage is None:
        z = draw(own.model.prior.marginal(own.model.encode).expand((n,)))
    elif getattr(second_stage, "n_features_in_", None) == own.n_units:
        z = torch.from_numpy(second_stage.sample(n, seed=mix(seed, 9), noise=True)).to(own.device)
    else:
        what = f"a fitted model of codes of {own.n_units} units, as sparsevae.second_stage returns it"
        raise ValueError(f"second_stage must be {what}; got {second_stage!r}.")
    return decode(est, z, draw if noise else None)


def sample_like(est: SparseCoder, X: Any, n: int, seed: int, noise: bool) -> Any:
    """As `SparseCoder.sample_like`."""
    own = est.fitted_
    if own.largest is not None:
        raise ValueError(
            f"sample_like redraws the values of an item's active units, and codes of this {type(est).__name__} "
            "are whole numbers, not values from a slab. For variations of the item use "
            "inverse_transform(draw_codes(X, n)[:, 0]) with X of one row; for new rows use sample."
        )
    draw = _draw(est, n, seed)
    rows = own.rows(own.input.as_rows(X))
    if rows.shape[0] != 1:
        raise ValueError(f"sample_like needs one row, got {rows.shape[0]}; pass X[0] or X[:1].")
    on = own.code(own.model.encode(next(iter(own.blocks(rows))).x))[:1] != 0
    if not on.any():
        raise ValueError("no unit is on in this row's code, so there is nothing to redraw; try another row.")
    prior = own.model.prior.marginal(own.model.encode)
    slabs = prior.with_gates_open() if own.sparse else prior
    return decode(est, torch.where(on, draw(slabs.expand((n,))), 0.0), draw if noise else None)


@fitted
def generate(est: SparseCoder, Z: Any, how: str, *, temperature: float, beams: int, seed: int) -> list[str]:
    """As `SparseCoder.generate`."""
    own = est.fitted_
    if not isinstance(own.input, Texts):
        raise ValueError(
            f"generate is for models of texts, and this {type(est).__name__} was fitted on numbers: use "
            "inverse_transform, or sample."
        )
    POSITIVE.check("temperature", temperature)
    POSITIVE.check("beams", beams, whole=True)
    check_room(beams * own.input.width, {"beams": beams}, "the candidates of a beam search", own.device)
    settings = {"temperature": temperature, "beams": int(beams), "noise": _draw(est, 0, seed).noise}
    likelihood = cast(TokenData, own.model.likelihood)
    blocks = (likelihood.write(own.model.decode(z[:n]), how, **settings) for z, n, _ in own.code_blocks(Z))
    return own.input.concatenate([own.input.to_user(tokens) for tokens in blocks])
