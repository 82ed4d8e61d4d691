"""Pseudo-inputs: a prior made of what the encoder says about a few learned inputs, chosen between by x (VSC, UAI).

q(z|x) is measured against q(z|x_u*), where a selection function picks u* among U learned pseudo-inputs. Three ways to
select are published or sound, each a map x (B, D) -> weights (B, U); the prior that samples and bounds use is always
the mixture sum_u rho_u q(z|x_u), rho the mean choice over the training rows (erratum 32). Leading dimensions mean
members: each has its own inputs, its own choice and its own rho.
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

    charged: ClassVar[bool] = False  # whether the KL pays for the choice

    def __init__(self, n_features: int, n_inputs: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.layer = Linear(n_features, n_inputs, members)

    def sharpen(self, logits: Tensor) -> Tensor:
        """Gate logits of the pseudo-inputs' codes, (*members, U, J), as the prior uses them."""
        return logits


class Softmax(Selection):
    """Ours: softmax(logits / temperature), normalised, and KL(w || rho) is paid: the objective is a bound."""

    charged: ClassVar[bool] = True
    temperature: ClassVar[float] = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.layer(x) / self.temperature, -1)


class Paper(Selection):
    """The supplement's: ReLU, divided by the sum, then sigmoid(60 (w - 1/2)), not normalised.

    Where no input has more than half of the sum, which is how 20 inputs start, every weight is about 2e-12 and so is
    its gradient: the KL is off and may stay so.
    """

    def forward(self, x: Tensor) -> Tensor:
        positive = torch.relu(self.layer(x))
        share = positive / positive.sum(-1, keepdim=True).clamp_min(1e-12)
        return torch.sigmoid(60 * (share - 0.5))


class Authors(Selection):
    """The authors' code: sigmoids, normalised to sum 1; pseudo-inputs' gates go through sigmoid(10 (p_on - 1/2))."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(logsigmoid(self.layer(x)), -1)  # sigmoids over their sum, without 0/0

    def sharpen(self, logits: Tensor) -> Tensor:
        return 10 * (torch.sigmoid(logits) - 0.5)


SELECTIONS: dict[str, type[Selection]] = {"softmax": Softmax, "paper": Paper, "authors": Authors}
"""The selection functions a constructor may name."""


class PseudoInputs(Prior):
    """U learned inputs, encoded by the model's own encoder; x chooses between them.

    Parameters
    ----------
    n_components, n_features, n_inputs : int
        J, D and U.
    selection : Selection
        x -> weights over inputs.
    members : tuple of int
        Leading dimensions of a stack of models, those of `selection` and of the encoder too.
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
        self.register_buffer("rows", torch.zeros(members))  # that rho is a mean over

    def _components(self, encode: Encode) -> SpikeSlab:
        q = encode(self.inputs)
        if not isinstance(q, SpikeSlab):
            raise TypeError(f"pseudo-inputs need an encoder that gives a SpikeSlab, got {type(q).__name__}.")
        logits = self.selection.sharpen(q.logits)
        return SpikeSlab(logits, q.loc, q.scale, validate_args=False, finite=True)

    def marginal(self, encode: Encode) -> Distribution:
        return SpikeSlabMixture(self._components(encode), self.rho)

    def forward(self, x: Tensor, encode: Encode) -> Distribution:
        """What q(z|x) is measured against. Outside training the choice is normalised and paid for, whatever the recipe:
        a KL that is reported is a bound on the one to the mixture.
        """
        choice = self.selection(x)
        if self.training:
            return Selected(self._components(encode), self.rho, choice, charged=self.selection.charged)
        return Selected(self._components(encode), self.rho, _normalised(choice), charged=True)

    def start(self, x: Tensor) -> None:
        """Begin at real rows, (*members, n, D) or shared (n, D); again from the first, where they are too few."""
        index = torch.arange(self.inputs.shape[-2], device=x.device) % x.shape[-2]
        with torch.no_grad():
            self.inputs.copy_(x[..., index, :])

    def after_training(self, x: Tensor) -> None:
        """rho = the mean of the normalised choice over all rows that it has seen, from one call to the next."""
        share = _normalised(self.selection(x)).sum(-2)
        seen, new = self.rows.unsqueeze(-1), x.shape[-2]
        rho = (self.rho * seen + share) / (seen + new)
        rho = rho.clamp_min(1e-6)  # an input that no row chose stays possible
        self.rho.copy_(rho / rho.sum(-1, keepdim=True))
        self.rows.add_(new)


def _normalised(choice: Tensor) -> Tensor:
    return choice / choice.sum(-1, keepdim=True).clamp_min(1e-30)
