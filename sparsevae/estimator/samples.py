"""Codes drawn, codes decoded, and new rows from a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from sparsevae.checks import check_number, check_room, check_seed
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
    """Hard draws of q(z|x) of checked rows, (n, rows, J). A row is encoded once, and only the draws are kept."""
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
        if seed is None:
            return means_of([own.model.encode(x)])
        return means_of(
            [site.q for site in code_sites(own.model(x, Draw(PerRow(row_keys(x), mix(seed, 11)), hard=True)))]
        )

    found: dict[str, Array] = own.blocks(rows).map(of)
    return found


def decode(est: SparseCoder, z: Tensor, draw: Draw | None = None) -> Any:
    """Codes (B, J) in X's own form: the decoded x, or a draw of p(x|z)."""
    own = est.fitted_
    likelihood, p = own.model.likelihood, own.model.decode(z)
    return own.input.to_user(likelihood.point(p) if draw is None else likelihood.draw(p, draw))


def _fresh(est: SparseCoder, seed: int) -> Draw:
    check_seed("seed", seed)
    return Draw(Fresh(torch.Generator(est.fitted_.device).manual_seed(mix(seed, 6))), hard=True)


def _check_samples(est: SparseCoder, n: int) -> None:
    own = est.fitted_
    check_room(n * (own.n_units + own.input.width), {"n": n}, "samples and their codes", own.device)


def sample(est: SparseCoder, n: int, seed: int, noise: bool, second_stage: SparseCoder | None) -> Any:
    """As `SparseCoder.sample`."""
    own = est.fitted_
    check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
    _check_samples(est, n)
    draw = _fresh(est, seed)
    if second_stage is not None:
        if getattr(second_stage, "n_features_in_", None) != own.n_units:
            what = f"a fitted model of codes of {own.n_units} units, as sparsevae.second_stage returns it"
            raise ValueError(f"second_stage must be {what}; got {second_stage!r}.")
        z = torch.from_numpy(second_stage.sample(n, seed=mix(seed, 9), noise=True)).to(own.device)
    else:
        z = draw(own.model.prior.marginal(own.model.encode).expand((n,)))
    return decode(est, z, draw if noise else None)


def sample_like(est: SparseCoder, X: Any, n: int, seed: int, noise: bool) -> Any:
    """As `SparseCoder.sample_like`."""
    own = est.fitted_
    check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
    if own.largest is not None:
        raise ValueError(
            f"sample_like redraws the values of an item's active units, and codes of this {type(est).__name__} "
            "are whole numbers, not values from a slab. For variations of the item use "
            "inverse_transform(draw_codes(X, n)[:, 0]) with X of one row; for new rows use sample."
        )
    _check_samples(est, n)
    rows = own.rows(own.input.as_rows(X))
    if rows.shape[0] != 1:
        raise ValueError(f"sample_like needs one row, got {rows.shape[0]}; pass X[0] or X[:1].")
    x = next(iter(own.blocks(rows))).x
    draw = _fresh(est, seed)
    on = own.model.encode(x).mode[:1] != 0
    if not bool(on.any()):
        raise ValueError("no unit is on in this row's code, so there is nothing to redraw; try another row.")
    prior = own.model.prior.marginal(own.model.encode)
    slabs = prior.with_gates_open() if own.sparse and hasattr(prior, "with_gates_open") else prior
    return decode(est, torch.where(on, draw(slabs.expand((n,))), 0.0), draw if noise else None)


@fitted
def generate(est: SparseCoder, Z: Any, how: str, *, temperature: float, beams: int, seed: int) -> list[str]:
    """As `SparseCoder.generate`."""
    own = est.fitted_
    if not isinstance(own.input, Texts):
        raise ValueError(
            f"generate writes texts, and this {type(est).__name__} was fitted on numbers: use "
            "inverse_transform, or sample."
        )
    check_number("temperature", temperature, "a number above 0", lambda t: t > 0)
    check_number("beams", beams, "an integer above 0", lambda b: b > 0, whole=True)
    check_room(beams * own.input.width, {"beams": beams}, "the beginnings of a text", own.device)
    more: dict[str, Any] = {"temperature": temperature, "beams": int(beams), "noise": _fresh(est, seed).noise}
    likelihood = cast(TokenData, own.model.likelihood)
    blocks = (likelihood.write(own.model.decode(z[:n]), how, **more) for z, n, _ in own.code_blocks(Z))
    return own.input.concatenate([own.input.to_user(tokens) for tokens in blocks])
