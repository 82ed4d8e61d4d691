r"""Where a dictionary begins: atoms from the data, gates that look for them, each open for its share of the rows.

The linear path of a decoder, z -> W z + b, is a dictionary: column j of W is the atom of unit j. If the encoder has a
linear path too, it can begin as a matched filter. With random weights most units explain nothing at first, their gates
close, and they never open again. Here every unit begins with something to explain, in as many rows as its prior
expects: the KL of its gate starts near 0.

.. math:: z_j = \frac{u_j^\top (x - \bar x)}{s_j}, \qquad
   \mathrm{logit}\, p_j = g\, \frac{v_j^\top (x - \bar x) - t_j}{\mathrm{sd}_x(v_j^\top x)}, \qquad w_j = c\, s_j u_j

u_j is the direction of atom j and v_j that of its gate; t_j is the quantile above which the share of rows lies that
the prior expects, s_j the root mean square of the projections of those rows, so that z has the prior's size. c is the
least-squares factor of the sum of atoms: rows have several units on, and these overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparsevae.distributions.family import Matched
from sparsevae.latent.model import LatentModel
from sparsevae.networks.dense import Linear, Skip, linear_path

ROWS = 4096  # rows that a start looks at


class Directions(NamedTuple):
    """Unit vectors of the atoms and of their gates, (J, D) each."""

    atoms: Tensor
    gates: Tensor


def _unit(directions: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
    return directions / length.clamp_min(1e-12)


def _rows(x: Tensor, n: int, share: float, generator: torch.Generator) -> Directions:
    """Rows as atoms; if there are fewer, differences of random pairs follow."""
    order = torch.randperm(len(x), generator=generator)[:n]
    one, other = (torch.randint(len(x), (n - len(order),), generator=generator) for _ in range(2))
    found = _unit(torch.cat([x[order], x[one] - x[other]]))
    return Directions(found, found)


def _kmeans(x: Tensor, n: int, share: float, generator: torch.Generator) -> Directions:
    """Centres of k-means as atoms, at most half as many as rows; rows follow."""
    k = min(n, max(1, len(x) // 2))
    centres = clusters(x, k, generator)[0]
    more = _rows(x, n - k, share, generator).atoms
    found = _unit(torch.cat([centres, more]))
    return Directions(found, found)


def _subspaces(x: Tensor, n: int, share: float, generator: torch.Generator) -> Directions:
    """As many clusters as 1 / share; each has its own units, with its principal directions as atoms.

    The gates of a cluster look for its rows (least squares on membership), so that rows of one cluster have the same
    units on: a start for priors with patterns.
    """
    k = max(1, min(round(1 / share), n, len(x) // 4))
    _, labels = clusters(x, k, generator)
    member = torch.nn.functional.one_hot(labels, k).to(x)
    ridge = 1e-2 * x.square().sum(0).mean().clamp_min(1e-6) * torch.eye(x.shape[1])
    discriminants = torch.linalg.solve(x.T @ x + ridge, x.T @ (member - member.mean(0))).T  # (k, D)
    atoms, gates = [], []
    for c in range(k):
        own = n // k + (c < n % k)
        directions = torch.linalg.svd(x[labels == c], full_matrices=False).Vh[:own]
        missing = own - len(directions)
        atoms.append(torch.cat([directions, _rows(x, missing, share, generator).atoms]))
        gates.append(discriminants[c].expand(own, -1))
    return Directions(torch.cat(atoms), _unit(torch.cat(gates)))


def clusters(x: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Centres (k, D) and labels (n,) of k-means."""
    from sklearn.cluster import MiniBatchKMeans

    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    found = MiniBatchKMeans(k, random_state=seed, n_init=1, max_iter=20).fit(x.numpy())
    return torch.from_numpy(found.cluster_centers_).to(x), torch.from_numpy(found.labels_).long()


ATOMS: dict[str, Callable[[Tensor, int, float, torch.Generator], Directions]] = {
    "rows": _rows,
    "kmeans": _kmeans,
    "subspaces": _subspaces,
}
"""Where atoms come from, by name: centred rows (n, D), number of units, share of rows -> directions."""

STARTS = ("random", "transpose", *ATOMS)
"""Legal values of `start`: random weights; atoms of the random decoder; atoms from the data."""


def can_start(model: LatentModel) -> bool:
    """True if there are linear paths to begin with, gates that open for a share of rows, and a start of p(x|z)."""
    paths = linear_path(model.decoder), linear_path(model.encoder)
    return None not in paths and model.posterior.startable and model.likelihood.startable


def start_dictionary(model: LatentModel, x: Tensor, how: str, generator: torch.Generator) -> None:
    """Set the linear paths of decoder and encoder from some rows x, (n, D), as above.

    The output without any unit becomes the mean row. Deep networks beside the linear paths begin at 0.
    """
    if how == "random" or not can_start(model):
        return
    decoder, encoder = linear_path(model.decoder), linear_path(model.encoder)
    assert decoder is not None
    assert encoder is not None
    x = x.detach().cpu().float()
    first = model.likelihood.begin(x)
    n, mean, d = decoder.weight.shape[-1], x.mean(0), x.shape[1]
    share = min(max(model.prior.share(), 1 / len(x)), 0.5)
    with torch.no_grad():
        if how == "transpose":
            found = _unit(decoder.weight[:d].cpu().T)
            directions = Directions(found, found)
        else:
            directions = ATOMS[how](x - mean, n, share, generator)
        matched = filters(directions, x - mean, share)
        reading = model.posterior.matched(matched)
        made = matched.code @ (matched.size[:, None] * directions.atoms)
        overlap = ((made * (x - mean)).sum() / made.square().sum().clamp_min(1e-12)).clamp(0.05, 1.0)
        atoms = overlap * matched.size[:, None] * directions.atoms
        decoder.weight.zero_()
        decoder.weight[:d] = (atoms * first.slope).T
        decoder.bias.copy_(first.raw)
        encoder.weight.copy_(reading.weight)
        encoder.bias.copy_(reading.bias.to(encoder.bias) - encoder.weight @ mean.to(encoder.weight))
    for network in (model.decoder, model.encoder):
        _silence(network)


_GAIN = 2.0  # of gates: logits per standard deviation of the projection


def filters(directions: Directions, x: Tensor, share: float) -> Matched:
    """Matched filters of centred rows x, (n, D), each open for a share of them."""
    seen, opening = x @ directions.atoms.T, x @ directions.gates.T
    least = torch.quantile(opening, 1 - share, 0)
    on = opening >= least
    size = ((seen.square() * on).sum(0) / on.sum(0).clamp_min(1)).sqrt().clamp_min(1e-6)
    steep = _GAIN / opening.std(0, correction=0).clamp_min(1e-6)
    return Matched(
        size,
        value=directions.atoms / size[:, None],
        gate=steep[:, None] * directions.gates,
        threshold=steep * least,
        code=torch.where(on, seen / size, 0.0),
    )


def _silence(network: nn.Module) -> None:
    """Set the last layer of the deep network beside a linear path to zero."""
    if isinstance(network, Skip):
        last = [m for m in network.deep.modules() if isinstance(m, Linear)][-1:]
        for layer in last:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
