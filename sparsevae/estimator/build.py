"""What a kind of data means to a model: legal settings, defaults, scaling, and the likelihood."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.arrays import Arrays, check_resolution, stats_of
from sparsevae.inputs.base import Input
from sparsevae.inputs.stats import Stats
from sparsevae.inputs.texts import Texts
from sparsevae.likelihoods.base import Likelihood
from sparsevae.likelihoods.choose import choose
from sparsevae.likelihoods.tokens import TokenData
from sparsevae.networks.recurrent import Embedding, Projection
from sparsevae.threads import threads
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder as Learner

DEFAULT_HIDDEN = {"numbers": (400,), "texts": (128,)}
"""What hidden=None means, by kind of data."""

_LEAST_STEPS, _PASSES, _BATCH, _RATE = 1_000, 6, 32, 1e-2  # a run on texts, where nothing was said


def training_for(kind: Input, training: Training, n_rows: int) -> Training:
    """Training settings for a run on so many rows, where they were left open: length, batches, rate.

    Texts have small batches at a high rate: a step reads each of a text's words in turn, however few the texts.
    """
    if not isinstance(kind, Texts):
        return training.resolved()
    size = min(training.batch_size or _BATCH, max(1, n_rows))
    steps = max(_LEAST_STEPS, math.ceil(_PASSES * n_rows / size))
    return training.resolved(steps=steps, batch_size=_BATCH, learning_rate=_RATE)


def check_settings(est: Learner, kind: Input) -> None:
    """Refuse constructor arguments that have no meaning for this kind of data."""
    if not isinstance(kind, Texts):
        if est.network == "gru":
            raise ValueError(
                "network='gru' reads texts, and X holds none: use network='auto', 'dense' or 'conv', or pass a list "
                "of str."
            )
        return
    if "text" not in est.get_params(deep=False):
        raise ValueError(f"{type(est).__name__} needs rows of numbers, and X holds texts. HSVAE takes texts.")
    legal: dict[str, tuple[Any, ...]] = {
        "network": ("auto", "gru"),
        "likelihood": ("auto",),
        "scale": ("auto", "none"),
        "image_shape": (None,),
        "encoder": (None,),
        "decoder": (None,),
        "shared_layers": (0,),  # of models that have it: a GRU shares all it has
    }
    for key, values in legal.items():
        if (value := getattr(est, key, values[0])) not in values:
            raise ValueError(f"for texts {key} must be {' or '.join(map(repr, values))}, got {value!r}.")
    if est.training_settings().binarise:
        raise ValueError("training.binarise is for pixels, and X holds texts: leave it False.")
    if est.hidden is not None and len(est.hidden) != 1:
        raise ValueError(f"for texts hidden must be one size, that of the GRU's states, got {est.hidden!r}.")


def choose_likelihood(est: Learner, kind: Input, X: Any) -> None:
    """Choose scaling and likelihood by the rows that training will see; refuse those that cannot be learned."""
    if not isinstance(kind, Arrays):
        return
    check_resolution(X)
    with threads(1):  # sums depend on how many threads share them, and a resumed run must find the same scaling
        data = stats_of(X)
    kind.scaling = scalings.choose(est.scale, data, X.dtype)
    kind.likelihood_name = getattr(est, "likelihood", "auto")
    if kind.likelihood_name == "auto":
        levels = kind.levels(data)
        binary = bool(levels) and levels <= {0.0, 1.0}
        kind.likelihood_name = "bernoulli" if binary or est.training_settings().binarise else "gaussian"
    if kind.likelihood_name == "gaussian" and est.decodes:
        # what varies less than its variance's floor would go unseen
        kind.scaling = scalings.choose(est.scale, data, X.dtype, least=est.variance_floor)
    check_support(est, kind, data)


def check_support(est: Learner, kind: Input, data: Stats) -> None:
    """Refuse data that the likelihood cannot describe, before training starts."""
    if not isinstance(kind, Arrays):  # every text can be described: unknown words are words
        return
    likelihood, (low, high) = likelihood_for(est, kind), kind.span(data)
    problem = likelihood.check(low, high)
    if (
        problem is None
        and est.training_settings().binarise
        and (kind.likelihood_name != "bernoulli" or low < 0 or high > 1)
    ):
        problem = f"training.binarise needs likelihood='bernoulli' and values in [0, 1], got {low:g} to {high:g}"
    if problem:
        raise ValueError(f"{problem} after scale={est.scale!r}. Rescale X, or use likelihood='gaussian'.")
    if likelihood.atom and not kind.keeps_values():
        raise ValueError(
            f"likelihood={kind.likelihood_name!r} is about exact zeros, which scale={est.scale!r} does not keep for "
            "these data. Use scale='none'."
        )


def likelihood_for(est: Learner, kind: Input) -> Likelihood:
    """The family of p(x|z)."""
    if isinstance(kind, Texts):
        projection = Projection(est.hidden_[0], len(kind.vocabulary))
        return TokenData(projection, positions=kind.width, longest=int(kind.text.max_length) + 1)
    return choose(
        kind.likelihood_name, variance_floor=getattr(est, "variance_floor", 1.0), variance=getattr(est, "variance", 1.0)
    )


def embedding_for(kind: Input) -> Embedding | None:
    """A vector for every word, for networks of texts."""
    return Embedding(len(kind.vocabulary), int(kind.text.embedding)) if isinstance(kind, Texts) else None
