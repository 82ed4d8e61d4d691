r"""What a unit brings to the output of its code: by this a cap ranks the non-zeros that it keeps.

.. math:: p_j \, z_j^2 \, g_j, \qquad g_j = |w_j|^2 \text{ for a linear decoder, else }
   g_j = \frac{\sum_i |\mu(z_i) - \mu(z_i \text{ without } j)|^2}{\sum_i z_{ij}^2}

p_j is P(on), w_j the unit's column of the linear map (its rows for the location of p(x|z) only), and mu(z) the mean of
p(x|z). The sums are over some training rows in whose code the unit is on; they are taken once, after training, so that
a cap costs no pass of the decoder.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparsevae.latent.model import LatentModel
from sparsevae.networks.dense import Linear, Skip, linear_path

ROWS = 1024  # training rows that a gain is measured on
_AT_ONCE = 4096  # codes decoded at a time
_PAIRS = 32  # non-zeros per unit, in the mean, that are switched off at most


def linear_map(model: LatentModel) -> tuple[Tensor, Tensor] | None:
    """Weight (D, J) and bias (D,) of a linear decoder, for the location of p(x|z); None for other decoders."""
    found = None if isinstance(model.decoder, Skip) else linear_path(model.decoder)
    if not isinstance(found, Linear) or found.weight.dim() != 2:
        return None
    size = len(found.weight) // model.likelihood.parts
    return found.weight[:size].detach(), found.bias[:size].detach()


def linear_gain(model: LatentModel) -> Tensor | None:
    """|w_j|^2 of each unit, (J,), for a linear decoder; None for others."""
    found = linear_map(model)
    return None if found is None else found[0].square().sum(0)


def measured_gain(model: LatentModel, x: Tensor) -> Tensor:
    """g_j of each unit, (J,), on rows x, (n, D); a unit that is on in none of them has the mean of the others."""
    z = torch.cat([model.encode(rows).mode for rows in x.split(_AT_ONCE)])
    pairs = (z != 0).nonzero()
    most = max(_AT_ONCE, _PAIRS * z.shape[1])
    pairs = pairs[:: max(1, -(-len(pairs) // most))]
    change, size = (torch.zeros(z.shape[1], device=z.device) for _ in range(2))
    for rows, units in (part.T for part in pairs.split(_AT_ONCE)):
        without = z[rows].scatter(1, units[:, None], 0.0)
        apart = model.decode(z[rows]).mean - model.decode(without).mean
        change.index_add_(0, units, apart.square().sum(-1))
        size.index_add_(0, units, z[rows, units].square())
    mean = change.sum() / size.sum().clamp_min(1e-12)
    return torch.where(size > 0, change / size.clamp_min(1e-12), mean)
