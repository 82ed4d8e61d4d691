"""Gaussian, Laplace and point distributions, with their divergences."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace, Normal, constraints, kl_divergence
from torch.distributions.utils import broadcast_all

from sparsevae.distributions.kl import pair
from sparsevae.sampling.derivatives import first_only
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
Shape = torch.Size | list[int] | tuple[int, ...]


class _GaussianLogProb(torch.autograd.Function):
    """log N(value; loc, variance) summed over the last axis, with a hand-written gradient.

    With r = value - loc and w = r / variance the gradients are w for loc, -w for value, and (w^2 - 1/variance) / 2 for
    variance: a third of the passes over (B, D) values that autograd would make.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, loc: Tensor, variance: Tensor) -> Tensor:
        residual = value - loc
        weighted = residual / variance
        ctx.save_for_backward(weighted, variance)
        ctx.shapes = value.shape, loc.shape
        both = torch.addcmul(variance.log(), residual, weighted).sum(-1)
        return torch.rsub(both, -weighted.shape[-1] * HALF_LOG_2PI, alpha=0.5)

    @staticmethod
    @first_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weighted, variance = ctx.saved_tensors
        by_loc = grad.unsqueeze(-1) * weighted
        value = -by_loc.sum_to_size(ctx.shapes[0]) if ctx.needs_input_grad[0] else None
        loc = by_loc.sum_to_size(ctx.shapes[1]) if ctx.needs_input_grad[1] else None
        spread = torch.addcmul((-0.5 * grad).unsqueeze(-1) / variance, by_loc, weighted, value=0.5)
        return value, loc, spread.sum_to_size(variance.shape) if ctx.needs_input_grad[2] else None


class _Gaussian(Independent):  # type: ignore[type-arg]
    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__(Normal(loc, scale, validate_args=False), 1, validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Distribution:
        shape = torch.Size(batch_shape) + self.event_shape
        return _Gaussian(self.base_dist.loc.expand(shape), self.base_dist.scale.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        density: Tensor = _GaussianLogProb.apply(value, self.mean, self.variance)  # type: ignore[no-untyped-call]
        return density


class _GaussianByVariance(_Gaussian):
    """A Gaussian whose standard deviation is computed on demand."""

    def __init__(self, loc: Tensor, variance: Tensor) -> None:
        self._loc, self._variance = broadcast_all(loc, variance)
        self.reinterpreted_batch_ndims = 1
        Distribution.__init__(self, self._loc.shape[:-1], self._loc.shape[-1:], validate_args=False)

    @property
    def base_dist(self) -> Normal:
        return Normal(self._loc, self._variance.sqrt(), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self._loc

    @property
    def variance(self) -> Tensor:
        return self._variance

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Distribution:
        shape = torch.Size(batch_shape) + self.event_shape
        return _GaussianByVariance(self._loc.expand(shape), self._variance.expand(shape))


def normal(loc: Tensor, scale: Tensor) -> Distribution:
    """N(loc, scale^2) with independent units, event_shape (J,)."""
    return _Gaussian(loc, scale)


def normal_by_variance(loc: Tensor, variance: Tensor) -> Distribution:
    """N(loc, variance) with independent units: its density and gradient need no square root."""
    return _GaussianByVariance(loc, variance)


def times(p: Tensor, log: Tensor) -> Tensor:
    """p log, elementwise; 0 where p is 0, for an infinite logarithm too, and so is the gradient there."""
    return p * torch.where(p == 0, 0.0, log)


def normal_kl(loc_q: Tensor, scale_q: Tensor, loc_p: Tensor, scale_p: Tensor) -> Tensor:
    """KL of two Gaussians, elementwise: log(s_p/s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""
    ratio, shift = scale_q / scale_p, (loc_q - loc_p) / scale_p
    return 0.5 * (ratio.square() + shift.square() - 1) - ratio.log()


@pair(Normal, Normal)
def _normal_normal(q: Normal, p: Normal) -> Tensor:
    return normal_kl(q.loc, q.scale, p.loc, p.scale)


@pair(Laplace, Laplace)
def _laplace(q: Laplace, p: Laplace) -> Tensor:
    return kl_divergence(q, p)


class Point(Distribution):
    """A code without noise, z = loc: it has no density, so there is no bound."""

    arg_constraints: ClassVar = {"loc": constraints.independent(constraints.real, 1)}
    support = constraints.real_vector

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> Point:
        return Point(self.loc.expand(torch.Size(batch_shape) + self.event_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        """0 for every value, by convention: a score computed with it is log p(x, z) at the code."""
        return torch.zeros_like((value - self.loc)[..., 0])


@pair(Point, Normal)
def _point_normal(q: Point, p: Normal) -> Tensor:
    """The quadratic penalty (loc - m)^2 / (2 s^2): a KL without its variance terms."""
    return 0.5 * ((q.loc - p.loc) / p.scale).square()


@draw_from.register
def _(q: Point, noise: Noise, hard: bool) -> Tensor:
    return q.loc
