r"""Which units of a code are active, with the gain and the KL of each: for estimators of this library and other VAEs.

After Asperti, "Sparsity in variational autoencoders". Per unit j, over rows x, with mu_j(x), s2_j(x) the mean and
variance of q(z_j|x):

- variance law: var(mu_j) + mean(s2_j). Scaling mu_j and s_j by one factor for all x, undone by the next linear layer,
  leaves the likelihood unchanged, so at an optimum the KL is stationary in it: with a standard normal prior
  E[mu_j^2 + s2_j] = 1 exactly (the paper's equation 13, on averages; erratum 28). For a spike-and-slab whose prior has
  slabs N(0, 1) the same argument gives E[z_j^2] = E[p_on].
- KL: mean over rows of KL(q(z_j|x) || p(z_j)), nats. It is an upper bound on the mutual information of the unit and x.
  If the prior is selected from several by x, as in `PseudoVSC`, it is their mean, weighted by the selection
  probabilities; the KL of the selection belongs to no unit and is left out.
- gain: :math:`E_q[\log p(x|z)] - E_q[\log p(x|z, z_j = 0)]`, nats. It uses draws of z: then gain and KL are terms of
  the same bound, and gain > KL means that the bound is higher with the unit than without it. The mean of z would leave
  out the noise of the unit, and the mode of a spike-and-slab would leave out a unit whose p_on is always below 1/2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent, Laplace, Normal

from sparsevae.analysis.audit_result import Audit
from sparsevae.analysis.measure import Decode, Encode, measure, measure_fitted, per_row
from sparsevae.checks import POSITIVE, a_type, check_seed
from sparsevae.distributions.capped import Capped
from sparsevae.distributions.family import Family
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import unit_divergence
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.rows import BLOCK
from sparsevae.latent.posteriors import OneHotPosterior
from sparsevae.latent.priors import Prior
from sparsevae.parameters import check_value
from sparsevae.threads import inference

SUPPORTED = (Normal, Laplace, Bernoulli, SpikeSlab)  # distributions of other models' units with known draws and KLs


def audit(
    est: SparseCoder | None = None,
    X: Any = None,
    *,
    encode: Encode | None = None,
    decode: Decode | None = None,
    prior: Distribution | None = None,
    variance: float | None = None,
    gain_rows: int | None = 2000,
    seed: int = 0,
) -> Audit:
    """Measure every unit of a fitted estimator, or of any VAE given as two callables, and suggest a size of the code.

    Parameters
    ----------
    est : SparseCoder, optional
        A fitted estimator of this library. Leave it out for other models.
    X : array, DataFrame, CSR matrix, tensor or path
        Rows to measure on, at least two. With callables X must not be a path, and a tensor must be on their device;
        they receive blocks x, (B, ...), as float tensors.
    encode : callable
        x (B, ...) -> q(z|x): a pair (mean, variance) of tensors (B, J), read as a Gaussian; or, with shape (B, J), a
        torch Normal, Laplace or Bernoulli, alone or in an Independent, or a `sparsevae.SpikeSlab`. For a model with
        log-variances: ``lambda x: (mu(x), log_variance(x).exp())``. Put networks into eval mode first.
    decode : callable
        z (B, J) -> p(x|z): a torch Distribution, or a tensor of reconstructions, read as the means of Gaussians with
        the given `variance`: the error is the squared distance divided by 2 variance, nats. The shape is that of x,
        or flat, (B, D).
    prior : Distribution, optional
        p(z) of a model given as callables, of shape (J,) or (), of the same class as the result of `encode`. Default
        for Gaussian codes: standard normal.
    variance : float, optional
        See `decode`; for callables only. Default 1: the error is half the squared distance, as for a VAE with loss
        1/2 |x - x'|^2 + KL.
    gain_rows : int or None
        Gains are measured on this many evenly spaced rows, since they need one decoder pass per unit; None uses all.
    seed : int
        Seed of the draws of z; each draw is a function of (seed, row).

    Examples
    --------
    >>> import numpy as np, sparsevae as sv
    >>> from sparsevae.analysis.audit import audit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 10))  # two sources in ten columns
    >>> est = sv.VAE(8, hidden=(32,), training=sv.Training(steps=600, verbose=0)).fit(X)
    >>> found = audit(est, X)
    >>> found.verdict, found.suggested_size < 8
    ('oversized', True)
    """
    if X is None:
        raise TypeError("audit needs rows: audit(est, X), or audit(encode=..., decode=..., X=...).")
    check_value("variance", variance, float | None, [POSITIVE])
    check_value("gain_rows", gain_rows, int | None, [POSITIVE])
    check_seed("seed", seed)
    if est is not None:
        check_coder("audit", est, "For other models: audit(encode=..., decode=..., X=...).")
        foreign = {"encode": encode, "decode": decode, "prior": prior, "variance": variance}
        if given := [k for k, v in foreign.items() if v is not None]:
            raise TypeError(f"give an estimator or callables, not both: {', '.join(given)} came beside an estimator.")
        check_decoder("audit", est)
        check_separate("audit", est.model_.posterior, est.model_.prior, est.fitted_.n_units)
        return measure_fitted(est, X, gain_rows=gain_rows, draw=per_row(seed))
    if not (callable(encode) and callable(decode)):
        raise TypeError("audit needs an estimator, or both callables: audit(encode=..., decode=..., X=...).")
    with inference(torch.device("cpu")):
        return measure(
            _plain_blocks,
            _rows(X),
            lambda x: _supported(encode(x)),
            decode,
            lambda x, q: _prior(prior, q),
            variance=1.0 if variance is None else variance,
            gain_rows=gain_rows,
            draw=per_row(seed),
        )


def check_coder(caller: str, est: Any, otherwise: str = "") -> None:
    """Raise a TypeError unless `est` is a fitted estimator of this library; `otherwise` ends the message."""
    if not isinstance(est, SparseCoder):
        expected = f"{caller} needs a fitted estimator of sparsevae, such as VAE().fit(X)"
        raise TypeError(f"{expected}; got {a_type(est)}. {otherwise}".rstrip())
    check_is_fitted(est)


def check_decoder(caller: str, est: SparseCoder) -> None:
    """Raise a TypeError for a model without p(x|z) and p(z), such as a classifier."""
    if not est.has_bound:
        raise TypeError(
            f"{caller} needs a model with p(x|z), and {type(est).__name__} has none: use VAE, VSC or HSVAE."
        )


def check_separate(caller: str, posterior: Family, prior: Prior, n: int) -> None:
    """Raise a TypeError if the KL of a code of n units is no sum over units.

    That is the case for discrete posteriors with a cap or counts; their priors are fixed. The KL of a one-hot group is
    divided among its units.
    """
    if not posterior.discrete or isinstance(posterior, OneHotPosterior):
        return
    dist = prior.marginal(posterior)
    raw = torch.zeros(1, posterior.width(n), device=dist.mean.device)
    try:
        unit_divergence(posterior(raw), dist)
    except TypeError as error:
        words = f"{caller} measures units one by one, and units with a cap or counts depend on each other"
        raise TypeError(f"{words}. {error}") from None


def _rows(X: Any) -> Any:
    """The user's rows as a float tensor, (n, ...), or as a CSR matrix, which is made dense block by block."""
    expected = "for a model given as callables X must be an array, DataFrame, CSR matrix or tensor of numbers, (n, ...)"
    if isinstance(X, (str, bytes, os.PathLike)):
        raise TypeError(f"{expected}; got the path {X!r}. Read the file first, for instance with numpy.load.")
    rows: Any
    if isinstance(X, Tensor):
        if X.is_complex() or X.layout is not torch.strided:
            raise TypeError(f"{expected}; got a {X.layout} tensor of {X.dtype}. Make it real and dense.")
        rows = X if X.is_floating_point() else X.float()
    else:
        try:
            found: Any = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
        except ValueError as error:  # rows of different lengths
            raise TypeError(f"{expected}; got a {type(X).__name__}: {error}") from error
        if found.dtype.kind not in "biuf":
            raise TypeError(f"{expected}; got a {type(X).__name__} with values of type {found.dtype}. Convert them.")
        with np.errstate(over="ignore"):  # numbers beyond float32 raise an error below
            found = found.astype(np.float32)
        rows = found if scipy.sparse.issparse(found) else torch.from_numpy(found)
    if len(rows.shape) < 2 or 0 in rows.shape[1:]:
        raise ValueError(f"{expected}; got shape {tuple(rows.shape)}.")
    values = rows if isinstance(rows, Tensor) else torch.from_numpy(rows.data)
    if not bool(values.isfinite().all()):
        raise ValueError("X contains NaN, infinity or numbers beyond float32: drop those rows, or replace the values.")
    return rows


def _plain_blocks(X: Any) -> Iterator[tuple[Tensor, int]]:
    """Blocks of rows as dense tensors, and the number of rows in each."""
    for start in range(0, X.shape[0], BLOCK):
        x = X[start : start + BLOCK]
        yield x if isinstance(x, Tensor) else torch.from_numpy(x.toarray()), x.shape[0]


def _single(dist: Distribution) -> Any:
    """The distribution of single units, without an Independent around it."""
    return dist.base_dist if isinstance(dist, Independent) else dist


def _supported(found: Any) -> Any:
    """The result of encode if it is supported, else a TypeError; a Bernoulli as `Capped`, which has mode and p_on."""
    if not isinstance(found, Distribution):
        return found
    dist = _single(found)
    if type(dist) not in SUPPORTED:
        raise TypeError(
            "encode must return a pair (mean, variance), a torch Normal, Laplace or Bernoulli, or a "
            f"sparsevae.SpikeSlab; got a {type(dist).__name__}."
        )
    bits = type(dist) is Bernoulli and dist.logits.dim() == 2  # for other shapes `measure` names the class Bernoulli
    return Capped(dist.logits, dist.logits.shape[-1]) if bits else found


def _prior(prior: Distribution | None, q: Distribution) -> Distribution:
    """The user's prior for codes with posterior q, (B, J); standard normal if None and q is a Normal."""
    like, units = q.mean[0], q.mean.shape[1]
    kind = Bernoulli if isinstance(q, Capped) else type(_single(q))
    if prior is None:
        if kind is not Normal:
            name = kind.__name__
            raise TypeError(f"encode gives a {name}, which has no default prior: pass prior=, a {name} of ({units},).")
        return normal(torch.zeros_like(like), torch.ones_like(like))
    if not isinstance(prior, Distribution):
        raise TypeError(f"prior must be a torch Distribution, got a {type(prior).__name__}.")
    shape = tuple(prior.batch_shape + prior.event_shape)
    if shape not in ((), (units,), (1, units)):
        raise ValueError(
            f"encode gives {units} units, so the prior must have shape ({units},), or () if all units share it; "
            f"got a {type(prior).__name__} of shape {shape}."
        )
    dist = _single(prior)
    if type(dist) is not kind:
        raise TypeError(f"encode gives a {kind.__name__}, so the prior must be one too; got a {type(dist).__name__}.")
    return Capped(dist.logits.expand(shape or (units,)), units) if kind is Bernoulli else prior
