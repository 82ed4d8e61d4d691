"""Where a dictionary begins: atoms from rows of the data, and an encoder that begins as a matched filter of them.

The linear path of a decoder, z -> W z + b, is a dictionary: column j of W is what unit j adds to the output. If the
encoder has a linear path too, it begins as the transpose, so that every unit looks for its own atom from the first
step. Random weights leave most units without a task, and their gates close before they find one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparsevae.latent.model import LatentModel
from sparsevae.networks.dense import Linear, Skip, linear_path


def _of_rows(x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n deviations of rows from their mean, (n, D); if there are fewer rows, differences of random pairs follow."""
    centred = x - x.mean(0)
    order = torch.randperm(len(x), generator=generator)[:n]
    missing = n - len(order)
    if not missing:
        return centred[order]
    one, other = (torch.randint(len(x), (missing,), generator=generator) for _ in range(2))
    return torch.cat([centred[order], x[one] - x[other]])


def _of_means(x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """n centres of k-means of the rows, less their mean; as `_of_rows` beyond half as many centres as rows."""
    from sklearn.cluster import MiniBatchKMeans

    k = min(n, max(1, len(x) // 2))
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    found = MiniBatchKMeans(k, random_state=seed, n_init=1, max_iter=20).fit(x.numpy())
    centres = torch.from_numpy(found.cluster_centers_).to(x) - x.mean(0)
    return torch.cat([centres, _of_rows(x, n - k, generator)]) if k < n else centres


Atoms = Callable[[Tensor, int, torch.Generator], Tensor]
ATOMS: dict[str, Atoms] = {"rows": _of_rows, "kmeans": _of_means}
"""Where atoms come from, by name: rows x (n, D), number of atoms, generator -> (J, D)."""

STARTS = ("random", "transpose", *ATOMS)
"""Legal values of `start`: all weights random; a random dictionary and its transpose; atoms from the data."""


def start_dictionary(model: LatentModel, x: Tensor, how: str, generator: torch.Generator) -> None:
    """Set the linear paths of decoder and encoder, where there are any, from some rows x, (n, D).

    The output without any unit becomes the mean row. Atoms are scaled so that the coefficients of the rows used have
    a root mean square of 1, as the prior has where a unit is on. Deep networks beside linear paths begin at 0.
    """
    decoder, encoder = linear_path(model.decoder), linear_path(model.encoder)
    first = model.likelihood.begin(x)
    if how == "random" or decoder is None or encoder is None or first is None:
        return
    n, d = decoder.weight.shape[-1], x.shape[1]
    mean, gain = x.mean(0), first.slope
    with torch.no_grad():
        if how in ATOMS:
            atoms = ATOMS[how](x.cpu(), n, generator).to(x)
        else:
            atoms = decoder.weight[:d].T / gain
        atoms = atoms / torch.linalg.vector_norm(atoms, dim=1, keepdim=True).clamp_min(1e-12)
        share = model.prior.marginal(model.encode).p_on.mean().clamp(1 / len(x), 0.5)
        found = model.posterior.matched(atoms, x - mean, float(share))
        if found is None:
            return
        atoms, weight, bias, z = found
        residual = x - mean
        made = z @ atoms
        shrink = ((made * residual).sum() / made.square().sum().clamp_min(1e-12)).clamp(0.05, 1.0) if SHRINK else 1.0
        decoder.weight.zero_()
        decoder.weight[:d] = shrink * atoms.T * gain[:, None]
        decoder.bias.copy_(first.raw)
        _quiet(model.decoder)
        encoder.weight.copy_(weight)
        encoder.bias.copy_(bias - weight @ mean)
        _quiet(model.encoder)


SHRINK = True


def _quiet(network: torch.nn.Module) -> None:
    """Set the last layer of the deep network beside a linear path to zero."""
    if isinstance(network, Skip):
        last = [m for m in network.deep.modules() if isinstance(m, Linear)][-1]
        last.weight.mul_(QUIET)
        last.bias.mul_(QUIET)


QUIET = 0.0
