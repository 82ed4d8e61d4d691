"""StripCounts: how often each of K things is there, by what the strips of an image show."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sparsevae.distributions.counts import Counts
from sparsevae.distributions.kl import divergence, pair


class StripCounts(Counts):
    r"""Counts of what C strips show. Strip c shows thing k with probability :math:`p_{ck}`, or nothing.

    The count of k is a sum of independent zeros and ones with mean :math:`\sum_c p_{ck}`; the counts together are
    Poisson-multinomial. Here they are described by the multinomial of C draws from the average strip,
    :math:`\bar p_k = \frac1C \sum_c p_{ck}`, which has the same means. The code is made of what the average forgets: it
    counts what each strip most likely shows.

    Parameters
    ----------
    log_p : Tensor (..., C, K + 1)
        log p_ck, with nothing in the last place.
    draw : callable
        As in `Counts`.
    """

    def __init__(self, log_p: Tensor, draw: nn.Module) -> None:
        self.log_p = log_p
        average = torch.logsumexp(log_p, -2) - math.log(log_p.shape[-2])
        features, off = average[..., :-1], average[..., -1:]
        super().__init__(torch.logsumexp(features, -1, keepdim=True) - off, features, log_p.shape[-2], draw)

    @property
    def mode(self) -> Tensor:
        """How often each thing is what a strip most likely shows, (..., K)."""
        things = torch.arange(self.event_shape[0], device=self.log_p.device)
        seen = self.log_p.argmax(-1, keepdim=True)  # (..., C, 1); K is nothing
        return (seen == things).sum(-2).to(self.log_p.dtype)


@pair(StripCounts, Counts, per_unit=False)
def _strips(q: StripCounts, p: Counts) -> Tensor:
    """That of the multinomial, (..., B)."""
    return divergence(Counts(q.gate, q.features, q.cap), p)
