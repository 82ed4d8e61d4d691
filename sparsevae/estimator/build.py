"""What a kind of data means to a model: legal settings, defaults, scaling, and the likelihood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Input
from sparsevae.inputs.stats import Stats
from sparsevae.likelihoods.base import REGISTRY, Likelihood
from sparsevae.likelihoods.choose import choose
from sparsevae.networks.recurrent import Embedding
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def training_for(data: Input, training: Training, n_rows: int) -> Training:
    """Training settings for a run on so many rows, where they were left open: length, batches, rate."""
    return training.resolved(**data.training_defaults(n_rows, training.batch_size))


def check_settings(est: SparseCoder, data: Input) -> None:
    """Refuse constructor arguments that have no meaning for this kind of data."""
    settings = est.get_params(deep=False) | {"training.binarise": est.training_settings().binarise}
    data.check_settings(type(est).__name__, settings)


def choose_likelihood(est: SparseCoder, X: Any) -> None:
    """Choose likelihood and scaling by the rows that training will see; refuse rows that cannot be described."""
    data = est.fitted_.input.stats(X)
    if data is None:
        return
    asked, binarise = getattr(est, "likelihood", "auto"), est.training_settings().binarise
    est.fitted_.input.likelihood_name = choose(asked, data, est.scale, binarise=binarise)
    likelihood = likelihood_for(est)
    legal = likelihood.scalings
    scale = legal[0] if est.scale == "auto" else est.scale
    if scale not in legal:
        names = " or ".join(map(repr, dict.fromkeys(("auto", *legal))))
        raise ValueError(f"with likelihood={likelihood.name!r} scale must be {names}; got {est.scale!r}.")
    least = likelihood.least_variance if est.decodes else 0.0
    est.fitted_.input.prepare = scalings.choose(scale, data, least)
    check_support(est, data)


def check_support(est: SparseCoder, data: Stats | None) -> None:
    """Refuse data that the likelihood cannot describe, before training starts."""
    if data is None:
        return
    likelihood, scaling = likelihood_for(est), est.fitted_.input.prepare
    span = scaling.span(data)
    problem = likelihood.refuses(span)
    if problem is None and est.training_settings().binarise and likelihood.support != (0.0, 1.0):
        expected = "likelihood='bernoulli' and values in [0, 1]"
        problem = f"training.binarise needs {expected}, got {span.low:g} to {span.high:g}"
    if problem:
        raise ValueError(f"{problem} after scale={est.scale!r}. Rescale X, or use likelihood='gaussian'.")
    if likelihood.atom and scaling.name != "none":
        raise ValueError(
            f"likelihood={likelihood.name!r} is about exact zeros, which scale={est.scale!r} does not keep for "
            "these data. Use scale='none'."
        )


def likelihood_for(est: SparseCoder) -> Likelihood:
    """The family of p(x|z)."""
    settings = {name: getattr(est, name, 1.0) for name in ("variance_floor", "variance", "hidden_")}
    return REGISTRY[est.likelihood_].of(settings | est.fitted_.input.sizes())


def embedding_for(data: Input) -> Embedding | None:
    """A vector for every word, for networks of texts."""
    sizes = data.sizes()
    return Embedding(sizes["words"], sizes["embedding"]) if sizes else None
