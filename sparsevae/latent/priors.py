"""Priors: (x, encode) -> Distribution over units. All but `PseudoInputs` ignore both arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.capped import Capped, shared_logit
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.logit_beta import LogitBeta
from sparsevae.distributions.mixtures import PatternSpikeSlab, TwoNormals, spike_slab
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.distributions.spike_slab import LogNormalSpikeSlab, SpikeSlab, logit
from sparsevae.networks.dense import Layer

Encode = Callable[[Tensor], Distribution]


class Prior(nn.Module):
    """p(z), shape (J,) or (*members, 1, J), broadcast against q(z|x) of shape (*members, B, J).

    `marginal` is p(z), from which samples are drawn; `forward` is the p of KL(q(z|x) || p), which is the marginal
    unless it depends on x. A prior may initialise itself from rows before training (`start`) and update itself from
    rows after it (`after_training`), both in the units of the networks.
    """

    def __init__(self, n_components: int) -> None:
        super().__init__()
        self.n_components = n_components

    def marginal(self, encode: Encode) -> Distribution:
        raise NotImplementedError

    def forward(self, x: Tensor, encode: Encode) -> Distribution:
        return self.marginal(encode)

    def share(self) -> float:
        """P(on) of a unit in the mean before training, for priors with gates."""
        return 0.1

    def start(self, x: Tensor, encode: Encode) -> None:
        """Initialise from some rows, (n, D), before the first step."""

    def after_training(self, x: Tensor) -> None:
        """Update from all training rows, block by block, (n, D), after the last step."""


class StandardNormal(Prior):
    """N(0, 1) for every unit."""

    loc: Tensor
    scale: Tensor

    def __init__(self, n_components: int) -> None:
        super().__init__(n_components)
        self.register_buffer("loc", torch.zeros(n_components), persistent=False)
        self.register_buffer("scale", torch.ones(n_components), persistent=False)

    def marginal(self, encode: Encode) -> Distribution:
        return normal(self.loc, self.scale)


class FixedSpikeSlab(StandardNormal):
    """Each unit is on with probability alpha, and then N(0, 1). With alpha = 1 it is the standard normal prior.

    `alpha` is a number, or a list of one per member of a stack of models.
    """

    logits: Tensor

    def __init__(self, n_components: int, alpha: float | list[float]) -> None:
        super().__init__(n_components)
        if isinstance(alpha, list):
            logits = torch.tensor([logit(a) for a in alpha])[:, None, None].expand(-1, 1, n_components)
        else:
            logits = torch.full((n_components,), logit(alpha))
        self.finite = bool(logits.isfinite().all())
        self.register_buffer("logits", logits.contiguous(), persistent=False)

    def share(self) -> float:
        return float(torch.sigmoid(self.logits).mean())

    def marginal(self, encode: Encode) -> Distribution:
        return SpikeSlab(self.logits, self.loc, self.scale, validate_args=False, finite=self.finite)


class FixedLogNormal(FixedSpikeSlab):
    """Each unit is on with probability alpha, and then log-normal: log z ~ N(-1, 1), so that E[z^2 | on] = 1."""

    def __init__(self, n_components: int, alpha: float | list[float]) -> None:
        super().__init__(n_components, alpha)
        self.loc.fill_(-1.0)

    def marginal(self, encode: Encode) -> Distribution:
        return LogNormalSpikeSlab(self.logits, self.loc, self.scale, validate_args=False, finite=self.finite)


class FixedCounts(Prior):
    """`cap` draws, each on with probability p_on (the paper's lambda0), then a uniform feature (alpha = 1/K).

    With `learned`, lambda0 and the probabilities of features are parameters.
    """

    gate: Tensor
    features: Tensor

    def __init__(
        self,
        n_components: int,
        cap: int,
        p_on: float,
        kl: Literal["tight", "paper"] = "tight",
        *,
        learned: bool = False,
    ) -> None:
        super().__init__(n_components)
        self.cap, self.kl = cap, kl
        for name, start in (("gate", torch.tensor([logit(p_on)])), ("features", torch.zeros(n_components))):
            if learned:
                self.register_parameter(name, nn.Parameter(start))
            else:
                self.register_buffer(name, start, persistent=False)

    def marginal(self, encode: Encode) -> Distribution:
        return Counts(self.gate, self.features, self.cap, kl=self.kl)


class FixedCapped(Prior):
    """Identical gates, at most `cap` of them on, with an expected number of share min(cap, J) on.

    If cap >= J, `share` is P(on). With `learned`, the logits are parameters that start at these values.
    """

    def __init__(self, n_components: int, cap: int, share: float, *, learned: bool = False) -> None:
        super().__init__(n_components)
        self.cap = cap
        start = torch.full((n_components,), shared_logit(n_components, cap, share))
        self.logits = nn.Parameter(start, requires_grad=learned)

    def marginal(self, encode: Encode) -> Distribution:
        return Capped(self.logits, self.cap)


class FixedOneHots(Prior):
    """Groups of `categories` units, one per group on, uniformly; with `learned`, the logits are parameters."""

    def __init__(self, n_components: int, categories: int, *, learned: bool = False) -> None:
        super().__init__(n_components)
        self.categories = categories
        self.logits = nn.Parameter(torch.zeros(n_components), requires_grad=learned)

    def marginal(self, encode: Encode) -> Distribution:
        return OneHotCode(self.logits, self.categories)


class BetaGates(StandardNormal):
    """gamma ~ Beta(alpha, beta) per unit, gamma = P(off), and z given gamma off or N(0, 1): HSVAE's prior.

    `gates` is p(gamma), of its logit, and `given` p(z|gamma); `marginal` is p(z), with gamma integrated out:
    p_on = beta / (alpha + beta).
    """

    alpha: Tensor
    beta: Tensor

    def __init__(self, n_components: int, alpha: float, beta: float, spike: float = 0.0) -> None:
        super().__init__(n_components)
        self.spike = spike
        for name, value in (("alpha", alpha), ("beta", beta)):
            self.register_buffer(name, torch.full((n_components,), float(value)), persistent=False)

    def share(self) -> float:
        return float((self.beta / (self.alpha + self.beta)).mean())

    def gates(self) -> LogitBeta:
        return LogitBeta(self.alpha, self.beta, validate_args=False)

    def given(self, gamma: Tensor) -> Distribution:
        """p(z|gamma) for the logit of gamma, (..., J)."""
        return spike_slab(-gamma, self.loc, self.scale, self.spike)

    def marginal(self, encode: Encode) -> Distribution:
        return self.given(self.gates().mode)  # the mode of a logit is the logit of E[gamma]


class SparseNormals(Prior):
    """TwoNormals per unit: narrow with probability `off`, else N(0, 1); MAT's sparse prior."""

    off: Tensor

    def __init__(self, n_components: int, off: float, spike: float) -> None:
        super().__init__(n_components)
        self.spike = spike
        self.register_buffer("off", torch.tensor(float(off)), persistent=False)

    def marginal(self, encode: Encode) -> Distribution:
        return TwoNormals(self.off, self.spike, self.n_components)


class Patterns(Prior, Layer):
    """Which units are on follows a learned mixture of C patterns (`PatternSpikeSlab`); slabs are N(0, 1).

    The patterns begin as the mean gates of C clusters of rows, clustered by their gates.
    """

    def __init__(self, n_components: int, patterns: int, alpha: float) -> None:
        super().__init__(n_components)
        self.alpha = alpha
        self.logits = nn.Parameter(torch.empty(patterns, n_components))
        self.weights = nn.Parameter(torch.empty(patterns))

    def reset(self, generator: torch.Generator) -> None:
        """P(on) near alpha in every pattern, with random differences."""
        with torch.no_grad():
            self.logits.normal_(logit(self.alpha), 1.0, generator=generator)
            self.weights.zero_()

    def share(self) -> float:
        return self.alpha

    def marginal(self, encode: Encode) -> Distribution:
        return PatternSpikeSlab(self.logits, self.weights)

    def start(self, x: Tensor, encode: Encode) -> None:
        from sklearn.cluster import MiniBatchKMeans

        with torch.no_grad():
            on: Tensor = encode(x).p_on.cpu()  # type: ignore[attr-defined]
            overall = on.mean(0).clamp(0.1 * self.alpha, 0.9)
            count = min(len(self.weights), len(on))
            groups = torch.from_numpy(MiniBatchKMeans(count, random_state=0, n_init=1, max_iter=20).fit_predict(on))
            for c in range(len(self.weights)):
                own = on[groups == c]
                p = (own.sum(0) + 2 * overall) / (len(own) + 2)
                self.logits[c] = torch.logit(p.clamp(1e-3, 0.97)).to(self.logits)
                self.weights[c] = math.log((len(own) + 1) / len(on))
