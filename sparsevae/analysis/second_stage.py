"""The second stage: a small VAE of the codes, so that samples follow the aggregate posterior instead of the prior.

Training brings each q(z|x) near the prior; their average over the data, the aggregate posterior
q(z) = mean_n q(z|x_n), may still differ from it. With sparse codes the prior switches units on independently, while
data combine sleeves with collars and never with bag handles (VSC, figure 12). Asperti's remedy, after Dai and Wipf, is
to learn q(z) with a second VAE,

    u ~ N(0, 1),  z ~ p(z|u),  x ~ p(x|z),

and here p(z|u) is a distribution over codes: for sparse codes a spike-and-slab whose gates and sizes depend on u.
Asperti's other two remedies, epitomic VAEs and decoders with skip connections, are not in this library.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from sparsevae.analysis.audit import check_coder, check_decoder
from sparsevae.checks import POSITIVE
from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.estimator.coder import SparseCoder
from sparsevae.exceptions import SparsityWarning
from sparsevae.inputs.base import Array
from sparsevae.models.vae import VAE
from sparsevae.training.settings import Training


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
    """Fit a VAE to the codes of X; `est.sample(n, second_stage=stage)` then draws codes from it.

    Both models are ordinary estimators: `stage.sample(n, noise=True)` returns codes for `est.inverse_transform`, and
    each is saved and loaded by itself. After further training of `est` fit a new second stage.
    The codes are hard draws from q(z|x), not modes, since the aggregate posterior includes their variance. Given u the
    units of a code are independent, so an error is raised for codes with one-hot groups, a cap or counts: a second
    stage would draw codes outside their support.

    Parameters
    ----------
    est : a fitted model.
    X : rows to encode; usually the training rows.
    n_components : width of u. Default: the number of units of the model, at most 16.
    hidden : hidden layers of the second stage's encoder; its decoder has them in reverse order.
    variance_floor : least variance of a code's values given u.
    n_draws : codes drawn per row. All are in memory at once, (n_draws N, J) float32.
    training : None means the model's own seed, device and verbosity, a learning rate of 1e-3, a KL weight that grows
        over the first fifth of the run (with noisy codes q(u|z) may collapse to the prior), and default settings
        otherwise.

    Returns
    -------
    VAE : the second stage, an ordinary estimator whose X is codes.

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
    POSITIVE.check("n_draws", n_draws, whole=True)
    check_decoder("second_stage", est)
    _check_independent(est)
    drawn = est.draw_codes(X, n_draws, seed=est.training_settings().seed)
    codes = drawn.reshape(-1, est.fitted_.n_units)  # (n_draws N, J)
    likelihood = _likelihood(codes)
    stage = VAE(
        min(16, codes.shape[1]) if n_components is None else n_components,
        hidden=hidden,
        likelihood=likelihood,
        variance_floor=variance_floor,
        scale="standard" if likelihood == "gaussian" else "none",  # which keeps exact zeros
        training=settings(est) if training is None else training,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SparsityWarning)  # it would be about u, not about the code of `est`
        return stage.fit(codes)


def settings(est: SparseCoder, **changes: Any) -> Training:
    """The default training settings of a second stage of `est`, with the given changes."""
    own = est.training_settings()
    shared = {"seed": own.seed, "device": own.device, "verbose": own.verbose}
    return Training(**{"learning_rate": 1e-3, "kl_warmup": 0.2, **shared, **changes})


def _check_independent(est: SparseCoder) -> None:
    """Raise a ValueError if the posterior's support is no product over units: one-hot groups, counts or a cap."""
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
            "independent. It needs independent gates or real values: use VAE, VSC, HSVAE or "
            "DiscreteVAE(categories=None)."
        )


def _likelihood(codes: Array) -> str:
    """The likelihood of the second stage: "gaussian" for dense codes, "bernoulli" for bits, else "spike-slab"."""
    zero = codes == 0
    if not zero.any():
        return "gaussian"
    if (zero | (codes == 1)).all():
        return "bernoulli"
    if (codes == codes.round()).all():
        raise ValueError("these codes are counts, which no second stage describes; it needs gates or real values.")
    return "spike-slab"
