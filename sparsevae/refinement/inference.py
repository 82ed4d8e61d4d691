r"""Semi-amortised inference: a few steps on the parameters of q(z|x), row by row, from where the encoder left them.

The encoder's output for a row is a vector of raw values, from which q(z|x) is made. Adam changes these values so that
the row's own bound rises; the networks stay as they are. The noise of a step is a function of (seed, step, row, unit),
and Adam works on each number alone, so that the result for a row depends on no other row.

A row keeps the new values only if its bound, measured by `CHECKS` hard draws with other noise, is at least as high as
with the encoder's: by that measure no row is worse.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparsevae.inputs.batch import Batch
from sparsevae.latent.bounds import SPREAD, log_weights
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import PerRow, mix, row_keys

STEPS = 20  # of refine=True
RATE = 0.05  # step size of Adam, on raw values; it falls linearly to 0
DRAWS = 4  # relaxed draws per row and step
CHECKS = 16  # hard draws per row of the measured bound
_MOMENTS = 0.9, 0.99


def _draw(x: Tensor, copies: int, seed: int, *, hard: bool) -> Draw:
    """Draws of `copies` copies of each row, in blocks (copies, B)."""
    keys = row_keys(x) + torch.arange(1, copies + 1, device=x.device)[:, None] * SPREAD
    return Draw(PerRow(keys.flatten(), seed), hard=hard)


def measured_bound(model: LatentModel, x: Tensor, raw: Tensor, seed: int) -> Tensor:
    """The ELBO of each row, (B,), by `CHECKS` hard draws of the posterior with raw values (B, width)."""
    with torch.no_grad():
        draw = _draw(x, CHECKS, mix(seed, 1), hard=True)
        trace = model.trace(Batch(x), raw, draw, copies=CHECKS)
        found: Tensor = log_weights(trace).double().unflatten(-1, (CHECKS, -1)).mean(-2)
    return found.nan_to_num(-torch.inf, torch.inf, -torch.inf)


def infer(model: LatentModel, x: Tensor, steps: int, seed: int) -> Tensor:
    """Raw values of q(z|x), (B, width), after so many steps, or the encoder's for rows that these do not improve."""
    batch, objective, copies = Batch(x), Objective(nll, kl), DRAWS * points(model)[0]
    start = model.read(batch).detach()
    raw, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step in range(steps):
        raw.requires_grad_(True)
        with torch.enable_grad():
            draw = _draw(x, copies, mix(seed, 2, step), hard=False)
            loss, _ = objective(model.trace(batch, raw, draw, copies=copies))
            (slope,) = torch.autograd.grad(loss * len(x), raw)
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
        first.lerp_(slope, 1 - _MOMENTS[0])
        second.lerp_(slope.square(), 1 - _MOMENTS[1])
        rate = RATE * (1 - step / steps) / (1 - _MOMENTS[0] ** (step + 1))
        spread = (second / (1 - _MOMENTS[1] ** (step + 1))).sqrt() + 1e-8
        raw = raw.detach() - rate * first / spread
    before, after = (measured_bound(model, x, values, seed) for values in (start, raw))
    return torch.where((after >= before).unsqueeze(-1), raw, start)
