"""StripCounts: counts of K objects in an image, from a categorical distribution per vertical strip."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sparsevae.distributions.counts import Counts
from sparsevae.distributions.kl import divergence, pair


class StripCounts(Counts):
    r"""Counts of objects over C strips. Strip c shows object k with probability :math:`p_{ck}`, or nothing.

    The count of k is a sum of independent zeros and ones with mean :math:`\sum_c p_{ck}`; the counts together are
    Poisson-multinomial. This class approximates them by the multinomial of C draws from the average strip,
    :math:`\bar p_k = \frac1C \sum_c p_{ck}`, which has the same means. The mode, and so the code, uses the strips
    themselves: it counts the most probable category of each.

    Parameters
    ----------
    log_p : Tensor (..., C, K + 1)
        log p_ck; the last category is "nothing".
    draw : callable
        The `estimator` of `Counts`.
    """

    def __init__(self, log_p: Tensor, draw: nn.Module) -> None:
        self.log_p = log_p
        average = torch.logsumexp(log_p, -2) - math.log(log_p.shape[-2])
        features, off = average[..., :-1], average[..., -1:]
        super().__init__(torch.logsumexp(features, -1, keepdim=True) - off, features, log_p.shape[-2], draw)

    @property
    def mode(self) -> Tensor:
        """The number of strips whose most probable category is object k, (..., K)."""
        objects = torch.arange(self.event_shape[0], device=self.log_p.device)
        seen = self.log_p.argmax(-1, keepdim=True)  # (..., C, 1); K is "nothing"
        return (seen == objects).sum(-2).to(self.log_p.dtype)


@pair(StripCounts, Counts, per_unit=False)
def _strips(q: StripCounts, p: Counts) -> Tensor:
    """The KL of the multinomial approximation, (..., B)."""
    return divergence(Counts(q.gate, q.features, q.cap), p)
