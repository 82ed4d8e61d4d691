"""Pseudo-inputs: a prior from the posteriors of a few learned inputs, with weights that depend on x (VSC, UAI).

The KL is of q(z|x) and q(z|x_u*), where a selection function selects u* among U learned pseudo-inputs. There are three
selection functions x (B, D) -> weights (B, U): ours and two published ones. Samples and bounds always use the mixture
sum_u rho_u q(z|x_u), where rho is the mean of the weights over the training rows (erratum 32). Leading dimensions are
members: each has its own inputs, selection and rho.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import logsigmoid

from sparsevae.distributions.mixtures import Selected, SpikeSlabMixture
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.latent.priors import Encode, Prior
from sparsevae.networks.dense import Linear


class Selection(nn.Module):
    """x (*members, B, D) or shared (B, D) -> weights (*members, B, U) from one linear layer."""

    charged: ClassVar[bool] = False  # whether the KL includes KL(w || rho)

    def __init__(self, n_features: int, n_inputs: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.layer = Linear(n_features, n_inputs, members)

    def sharpen(self, logits: Tensor) -> Tensor:
        """The gate logits of the prior's components, (*members, U, J), from those of q(z|x_u)."""
        return logits


class Softmax(Selection):
    """Ours: softmax(logits / temperature); the KL includes KL(w || rho), so that the objective is a bound."""

    charged: ClassVar[bool] = True
    temperature: ClassVar[float] = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.layer(x) / self.temperature, -1)


class Paper(Selection):
    """That of the supplement: ReLU, divided by the sum, then sigmoid(60 (w - 1/2)), not normalised.

    If no input has more than half of the sum, which is how 20 inputs start, every weight and its gradient are small
    (about 2e-12 if the shares are small): the KL has no effect and may never get one.
    """

    def forward(self, x: Tensor) -> Tensor:
        positive = torch.relu(self.layer(x))
        share = positive / positive.sum(-1, keepdim=True).clamp_min(1e-12)
        return torch.sigmoid(60 * (share - 0.5))


class Authors(Selection):
    """That of the authors' code: sigmoids normalised to sum 1; gates of the components are sigmoid(10 (p_on - 1/2))."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(logsigmoid(self.layer(x)), -1)  # sigmoids over their sum, without 0/0

    def sharpen(self, logits: Tensor) -> Tensor:
        return 10 * (torch.sigmoid(logits) - 0.5)


SELECTIONS: dict[str, type[Selection]] = {"softmax": Softmax, "paper": Paper, "authors": Authors}
"""The selection functions a constructor may name."""


class PseudoInputs(Prior):
    """A mixture of the posteriors q(z|x_u) at U learned inputs x_u; in the KL its weights depend on x.

    Parameters
    ----------
    n_components, n_features, n_inputs : int
        J, D and U.
    selection : Selection
        x -> weights over inputs.
    members : tuple of int
        Leading dimensions of a stack of models, as those of `selection` and the encoder.
    """

    rho: Tensor
    rows: Tensor

    def __init__(
        self, n_components: int, n_features: int, n_inputs: int, selection: Selection, members: tuple[int, ...] = ()
    ) -> None:
        super().__init__(n_components)
        self.inputs = nn.Parameter(torch.zeros(*members, n_inputs, n_features))
        self.selection = selection
        self.register_buffer("rho", torch.full((*members, n_inputs), 1.0 / n_inputs))
        self.register_buffer("rows", torch.zeros(members))  # the number of rows that rho is the mean over

    def _components(self, encode: Encode) -> SpikeSlab:
        q = encode(self.inputs)
        if not isinstance(q, SpikeSlab):
            raise TypeError(f"pseudo-inputs need a posterior that is a SpikeSlab, got {type(q).__name__}.")
        logits = self.selection.sharpen(q.logits)
        return SpikeSlab(logits, q.loc, q.scale, validate_args=False, finite=True)

    def marginal(self, encode: Encode) -> Distribution:
        return SpikeSlabMixture(self._components(encode), self.rho)

    def forward(self, x: Tensor, encode: Encode) -> Distribution:
        """The p of KL(q(z|x) || p). Outside training weights are normalised and KL(w || rho) is included for every
        selection: the KL is then an upper bound on that to the mixture.
        """
        choice = self.selection(x)
        charged = self.selection.charged or not self.training
        weights = choice if self.training else normalised(choice)
        return Selected(self._components(encode), self.rho, weights, charged=charged)

    def start(self, x: Tensor, encode: Encode) -> None:
        """Set the inputs to the first rows of x, (*members, n, D) or shared (n, D), repeated if n < U."""
        index = torch.arange(self.inputs.shape[-2], device=x.device) % x.shape[-2]
        with torch.no_grad():
            self.inputs.copy_(x[..., index, :])

    def after_training(self, x: Tensor) -> None:
        """Update rho, the mean of the normalised weights over the rows of all calls."""
        share = normalised(self.selection(x)).sum(-2)
        seen, new = self.rows.unsqueeze(-1), x.shape[-2]
        rho = (self.rho * seen + share) / (seen + new)
        rho = rho.clamp_min(1e-6)  # an input that no row selects keeps some weight
        self.rho.copy_(rho / rho.sum(-1, keepdim=True))
        self.rows.add_(new)


def normalised(choice: Tensor) -> Tensor:
    """Weights (..., U) divided by their sum."""
    return choice / choice.sum(-1, keepdim=True).clamp_min(1e-30)
