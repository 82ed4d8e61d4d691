"""Values that are often exactly zero."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import softplus

from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.likelihoods.base import Likelihood


class SpikeSlabData(Likelihood):
    """raw = (loc, s, logits) -> SpikeSlab: each value is exactly 0, or N(loc, floor + softplus(s)).

    For data that are sparse codes: log_prob is log(1 - p_on) for a zero, log p_on + log N for any other value. The
    Gaussian is fitted to non-zero values only.
    """

    name = "spike-slab"
    settings = ("variance_floor",)
    parts: ClassVar[int] = 3
    atom: ClassVar[bool] = True
    variance_floor: float

    def forward(self, raw: Tensor) -> Distribution:
        loc, s, logits = raw.chunk(3, -1)
        return SpikeSlab(logits, loc, (self.variance_floor + softplus(s)).sqrt(), validate_args=False)
