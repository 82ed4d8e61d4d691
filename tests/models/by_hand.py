"""For tests by hand: models whose weights are set to small numbers, noise that is given, formulas in plain Python."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import sparsevae as sv
from sparsevae.inputs.batch import Batch
from sparsevae.latent.bounds import log_weights
from sparsevae.sampling.draw import Draw

close = partial(pytest.approx, rel=1e-5, abs=1e-5)
X = [[1.0, -1.0], [-1.0, 1.0], [0.5, 2.0], [2.0, 0.5], [0.0, 1.0]]
"""Rows to fit a model to, before its weights are set."""
LINEAR: dict[str, Any] = {"hidden": (), "scale": "none", "training": sv.Training(steps=1, verbose=0, device="cpu")}
"""Encoder and decoder are one linear map each, of X as it is."""
GAUSSIAN: dict[str, Any] = {**LINEAR, "likelihood": "fixed-gaussian", "variance": 1.0}
"""The same, and x is N(mean, 1)."""


# -- models ---------------------------------------------------------------------------------------------------------


def fitted(est: Any, X: Any, *y: Any) -> Any:
    """After one step, so that the networks exist; a fit this short is not sparse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return est.fit(X, *y)


def set_linear(layer: Any, weight: Sequence[Sequence[float]], bias: Sequence[float]) -> None:
    """y = weight x + bias, a row of `weight` for every output."""
    for own, numbers in ((layer.weight, torch.tensor(weight)), (layer.bias, torch.tensor(bias))):
        assert own.shape == numbers.shape, f"the layer has {tuple(own.shape)}, the test {tuple(numbers.shape)}"
        with torch.no_grad():
            own.copy_(numbers)


class Noise:
    """Standard noise by hand: for every call the next numbers, repeated to the shape that is asked for."""

    def __init__(self, normals: Sequence[Any] = (), uniforms: Sequence[Any] = ()) -> None:
        self.normals, self.uniforms = list(normals), list(uniforms)

    def normal(self, like: Tensor) -> Tensor:
        return torch.tensor(self.normals.pop(0)).expand(like.shape)

    def uniform(self, like: Tensor) -> Tensor:
        return torch.tensor(self.uniforms.pop(0)).expand(like.shape)


class Pass:
    """One forward pass of rows with hard draws: the draws, the terms of every row, the loss, and log p(x, z)/q(z|x)."""

    def __init__(self, est: Any, rows: Any, noise: Noise | None = None, targets: Any = None) -> None:
        objective = est.fitted_.objective
        batch = Batch(torch.tensor(rows), None if targets is None else torch.tensor(targets, dtype=torch.float32))
        with torch.no_grad():
            trace = est.model_(batch, Draw(noise or Noise(), hard=True))
            self.terms = {name: term.tolist() for name, term in objective.measure(trace).items()}
            self.loss = float(objective(trace)[0])
            self.log_weights = log_weights(trace).tolist() if trace.hard else None
        self.draws = {name: site.value.tolist() for name, site in trace.latents.items()}
        self.references = {name: site.reference for name, site in trace.latents.items()}


# -- formulas -------------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def logistic(a: float) -> float:
    return 1 / (1 + math.exp(-a))


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def inverse_softplus(y: float) -> float:
    """x with log(1 + e^x) = y."""
    return math.log(math.exp(y) - 1)


def log_variance(scale: float) -> float:
    """What an encoder says for that standard deviation: the library adds 1e-4 to it."""
    return 2 * math.log(scale - 1e-4)


def log_normal(x: float, loc: float, scale: float) -> float:
    return -((x - loc) ** 2) / (2 * scale**2) - math.log(scale) - math.log(2 * math.pi) / 2


def log_normals(x: Sequence[float], loc: Sequence[float], scale: float) -> float:
    return sum(log_normal(a, b, scale) for a, b in zip(x, loc, strict=True))


def kl_normal(loc: float, scale: float, prior_loc: float = 0.0, prior_scale: float = 1.0) -> float:
    """KL(N(loc, scale^2) || N(prior_loc, prior_scale^2))."""
    return math.log(prior_scale / scale) + (scale**2 + (loc - prior_loc) ** 2) / (2 * prior_scale**2) - 1 / 2


def kl_bit(p: float, prior: float) -> float:
    """KL of a unit that is on with probability p to one that is with probability `prior`."""
    return p * math.log(p / prior) + (1 - p) * math.log((1 - p) / (1 - prior))


def kl_choice(q: Sequence[float], prior: Sequence[float]) -> float:
    """KL of a choice between several values."""
    return sum(a * math.log(a / b) for a, b in zip(q, prior, strict=True))
