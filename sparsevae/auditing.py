r"""Which units of a code are used, what each brings and what it costs: for our models and for anybody's VAE.

After Asperti, "Sparsity in variational autoencoders". Per unit j, over rows x, with mu_j(x), s2_j(x) the mean and
variance of q(z_j|x):

- variance law: var(mu_j) + mean(s2_j). Scaling mu_j and s_j by one factor for all x, undone by the next linear layer,
  leaves the likelihood alone, so at an optimum the KL is stationary in it: with a standard normal prior
  E[mu_j^2 + s2_j] = 1 exactly (the paper's equation 13, on averages; erratum 28). For a spike-and-slab whose prior has
  slabs N(0, 1) the same argument gives E[z_j^2] = E[p_on].
- KL: mean over rows of KL(q(z_j|x) || p(z_j)), nats. It bounds what the unit can know of x. Where the prior is chosen
  from several by x, as `PseudoVSC` does, it is the mean over them by their weights; the price of the choice itself
  belongs to no unit and is left out.
- gain: :math:`E_q[\log p(x|z)] - E_q[\log p(x|z, z_j = 0)]`, nats. Draws of z, not its mean: then gain and KL are two
  terms of one bound, and gain > KL says that the bound is better with the unit than without it. The mean would hide the
  unit's own noise, and the mode of a spike-and-slab would hide a unit that is never likelier on than off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent, Laplace, Normal

from sparsevae.capped import Capped
from sparsevae.distributions import SpikeSlab, normal, unit_divergence
from sparsevae.draw import Draw, PerRow, mix, row_keys
from sparsevae.estimator import SparseCoder
from sparsevae.families import Family, OneHotPosterior
from sparsevae.metrics import aggregate_hoyer, average_hoyer
from sparsevae.parameters import check_number, check_seed
from sparsevae.priors import Prior
from sparsevae.step import BLOCK, active
from sparsevae.threads import inference
from sparsevae.tokens import Written

__all__ = ["Audit", "audit", "check_coder", "check_decoder", "check_gain_rows", "check_separate", "measure", "per_row"]

ACTIVE_KL = 0.01  # nats
TAKEN = (Normal, Laplace, Bernoulli, SpikeSlab)  # laws of anybody's units whose draws and KLs are known, side by side

Array = np.ndarray[Any, Any]
Blocks = Callable[[Any], Iterable[tuple[Tensor, int]]]  # rows -> (block, how many of its rows count)
Encode = Callable[[Tensor], Distribution | tuple[Tensor, Tensor]]
Decode = Callable[[Tensor], Distribution | Tensor]
Noise = Callable[[Distribution, Tensor], Tensor]  # (q, x) -> a draw of z

_ADVICE = {
    "collapsed": "hardly a unit is used. Its size is not what is wrong: try a KL warm-up, more steps, a smaller weight "
    "of the KL or, with gates, a larger alpha.",
    "oversized": "many are left over. A smaller code may do; prune() removes units that the bound does not miss.",
    "well sized": "a few units are left over, so the code is as large as the data and the networks ask for.",
    "too small": "none is inactive. A larger code may use more.",
    "undecided": "the others are never likelier on than off, so that the code leaves out what draws say. Train for "
    "longer, or with a prior that has units on more often, before judging the size.",
}


@dataclass(frozen=True, eq=False)
class Audit:
    """What `audit` found: one number per unit, (J,), and a verdict. A table when printed.

    A unit is active when two of three definitions say so: `active_by_variance`, `active_by_kl`, `active_by_gain`. One
    alone misjudges: a gate that is shut for good has a KL and no use, and the luck of draws may give a dead unit a
    gain above its KL. `p_on` is no evidence: a spike-and-slab unit that idles at p_on = alpha is neither on nor dead.
    All this is about draws of q(z|x). The code that `transform` gives is its mode, where a unit is on if it is likelier
    on than off: `in_code` says which units any row's code shows, and the verdict is about both.
    Without noise (`mean_variance` 0 everywhere) a code has no scale, since a penalty shrinks it at no cost. There
    variance and KL, which is then that penalty, half the mean square, are measured beside the largest unit's; they say
    the same thing twice, so a unit is active when its variance and its gain say so, which must be .01 nats at least:
    nats have a scale.

    Attributes
    ----------
    rows, gain_rows : int
        Rows seen, and those of them that gains were measured on.
    mean : (J,)
        Mean over rows of the mean of q(z_j|x): what `prune` puts in the unit's place.
    var_mean, mean_variance : (J,)
        Variance over rows of the mean of q(z_j|x), and mean over rows of its variance.
    kl, gain : (J,)
        Nats per row.
    p_on, on : (J,)
        Mean probability of being on, and share of rows whose code (the mode) is not zero there. 1 without gates.
    hoyer, aggregate_hoyer : float
        Hoyer's sparsity of the codes, 0 for dense to 1 for one-hot: mean over rows, and of the mean row. See
        `sparsevae.metrics.average_hoyer` and `aggregate_hoyer`.
    """

    rows: int
    gain_rows: int
    mean: Array
    var_mean: Array
    mean_variance: Array
    kl: Array
    gain: Array
    p_on: Array
    on: Array
    hoyer: float
    aggregate_hoyer: float

    @property
    def variance_law(self) -> Array:
        """var_mean + mean_variance: near 1 for a trained code with a standard normal prior.

        Near p_on for a spike-and-slab whose prior has slabs N(0, 1). Other priors, such as MAT's, have no such law.
        """
        total: Array = self.var_mean + self.mean_variance
        return total

    @property
    def active_by_variance(self) -> Array:
        """The mean of q(z_j|x) varies by more than .01."""
        return active(torch.from_numpy(self.var_mean), noisy=self._noisy).numpy()

    @property
    def active_by_kl(self) -> Array:
        """The mean KL is above .01 nats."""
        return active(torch.from_numpy(self.kl), noisy=self._noisy, least=ACTIVE_KL).numpy()

    @property
    def active_by_gain(self) -> Array:
        """The unit brings more than it costs."""
        return np.asarray(self.gain > np.maximum(self.kl, -np.inf if self._noisy else ACTIVE_KL))

    @property
    def _noisy(self) -> bool:
        return bool(self.mean_variance.any())

    @property
    def _gates(self) -> bool:
        """Whether units can be off."""
        return bool((self.p_on < 1).any())

    @property
    def active(self) -> Array:
        """Two of the three definitions agree, or gain and variance where there is no noise; (J,) of bool."""
        votes = [self.active_by_variance, self.active_by_gain, *([self.active_by_kl] if self._noisy else [])]
        return np.asarray(np.sum(votes, 0) >= 2)

    @property
    def n_components(self) -> int:
        return len(self.kl)

    @property
    def n_active(self) -> int:
        return int(self.active.sum())

    @property
    def in_code(self) -> Array:
        """The active units that are on in the code (the mode) of some row, (J,) of bool; without gates all of these."""
        return np.asarray(self.active & (self.on > 0))

    @property
    def n_in_code(self) -> int:
        return int(self.in_code.sum())

    @property
    def inactive_share(self) -> float:
        """Share of units that are not active."""
        return 1 - self.n_active / self.n_components

    @property
    def verdict(self) -> str:
        """collapsed (under 5 % active), oversized (over 25 % inactive), well sized, or too small (none inactive).

        undecided where that cannot be said: draws use the active units, but the codes of all rows show under half of
        them.
        """
        if self.n_active < 0.05 * self.n_components:
            return "collapsed"
        if self.n_in_code < self.n_active / 2:
            return "undecided"
        if self.inactive_share > 0.25:
            return "oversized"
        return "well sized" if self.inactive_share else "too small"

    @property
    def suggested_size(self) -> int:
        """The active units and an eighth more, to see that some stay unused; twice the size where none did.

        A collapsed code and an undecided one keep their size, which is not what is wrong with them.
        """
        if self.verdict == "oversized":
            return min(self.n_components, self.n_active + math.ceil(self.n_active / 8))
        return 2 * self.n_components if self.verdict == "too small" else self.n_components

    @property
    def words(self) -> str:
        """The verdict as a sentence, with its reason and, where the size is to be judged, the suggested one."""
        count = f"{self.n_active} of {self.n_components} units are active{' in draws' if self._gates else ''}"
        if loss := int((self.active & ~self.active_by_gain).sum()):  # by the other two definitions
            count += f", {loss} of them at a loss (gain not above KL)"
        if self._gates:
            count += f"; {self.n_in_code} of them show in the code of some row"
        words = f"{self.verdict}: {count}; {_ADVICE[self.verdict]}"
        return (
            words if self.verdict in ("collapsed", "undecided") else f"{words} Suggested size: {self.suggested_size}."
        )

    @property
    def legend(self) -> str:
        """What goes below the table: its letters, and the sparsity of the whole code."""
        voters = "two of" if self._noisy else "both v and g of"
        least = ".01" if self._noisy else ".01 of the largest"
        paid = "gain > KL" if self._noisy else "gain > KL and .01"
        letters = f"active: {voters} v (var(mu) > {least}), k (KL > {least}), g ({paid}); "
        letters += "mu, s2: mean, variance of q(z|x)"
        hoyer = f"Hoyer {self.hoyer:.3f} (mean over rows), {self.aggregate_hoyer:.3f} (of the mean row)"
        return f"{letters}\n{hoyer}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line a unit, those with the largest KL first.

        `active` is the judgement, with a letter for each definition that says yes: v, k, g as in `legend`.
        """
        columns = {
            "unit": [str(j) for j in range(self.n_components)],
            "var(mu)": [f"{v:.3g}" for v in self.var_mean],
            "mean(s2)": [f"{v:.3g}" for v in self.mean_variance],
            "sum": [f"{v:.3f}" for v in self.variance_law],
            "KL": [f"{v:.4f}" for v in self.kl],
            "gain": [f"{v:.3f}" for v in self.gain],
        }
        if self._gates:
            columns |= {"p_on": [f"{v:.3f}" for v in self.p_on], "on": [f"{v:.3f}" for v in self.on]}
        votes = {"v": self.active_by_variance, "k": self.active_by_kl, "g": self.active_by_gain}
        said = ["".join(k for k, v in votes.items() if v[j]) for j in range(self.n_components)]
        columns["active"] = [f"{'yes' if a else 'no '} {by}".rstrip() for a, by in zip(self.active, said, strict=True)]
        order = np.argsort(-self.kl, kind="stable")
        return list(columns), [[c[j] for c in columns.values()] for j in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        own |= {k: getattr(self, k) for k in ("variance_law", "active_by_variance", "active_by_kl", "active_by_gain")}
        units = {k: v.tolist() for k, v in own.items() if isinstance(v, np.ndarray)}
        return {
            **{k: v for k, v in own.items() if not isinstance(v, np.ndarray)},
            "n_components": self.n_components,
            "n_active": self.n_active,
            "n_in_code": self.n_in_code,
            "inactive_share": self.inactive_share,
            "verdict": self.verdict,
            "suggested_size": self.suggested_size,
            "units": {**units, "active": self.active.tolist(), "in_code": self.in_code.tolist()},
        }

    def __str__(self) -> str:
        header, lines = self.table()
        cells = [header, *lines]
        widths = [max(len(line[i]) for line in cells) for i in range(len(header))]
        left = len(header) - 1  # the last column holds words
        justify = [str.rjust] * left + [str.ljust]
        text = ["  ".join(f(c, w) for f, c, w in zip(justify, line, widths, strict=True)).rstrip() for line in cells]
        return "\n".join([*text, "", self.legend, self.words])


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
    """Judge every unit of a fitted estimator, or of any VAE given as two callables.

    Parameters
    ----------
    est : SparseCoder, optional
        A fitted estimator of this library. Leave it out for other models.
    X : array, DataFrame, CSR matrix, tensor or path
        Rows to judge by, two at least. For callables no path, and a tensor must be on the device they want; they see
        blocks x of it, (B, ...), as float tensors.
    encode : callable
        x (B, ...) -> q(z|x): a pair (mean, variance) of tensors (B, J), which stands for a Gaussian; or, over (B, J), a
        torch Normal, Laplace or Bernoulli, alone or in an Independent, or a `sparsevae.SpikeSlab`. For a model that
        gives log-variances ``lambda x: (mu(x), log_variance(x).exp())``. Put networks into eval mode first.
    decode : callable
        z (B, J) -> p(x|z): a torch Distribution, or a tensor of reconstructions, which then count as Gaussian with
        the given `variance`: the error is the squared distance divided by 2 variance, nats. Either in the shape of x,
        or flat, (B, D).
    prior : Distribution, optional
        p(z) of a model given as callables, over (J,) or one for all units, of the kind that `encode` gives; standard
        normal when left out, for Gaussian codes.
    variance : float, optional
        See `decode`; for callables only. 1 when left out: half the squared distance, what a VAE with loss
        1/2 |x - x'|^2 + KL has.
    gain_rows : int or None
        Gains need a pass of the decoder for every unit, so they use this many rows, evenly spaced; None uses all.
    seed : int
        Fixes the draws of z, which are functions of (seed, row).

    Examples
    --------
    >>> import numpy as np, sparsevae as sv
    >>> from sparsevae.auditing import audit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 10))  # two sources in ten columns
    >>> est = sv.VAE(8, hidden=(32,), training=sv.Training(steps=600, verbose=0)).fit(X)
    >>> found = audit(est, X)
    >>> found.verdict, found.suggested_size < 8
    ('oversized', True)
    """
    if X is None:
        raise TypeError("audit needs rows: audit(est, X), or audit(encode=..., decode=..., X=...).")
    if variance is not None:
        check_number("variance", variance, "a number above 0", lambda v: v > 0)
    check_gain_rows(gain_rows)
    check_seed("seed", seed)
    if est is not None:
        check_coder("audit", est, "For other models: audit(encode=..., decode=..., X=...).")
        foreign = {"encode": encode, "decode": decode, "prior": prior, "variance": variance}
        if given := [k for k, v in foreign.items() if v is not None]:
            raise TypeError(f"give an estimator or callables, not both: {', '.join(given)} came beside an estimator.")
        check_decoder("audit", est)
        with inference(est._device()):
            model = est.model_
            check_separate("audit", model.posterior, model.prior, est._n_features_out)
            X = est._read(X, reset=False)
            _check_spread(X.shape[0])
            return measure(
                lambda rows: est._grouped(rows)[0],
                X,
                model.encode,
                model.decode,
                lambda x, q: model.prior(x, model.encode),
                gain_rows=gain_rows,
                draw=per_row(seed),
            )
    if not (callable(encode) and callable(decode)):
        raise TypeError("audit needs an estimator, or both callables: audit(encode=..., decode=..., X=...).")
    with inference(torch.device("cpu")):
        rows = _rows(X)
        _check_spread(rows.shape[0])
        return measure(
            _plain_blocks,
            rows,
            lambda x: _taken(encode(x)),
            decode,
            lambda x, q: _prior(prior, q),
            variance=1.0 if variance is None else variance,
            gain_rows=gain_rows,
            draw=per_row(seed),
        )


def check_coder(caller: str, est: Any, otherwise: str = "") -> None:
    """Refuse what is not a fitted estimator of this library; `otherwise` says what would work instead."""
    if not isinstance(est, SparseCoder):
        came = f"the class {est.__name__}" if isinstance(est, type) else f"a {type(est).__name__}"
        words = f"{caller} needs a fitted estimator of sparsevae, such as VAE().fit(X); got {came}. {otherwise}"
        raise TypeError(words.rstrip())
    check_is_fitted(est)


def check_decoder(caller: str, est: SparseCoder) -> None:
    """Refuse a model without p(x|z), such as a classifier, before anything is computed."""
    if not hasattr(est, "inverse_transform"):
        raise TypeError(
            f"{caller} needs a model with p(x|z), and {type(est).__name__} has none: use VAE, VSC or HSVAE."
        )


def check_gain_rows(gain_rows: int | None) -> None:
    """Refuse what cannot be a number of rows, before anything is computed."""
    if gain_rows is not None:
        check_number("gain_rows", gain_rows, "an integer above 0, or None", lambda n: n > 0, whole=True)


def check_separate(caller: str, posterior: Family, prior: Prior, n: int) -> None:
    """Refuse, before anything is trained or measured, codes whose n units have no KL of their own.

    Only discrete laws tie units together, by a cap or as counts, and their priors are fixed. A group of one-hots shares
    its KL out to its units.
    """
    if not posterior.discrete or isinstance(posterior, OneHotPosterior):
        return
    law = prior.law(posterior)
    raw = torch.zeros(1, posterior.width(n), device=law.mean.device)
    try:
        unit_divergence(posterior(raw), law)
    except TypeError as error:
        raise TypeError(f"{caller} judges units one by one, and a cap or counts tie them together. {error}") from None


def _check_spread(n: int) -> None:
    if n < 2:
        raise ValueError(f"audit judges units by what varies between rows, so it needs two rows at least; got {n}.")


def per_row(seed: int) -> Noise:
    """Hard draws of z whose noise is a function of (seed, row): the same on every call."""
    return lambda q, x: Draw(PerRow(row_keys(x.flatten(1)), mix(seed, 7)), hard=True)(q)


# -- what a user's callables are given, and what they give --------------------------------------------------------


def _rows(X: Any) -> Any:
    """The user's rows as a float tensor, (n, ...), or as a CSR matrix, which becomes dense block by block."""
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
        with np.errstate(over="ignore"):  # beyond float32 is refused below
            found = found.astype(np.float32)
        rows = found if scipy.sparse.issparse(found) else torch.from_numpy(found)
    if len(rows.shape) < 2 or 0 in rows.shape[1:]:
        raise ValueError(f"{expected}; got shape {tuple(rows.shape)}.")
    values = rows if isinstance(rows, Tensor) else torch.from_numpy(rows.data)
    if not bool(values.isfinite().all()):
        raise ValueError("X contains NaN or infinity, or numbers beyond float32: drop those rows, or fill them in.")
    return rows


def _plain_blocks(X: Any) -> Iterator[tuple[Tensor, int]]:
    for start in range(0, X.shape[0], BLOCK):
        x = X[start : start + BLOCK]
        yield x if isinstance(x, Tensor) else torch.from_numpy(x.toarray()), x.shape[0]


def _single(law: Distribution) -> Any:
    """The law of single units."""
    return law.base_dist if isinstance(law, Independent) else law


def _taken(found: Any) -> Any:
    """What encode gave, if it is a law that is taken; bits as gates that nothing limits, which have modes and p_on."""
    if not isinstance(found, Distribution):
        return found
    law = _single(found)
    if type(law) not in TAKEN:
        raise TypeError(
            "encode must return a pair (mean, variance), a torch Normal, Laplace or Bernoulli, or a "
            f"sparsevae.SpikeSlab; got a {type(law).__name__}."
        )
    bits = type(law) is Bernoulli and law.logits.dim() == 2  # other shapes are refused under their own name
    return Capped(law.logits, law.logits.shape[-1]) if bits else found


def _prior(prior: Distribution | None, q: Distribution) -> Distribution:
    like, units = q.mean[0], q.mean.shape[1]
    kind = Bernoulli if isinstance(q, Capped) else type(_single(q))
    if prior is None:
        if kind is not Normal:
            name = kind.__name__
            raise TypeError(f"encode gives a {name}, whose prior is not guessed: pass prior=, a {name} of ({units},).")
        return normal(torch.zeros_like(like), torch.ones_like(like))
    if not isinstance(prior, Distribution):
        raise TypeError(f"prior must be a torch Distribution, got a {type(prior).__name__}.")
    shape = tuple(prior.batch_shape + prior.event_shape)
    if shape not in ((), (units,), (1, units)):
        raise ValueError(
            f"encode gives {units} units, so the prior must have shape ({units},), or () for one law of all units; "
            f"got a {type(prior).__name__} of shape {shape}."
        )
    law = _single(prior)
    if type(law) is not kind:
        raise TypeError(f"encode gives a {kind.__name__}, so the prior must be one too; got a {type(law).__name__}.")
    return Capped(law.logits.expand(shape or (units,)), units) if kind is Bernoulli else prior


def _finite(callable_: str, what: str, values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        came = "NaN" if bool(values.isnan().any()) else "infinite values"
        raise ValueError(f"{callable_} must return {what}, got {came}.")


def _posterior(found: Distribution | tuple[Tensor, Tensor], x: Tensor) -> Distribution:
    """What encode gave for x: a distribution of shape (B, J) whose means and variances are numbers."""
    n = len(x)
    expected = f"encode must return a law such as a Normal, or a pair (mean, variance), of shape (B, J), here ({n}, J)"
    if isinstance(found, Distribution):
        shapes = [tuple(found.batch_shape + found.event_shape)]
        name = f"a {type(found).__name__} of shape"
    elif isinstance(found, (tuple, list)) and len(found) == 2 and all(isinstance(t, Tensor) for t in found):
        shapes, name = [tuple(t.shape) for t in found], "tensors of shapes"
    else:
        parts = f" of {', '.join(type(t).__name__ for t in found)}" if isinstance(found, (tuple, list)) else ""
        raise TypeError(f"{expected}; got a {type(found).__name__}{parts}.")
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or shapes[0][0] != n or not shapes[0][1]:
        raise TypeError(f"{expected}; got {name} {' and '.join(map(str, shapes))}.")
    if isinstance(found, Distribution):
        try:
            mean, variance = found.mean, found.variance
        except NotImplementedError:
            raise TypeError(f"{expected}; a {type(found).__name__} does not know its mean and variance.") from None
    else:
        mean, variance = found
    _finite("encode", "finite means", mean)
    _finite("encode", "finite variances", variance)
    if isinstance(found, Distribution):
        return found
    if bool((variance <= 0).any()):
        raise ValueError(
            f"encode must return variances above 0, got {float(variance.min()):.3g} to {float(variance.max()):.3g}: "
            "did you return log-variances? Use log_variance.exp()."
        )
    return normal(mean, variance.sqrt())


def _error(found: Distribution | Tensor, x: Tensor, variance: float) -> Tensor:
    """-log p(x|z) of every row, (B,), up to a constant, in nats."""
    if isinstance(found, Written):  # texts may have less padding than its shape says
        return -found.log_prob(x)
    flat = x.flatten(1)
    like = " or flat, ".join(str(s) for s in dict.fromkeys((tuple(x.shape), tuple(flat.shape))))
    expected = f"decode must return a torch Distribution or a tensor with the shape of x, {like}"
    if not isinstance(found, (Distribution, Tensor)):
        raise TypeError(f"{expected}; got a {type(found).__name__}.")
    shape = found.shape if isinstance(found, Tensor) else found.batch_shape + found.event_shape
    if shape not in (x.shape, flat.shape):  # others might broadcast, or hold the same values in another order
        raise TypeError(f"{expected}; got a {type(found).__name__} of shape {tuple(shape)}.")
    if isinstance(found, Tensor):
        _finite("decode", "finite reconstructions", found)
        error = (x - found.reshape(x.shape)).square().flatten(1).sum(-1) / (2 * variance)
    else:
        try:
            error = -found.log_prob(x.reshape(shape)).reshape(len(x), -1).sum(-1)
        except ValueError as outside:
            base = found.base_dist if isinstance(found, Independent) else found
            raise ValueError(
                f"decode gives a {type(base).__name__}, which does not describe X: a block of it has values from "
                f"{float(x.min()):.3g} to {float(x.max()):.3g}. Rescale or binarise X; a Bernoulli made with "
                "validate_args=False takes grey values, and its error is then their cross-entropy."
            ) from outside
    _finite("decode", "p(x|z) with a finite log-density at x", error)
    return error


# -- the measuring ------------------------------------------------------------------------------------------------


def measure(
    blocks: Blocks,
    X: Any,
    encode: Encode,
    decode: Decode,
    prior: Callable[[Tensor, Distribution], Distribution],
    *,
    draw: Noise,
    variance: float = 1.0,
    gain_rows: int | None = None,
    units: Iterable[int] | None = None,
) -> Audit:
    """The one way every model is audited: block by block, sums in double precision.

    `units` are those whose gain is measured (all when None); the others read 0.
    """
    n, sums = 0, [torch.zeros(())] * 6
    codes: list[Tensor] = []
    for x, count in blocks(X):
        q = _posterior(encode(x), x)
        if codes and codes[0].shape[1] != q.mean.shape[1]:
            raise ValueError(
                "encode must return the same number of units for every block of rows; got "
                f"{codes[0].shape[1]}, then {q.mean.shape[1]}."
            )
        cost = unit_divergence(q, prior(x, q), draw(q, x))
        _finite("encode", "q(z|x) with a finite KL to the prior", cost)
        always = torch.ones_like(q.mean)
        gates = (q.p_on, q.mode != 0) if hasattr(q, "p_on") else (always, always)
        means = q.mean.cpu().double()  # the square of a float32 far from 0 would hide how it varies
        rows = (means, means.square(), q.variance, cost, *gates)
        sums = [a + b[:count].cpu().double().sum(0) for a, b in zip(sums, rows, strict=True)]
        codes.append(q.mode[:count].cpu())
        n += count
    mean, square, inner, kl, p_on, on = ((s / n).numpy() for s in sums)
    chosen = np.arange(n) if gain_rows is None or gain_rows >= n else np.arange(gain_rows) * n // gain_rows
    code = torch.cat(codes).numpy()
    return Audit(
        rows=n,
        gain_rows=len(chosen),
        mean=mean,
        var_mean=np.maximum(square - mean**2, 0),
        mean_variance=inner,
        kl=kl,
        gain=_gains(blocks(X[chosen]), encode, decode, draw, variance, range(len(kl)) if units is None else units),
        p_on=p_on,
        on=on,
        hoyer=average_hoyer(code),
        aggregate_hoyer=aggregate_hoyer(code),
    )


def _gains(
    blocks: Iterable[tuple[Tensor, int]],
    encode: Encode,
    decode: Decode,
    draw: Noise,
    variance: float,
    units: Iterable[int],
) -> Array:
    """Mean over rows of: error with z_j = 0 minus error with z_j as drawn. (J,)"""
    gains, n, units = torch.zeros(()), 0, list(units)
    for x, count in blocks:
        z = draw(_posterior(encode(x), x), x)
        error = _error(decode(z), x, variance)
        block = torch.zeros(z.shape[1], dtype=torch.float64)
        for j in units:
            if not z[:, j].any():
                continue  # off in every row: nothing to take away
            without = z.clone()
            without[:, j] = 0.0
            block[j] = float((_error(decode(without), x, variance) - error)[:count].double().sum())
        gains, n = gains + block, n + count
    return (gains / n).numpy()
