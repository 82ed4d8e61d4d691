"""The second stage: a small VAE of the codes, so that samples come from where the codes really are.

A model is trained so that each q(z|x) is near the prior; their average over the data, the aggregate posterior
q(z) = mean_n q(z|x_n), need not be. Sparse codes show it: the prior switches units on independently, while data
combine sleeves with collars and never with bag handles (VSC, figure 12). Asperti's remedy, after Dai and Wipf, is to
learn q(z) with a second VAE,

    u ~ N(0, 1),  z ~ p(z|u),  x ~ p(x|z),

and here p(z|u) is the law of a code itself: for sparse codes a spike-and-slab whose gates and sizes both depend on u.
Asperti's other two remedies, epitomic VAEs and decoders with skip connections, are out of this library's scope.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from sparsevae.analysis.audit import check_coder, check_decoder
from sparsevae.checks import check_number
from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.estimator.coder import SparseCoder
from sparsevae.exceptions import SparsityWarning
from sparsevae.models.vae import VAE
from sparsevae.training.settings import Training

Array = np.ndarray[Any, Any]


def second_stage(
    est: SparseCoder,
    X: Any,
    *,
    n_components: int | None = None,
    hidden: tuple[int, ...] = (400, 400),
    variance_floor: float = 1e-3,
    n_draws: int = 1,
    training: Training | None = None,
) -> VAE:
    """Fit a VAE to the codes of X; `est.sample(n, second_stage=stage)` then draws through it.

    Both models stay ordinary ones: `stage.sample(n, noise=True)` are codes, which `est.inverse_transform` decodes; each
    is saved and loaded by itself; and when `est` learns again, a stage is to be fitted anew.
    The codes are hard draws from q(z|x), not modes: their spread is part of the aggregate posterior. Given u their
    units are independent, so codes of groups with one unit on, with a cap or of counts are refused: a second stage
    would draw codes that cannot be.

    Parameters
    ----------
    est : a fitted model.
    X : rows to take the codes of; the training rows, usually.
    n_components : width of u; as many as the model has units, at most 16, when not given.
    hidden : hidden layers of the second stage's encoder; its decoder mirrors them.
    variance_floor : least variance of a code's values given u.
    n_draws : codes drawn for each row. All are held in memory, (n_draws N, J) float32.
    training : None means the model's own seed, device and verbosity, a rate of 1e-3, a KL weight that grows over the
        first fifth of the run (noisy codes tempt a VAE to ignore u), and default settings otherwise.

    Returns
    -------
    VAE : the second stage, an ordinary estimator whose X are codes.

    Examples
    --------
    >>> import sparsevae as sv
    >>> from sparsevae.analysis.second_stage import second_stage
    >>> X = sv.data.load("digits").X
    >>> quick = sv.Training(steps=30, verbose=0)
    >>> est = sv.VAE(4, training=quick).fit(X)
    >>> stage = second_stage(est, X, n_components=2, hidden=(16,), training=quick)
    >>> stage.likelihood_
    'gaussian'
    >>> est.sample(3, second_stage=stage).shape, est.inverse_transform(stage.sample(3, noise=True)).shape
    ((3, 64), (3, 64))
    """
    check_coder("second_stage", est)
    check_number("n_draws", n_draws, "an integer above 0", lambda n: n > 0, whole=True)
    check_decoder("second_stage", est)
    _check_free(est)
    codes = est.draw_codes(X, n_draws, seed=est.training_settings().seed).reshape(
        -1, est.fitted_.n_units
    )  # (n_draws N, J)
    likelihood = _distribution(codes)
    stage = VAE(
        min(16, codes.shape[1]) if n_components is None else n_components,
        hidden=hidden,
        likelihood=likelihood,
        variance_floor=variance_floor,
        scale="standard" if likelihood == "gaussian" else "none",  # exact zeros stay where they are
        training=settings(est) if training is None else training,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SparsityWarning)  # of u, whose size and use are no claim about the model
        return stage.fit(codes)


def settings(est: SparseCoder, **changes: Any) -> Training:
    """How a second stage is trained unless told otherwise: the first stage's seed and machine, a gentler rate."""
    own = est.training_settings()
    defaults: dict[str, Any] = {
        "learning_rate": 1e-3,
        "kl_warmup": 0.2,
        "seed": own.seed,
        "device": own.device,
        "verbose": own.verbose,
    }
    return Training(**(defaults | changes))


def _check_free(est: SparseCoder) -> None:
    """Refuse codes whose units cannot take any value beside any other; their law says so, whatever x is."""
    posterior, n = est.model_.posterior, est.fitted_.n_units
    q = posterior(torch.zeros(1, posterior.width(n), device=est.fitted_.device))
    for dist in getattr(q, "parts", (q,)):
        if isinstance(dist, OneHotCode):
            rule = f"have exactly one unit on in each group of {dist.categories}"
        elif isinstance(dist, Counts):
            rule = "are counts"
        elif isinstance(dist, Capped) and not dist.unconstrained:
            rule = f"have at most {dist.cap} of {dist.event_shape[0]} units on"
        else:
            continue
        raise ValueError(
            f"codes of this {type(est).__name__} {rule}, which no second stage describes: given u, its units are "
            "independent. It needs free gates or real values: use VAE, VSC, HSVAE or DiscreteVAE(categories=None)."
        )


def _distribution(codes: Array) -> str:
    """The likelihood that describes these codes: on or off, off or of some size, or dense."""
    zero = codes == 0
    if not zero.any():
        return "gaussian"
    if (zero | (codes == 1)).all():
        return "bernoulli"
    if (codes == codes.round()).all():
        raise ValueError("these codes are counts, which no second stage describes; it needs gates or real values.")
    return "spike-slab"
