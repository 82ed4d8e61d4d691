"""Several models of one shape trained as one: seeds, weights, alphas and variances side by side.

Every layer carries a leading member dimension, so a GPU that one small model leaves idle trains ten.
Members start from the weights (and pseudo-inputs) that they would have alone and draw their own noise; batches are
shared.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

import sparsevae as sv
from sparsevae.distributions.discrete_draws import Temperature
from sparsevae.distributions.gaussian import normal_by_variance
from sparsevae.estimator.learning import after_training
from sparsevae.inputs.rows import place
from sparsevae.latent.objective import Objective
from sparsevae.latent.priors import FixedCapped, FixedCounts, FixedOneHots, FixedSpikeSlab, Prior, StandardNormal
from sparsevae.latent.pseudo_inputs import PseudoInputs
from sparsevae.latent.terms import AggregateSparsity
from sparsevae.likelihoods.base import Likelihood
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.sampling.gradients import SlopeAnnealed
from sparsevae.training.loop import fit

__all__ = ["fit_together"]

_OWN = ("alpha", "beta", "gamma", "sparsity", "variance")  # what members may differ in, beside the seed


class _Variances(FixedGaussianData):
    """A Gaussian likelihood whose variance differs between members."""

    variances: Tensor

    def __init__(self, variances: Sequence[float]) -> None:
        super().__init__(variances[0])
        self.register_buffer("variances", torch.tensor(list(variances))[:, None, None], persistent=False)

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, self.variances.expand_as(raw))


def _likelihood(members: Sequence[Any]) -> Likelihood:
    first = members[0]
    if first.likelihood_ == "fixed-gaussian":
        return _Variances([float(m.variance) for m in members])
    shared: Likelihood = first.model_.likelihood
    return shared


def _prior(members: Sequence[Any]) -> Prior:
    prior: Prior = members[0].build(members[0].fitted_.data, None).model.prior
    if isinstance(prior, FixedSpikeSlab):
        return FixedSpikeSlab(prior.n_components, [float(m.value("alpha")) for m in members])
    if isinstance(prior, PseudoInputs):
        (n_inputs, n_features), n = prior.inputs.shape, len(members)
        selection = type(prior.selection)(n_features, n_inputs, (n,))
        return PseudoInputs(prior.n_components, n_features, n_inputs, selection, (n,))
    alike = len({float(getattr(m, "alpha", 1)) for m in members}) == 1
    if type(prior) is StandardNormal or (isinstance(prior, (FixedCounts, FixedCapped, FixedOneHots)) and alike):
        for p in prior.parameters():
            p.data = p.data.expand(len(members), 1, *p.shape).clone()  # (n, 1, J) meets (n, B, J)
        return prior
    raise TypeError(f"priors of type {type(prior).__name__} cannot be stacked; train these models one by one.")


def _objective(members: Sequence[Any], device: torch.device) -> Objective:
    """The first member's terms, with every member's own weights and, for a learned prior, its own alpha."""
    objective: Objective = members[0].fitted_.objective
    if isinstance(members[0], sv.PseudoVSC):
        *others, _ = objective.terms  # the last is the aggregate sparsity, with one alpha
        alphas = torch.tensor([float(m.alpha) for m in members], device=device)
        objective = Objective(*others, AggregateSparsity(alphas), weights=members[0].fitted_.weights)
    for name in objective.knobs:
        setattr(objective, name, torch.tensor([m.fitted_.weights[name] for m in members]))
    return objective.to(device)


def _check_alike(members: Sequence[Any]) -> None:
    """Refuse members that the first one's networks, schedules and training settings would not serve."""

    def settings(m: Any) -> dict[str, Any]:
        own = {k: v for k, v in m.get_params(deep=False).items() if k not in (*_OWN, "training")}
        training = {f"training.{k}": v for k, v in m.training_settings().get_params().items() if k != "seed"}
        return {"class": type(m).__name__, **own, **training}

    first = settings(members[0])
    for other in map(settings, members[1:]):
        for name, value in first.items():
            if other[name] != value:  # of one class, so that both have it: the class came first
                raise ValueError(
                    f"models of a stack share all but {', '.join(_OWN)} and training.seed; got {name}={value!r} and "
                    f"{name}={other[name]!r}. Train these models apart."
                )


def fit_together(members: Sequence[Any], X: Any) -> None:
    """Fit estimators of one class and one shape on X, each from its own weights, in the first one's order of rows.

    Noise is drawn for all together, so a member ends elsewhere in another company, as it would with another seed.
    They may differ in seed, in `variance`, in `alpha` and in the weights of their terms (`beta`, `gamma`, `sparsity`);
    all else must be the same. `history_` holds means over the members.
    """
    _check_alike(members)
    for m in members:
        rows = m.prepare(X).fitted_.rows(X)
    first, n = members[0], len(members)
    settings = first.training_
    device = settings.torch_device()
    made = first.build(first.fitted_.data._replace(members=(n,)), None)
    stack = made.model
    stack.likelihood, stack.prior = _likelihood(members), _prior(members)
    for m in stack.posterior.modules():
        if isinstance(m, Temperature) and m.raw is not None:
            m.raw.data = m.raw.data.expand(n).clone()
        if isinstance(m, SlopeAnnealed):  # its slope is part of the distribution, and of the state: one per member
            m.slope = m.slope.expand(n).clone()
    stack.to(device)
    states, wanted = [m.model_.state_dict() for m in members], stack.state_dict()
    stack.load_state_dict({k: torch.stack([s[k] for s in states]).view_as(wanted[k]) for k in wanted})
    data = place(rows, device, resident=True)
    for m in members:
        m.fitted_.n_rows = data.shape[0]
    objective = _objective(members, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        history, _ = fit(
            stack.train(), objective, data, settings, schedules=made.schedules, prepare=first.scaling_, label="stack"
        )
    found = stack.state_dict()
    for i, m in enumerate(members):
        m.model_.load_state_dict({k: v[i].view_as(states[i][k]) for k, v in found.items()})
        m.model_.eval()
        m.history_.extend(history)
        m.fitted_.n_steps = settings.total_steps(data.shape[0])
        after_training(m, rows)
