"""The spike-and-slab distribution of non-negative codes: slabs are log-normal."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.utils import broadcast_all

from sparsevae.distributions.gaussian import HALF_LOG_2PI, Shape
from sparsevae.distributions.kl import pair
from sparsevae.distributions.spike_slab import SpikeSlab, spike_slab_kl
from sparsevae.sampling.gradients import Estimator


class LogNormalSpikeSlab(SpikeSlab):
    r"""Each unit is exactly zero with probability 1 - p_on, else log-normal: a sparse code without negative values.

    .. math:: z_j \sim (1 - p_j)\,\delta_0 + p_j\,e^{y_j}, \qquad y_j \sim \mathcal N(m_j, s_j^2)

    `loc` and `scale` are mean and standard deviation of the slab, e^(m + s^2/2) and loc sqrt(e^(s^2) - 1). The
    exponential is one-to-one, so the KL of two slabs is that of the Gaussians of their logarithms.

    Parameters
    ----------
    logits : Tensor (..., J)
        Gate logits.
    log_loc, log_scale : Tensor (..., J)
        Mean m and standard deviation s of the logarithm of the slab.
    gate : Estimator, optional
        Passes a gradient through the gate in `rsample`, as in `SpikeSlab`.
    finite : bool
        States that all logits are finite, so that a KL to this distribution need not check it.
    """

    arg_constraints: ClassVar = {
        "logits": constraints.independent(constraints.real, 1),
        "log_loc": constraints.independent(constraints.real, 1),
        "log_scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.independent(constraints.nonnegative, 1)

    def __init__(
        self,
        logits: Tensor,
        log_loc: Tensor,
        log_scale: Tensor,
        gate: Estimator | None = None,
        validate_args: bool | None = None,
        *,
        finite: bool = False,
    ) -> None:
        logits, self.log_loc, self.log_scale = broadcast_all(logits, log_loc, log_scale)
        variance = self.log_scale.square()
        loc = torch.exp(self.log_loc + 0.5 * variance)
        super().__init__(logits, loc, loc * torch.expm1(variance).sqrt(), gate, validate_args, finite=finite)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> LogNormalSpikeSlab:
        shape = torch.Size(batch_shape) + self.event_shape
        logits, m, s = (tensor.expand(shape) for tensor in (self.logits, self.log_loc, self.log_scale))
        return LogNormalSpikeSlab(logits, m, s, self.gate, False, finite=self.finite)

    def with_gates_open(self) -> LogNormalSpikeSlab:
        """The distribution with all gates open: the slabs."""
        return LogNormalSpikeSlab(torch.full_like(self.loc, torch.inf), self.log_loc, self.log_scale, self.gate, False)

    def slab(self, eps: Tensor, hard: bool) -> Tensor:
        return torch.addcmul(self.log_loc, self.log_scale, eps).exp()

    def slab_log_prob(self, value: Tensor) -> Tensor:
        """That of log z minus log z, the logarithm of the derivative; -inf for values below 0."""
        log_z = torch.where(value > 0, value, 1.0).log()
        eps = (log_z - self.log_loc) / self.log_scale
        found = -0.5 * eps.square() - self.log_scale.log() - HALF_LOG_2PI - log_z
        return torch.where(value < 0, -torch.inf, found)

    def slab_entropy(self) -> Tensor:
        return self.log_loc + self.log_scale.log() + 0.5 + HALF_LOG_2PI


@pair(LogNormalSpikeSlab, LogNormalSpikeSlab)
def _log_normal(q: LogNormalSpikeSlab, p: LogNormalSpikeSlab) -> Tensor:
    """The KL of spike-and-slabs whose slabs are the Gaussians of the logarithms."""
    return spike_slab_kl(q.logits, q.log_loc, q.log_scale, p.logits, p.log_loc, p.log_scale, finite=p.finite)


@register_kl(LogNormalSpikeSlab, LogNormalSpikeSlab)
def _torch_log_normal(q: LogNormalSpikeSlab, p: LogNormalSpikeSlab) -> Tensor:
    return _log_normal(q, p).sum(-1)
