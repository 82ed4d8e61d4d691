r"""Pruning: remove inactive units from a fitted model.

A unit fixed at its mean code m_j over X adds a constant to the output of the decoder's first layer,

.. math:: W z + b = W_{keep} z_{keep} + (b + W_{cut}\, m_{cut}),

so its column is folded into the bias, exactly; in the encoder its rows of the last layer are removed. Nothing is
trained. The decoder of texts gets z beside every word, through the input weights of its GRU: there W is the part that
multiplies z, and b the GRU's input bias.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.analysis.audit import audit, check_coder, check_decoder, check_separate
from sparsevae.analysis.measure import per_row
from sparsevae.checks import In, OneOf
from sparsevae.distributions.kl import unit_divergence
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.learning import plain
from sparsevae.latent.posteriors import DiscretePosterior, OneHotPosterior
from sparsevae.networks.convolutions import Convolution, ToImage, ToRows, TransposedConvolution
from sparsevae.networks.dense import Linear, Skip
from sparsevae.networks.recurrent import GRU, Writer
from sparsevae.parameters import check_units, check_value
from sparsevae.threads import inference

_TOLERANCE = 1e-4  # relative difference of the decoder's raw output: far above rounding, far below a second use of z
_ROWS = 2000  # most rows of X on which the fall of the bound is measured
_DRAWS = 16  # draws of z per row for that
_LEAST_ROWS = 50  # a unit that one row in twenty uses is off in all of 50 rows in 8 % of cases, in all of 10 in 60 %


def prune(
    est: SparseCoder, X: Any, *, units: Iterable[int] | None = None, force: bool = False, tolerance: float = 0.02
) -> Any:
    """A smaller estimator of the same class, without the given units.

    By default units are removed that are inactive by `audit` and whose removal lowers the bound by at most `tolerance`.
    Each is replaced by its mean code over X, folded into the next bias. The result is an ordinary fitted estimator,
    also for `save` and `partial_fit`. `est` is not changed.

    Parameters
    ----------
    est : SparseCoder
        A fitted estimator.
    X : array, DataFrame, CSR matrix, tensor, path or texts
        Rows for the audit and the mean codes; usually the training rows. At least 50 are needed (or as many as the
        model was trained on): on few rows a used unit may look constant.
    units : sequence of int or mask, optional
        The units to remove: their numbers, or one boolean for each unit of the code.
    force : bool
        Also remove the given units if they are active or their removal lowers the bound by more than `tolerance`, and
        accept few rows; without it both are errors.
    tolerance : float
        Nats by which the bound on X may fall. Units that are useless one by one may be useful together: of the inactive
        units the most useful are kept until removing the others lowers the bound by no more than this.

    Examples
    --------
    >>> import numpy as np, sparsevae as sv
    >>> from sparsevae.analysis.pruning import prune
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 10))  # two sources in ten columns
    >>> est = sv.VAE(8, hidden=(32,), training=sv.Training(steps=600, verbose=0)).fit(X)
    >>> prune(est, X).n_components < 8
    True
    """
    check_value("force", force, bool, [OneOf(0, 1)])
    In(0).check("tolerance", tolerance)
    check_coder("prune", est)
    check_decoder("prune", est)
    est.check_unchanged()
    n, model = est.fitted_.n_units, est.model_
    if model.labelled:
        raise TypeError(f"the units of {type(est).__name__} are the labels of y: leave labels out of y, and fit again.")
    check_separate("prune", model.posterior, model.prior, n)
    if isinstance(model.posterior, OneHotPosterior):
        raise TypeError(
            f"units of {type(est).__name__} come in groups of {model.posterior.size} of which one is on: none can be "
            "removed alone. Fit fewer groups, or independent bits, categories=None."
        )
    for path in _paths(model.encoder):
        _head(path, n, model.posterior.width(n))
    for path in _paths(model.decoder):
        _first(path, n)
    chosen = None if units is None else np.unique(check_units(units, n))
    if chosen is not None and len(chosen) == n:
        raise ValueError(f"no unit would be left: all {n} would be removed. Keep at least one.")
    found = audit(est, X, gain_rows=1 if force and units is not None else 2000)  # with force gains are not used
    least = min(_LEAST_ROWS, est.n_rows_ or _LEAST_ROWS)
    if found.rows < least and not force:
        raise ValueError(
            f"{found.rows} rows are too few to find the inactive units: prune needs {least} at least, better all "
            "training rows. force=True prunes anyway."
        )
    cut = np.flatnonzero(~found.active) if chosen is None else chosen
    if len(cut) == n:
        raise ValueError(f"no unit would be left: all {n} would be removed. {found.words}")
    with inference(est.fitted_.device):
        if units is None:
            order = cut[np.argsort((found.gain - found.kl)[cut], kind="stable")]  # the least useful first
            cut = np.sort(_harmless(est, X, order, found.mean, tolerance))
        elif not force:
            active = [j for j in cut.tolist() if found.active[j]]
            worth = ", ".join(f"{j} (KL {found.kl[j]:.3g}, gain {found.gain[j]:.3g})" for j in active)
            if active:
                raise ValueError(f"these units are active: {worth}. force=True removes them anyway.")
            if (loss := _loss(est, X, cut, found.mean)) > tolerance:
                raise ValueError(
                    f"without these units the bound falls by {loss:.3g} nats. force=True removes them anyway."
                )
        smaller = copy.deepcopy(est)
        if len(cut):
            keep = torch.from_numpy(np.setdiff1d(np.arange(n), cut))
            _operate(est, smaller, keep, torch.from_numpy(cut), torch.from_numpy(found.mean))
    return smaller


def _harmless(est: SparseCoder, X: Any, order: Any, mean: Any, tolerance: float) -> Any:
    """The first units of `order`, as many as can be removed within the tolerance: usually all, else by bisection."""
    fewest, most = 0, len(order)
    k = most
    while fewest < most:
        if _loss(est, X, order[:k], mean) <= tolerance:
            fewest = k
        else:
            most = k - 1
        k = (fewest + most + 1) // 2
    return order[:fewest]


def _loss(est: SparseCoder, X: Any, cut: Any, mean: Any) -> float:
    """Fall of the bound in nats without the units `cut`: their contribution to log p(x|z) minus their KL.

    The other units have the same draws with and without them, which lowers the variance of the difference.
    """
    model, X = est.model_, est.fitted_.rows(X)
    n_rows: int = min(X.shape[0], _ROWS)
    rows = np.arange(n_rows) * X.shape[0] // n_rows
    at = torch.from_numpy(cut).to(est.fitted_.device)
    constant = torch.from_numpy(mean).to(at.device, torch.float32)[at]
    total = 0.0
    for x, count, _ in est.fitted_.blocks(X[rows]):
        q, p = model.encode(x), model.prior(x, model.encode)
        for seed in range(_DRAWS):
            z = per_row(seed)(q, x)
            without = z.index_copy(-1, at, constant.expand(len(z), -1))
            fall = model.decode(z).log_prob(x) - model.decode(without).log_prob(x)
            fall = fall - unit_divergence(q, p, z)[:, at].sum(-1)
            total += float(fall[:count].double().sum())
    return total / n_rows / _DRAWS


def _operate(est: SparseCoder, smaller: SparseCoder, keep: Tensor, cut: Tensor, mean: Tensor) -> None:
    old, new, n = est.model_, smaller.model_, len(mean)
    device = est.fitted_.device
    keep, cut, mean = keep.to(device), cut.to(device), mean.to(device)
    for path in _paths(new.encoder):
        _cut_head(path, keep, n, new.posterior.width(n))
    for path in _paths(new.decoder):
        _cut_input(path, keep, cut, mean, n)
    if smaller.fitted_.gain is not None:
        smaller.fitted_.gain = smaller.fitted_.gain.index_select(-1, keep)
    smaller.n_components = len(keep)
    if smaller.decoder is not None:  # the user's own module, for the smaller code; the likelihood's head follows it
        smaller.decoder = copy.deepcopy(next(new.decoder.children())).cpu()
    made = smaller.build(smaller.fitted_.data, None).model
    smaller.fitted_.built = plain(smaller)
    prior = made.prior.to(device)
    own, less = old.prior.state_dict(), prior.state_dict()  # tensors of another shape have one entry per unit
    prior.load_state_dict({k: v if v.shape == less[k].shape else v.index_select(-1, keep) for k, v in own.items()})
    new.prior = prior
    if isinstance(new.posterior, DiscretePosterior):
        new.posterior.size = cast(DiscretePosterior, made.posterior).size  # a cap is at most the number of units
    smaller.fitted_.moments = None  # Adam's moments have the old shapes
    # A decoder may use z elsewhere than in its first layer; then its outputs differ.
    z = torch.randn(16, n, generator=torch.Generator().manual_seed(0)).to(device)
    z[:, cut] = mean[cut].float()
    whole, rest = _outputs(old.decoder, z), _outputs(new.decoder, z[:, keep])
    if not bool((whole - rest).abs().max() <= _TOLERANCE * (1 + whole.abs().max())):
        raise TypeError("this decoder uses its input elsewhere than in its first layer: units cannot be removed.")


def _outputs(decoder: nn.Module, z: Tensor) -> Tensor:
    """The raw output of a decoder for codes z; a decoder of texts also gets the first words of its vocabulary."""
    inputs = [z]
    if isinstance(decoder, Writer):
        inputs.append(torch.arange(min(8, len(decoder.words.weight)), device=z.device).expand(len(z), -1))
    found: Tensor = decoder(*inputs)
    return found


def _paths(network: nn.Module) -> tuple[nn.Module, ...]:
    """The networks whose outputs are added: a deep one and the linear map beside it, or one alone."""
    return (network.deep, network.linear) if isinstance(network, Skip) else (network,)


def _layers(module: nn.Module) -> list[nn.Module]:
    """The layers of nested nn.Sequential modules in the order in which they run, without identities."""
    if isinstance(module, nn.Sequential):
        return [layer for child in module for layer in _layers(child)]
    return [] if isinstance(module, nn.Identity) else [module]


def _head(encoder: nn.Module, n: int, width: int) -> tuple[Linear | Convolution, int]:
    """The encoder's last layer, and the axis of its weight that has one entry per raw value of the posterior."""
    head = [layer for layer in _layers(encoder) if not isinstance(layer, ToRows)][-1]
    axis = -2 if isinstance(head, Linear) else -4
    if not isinstance(head, (Linear, Convolution)) or head.weight.shape[axis] != width or width % n:
        raise TypeError(f"the encoder ends in {head}, expected a linear map to {width} = parts x {n} values.")
    return head, axis


def _cut_head(encoder: nn.Module, keep: Tensor, n: int, width: int) -> None:
    """Keep the units' rows in every part of the posterior's raw values: (loc_1..n, log-variance_1..n, ...)."""
    head, axis = _head(encoder, n, width)
    rows = (torch.arange(0, width, n, device=keep.device)[:, None] + keep).flatten()
    head.weight = nn.Parameter(head.weight.index_select(axis, rows))
    if head.bias is not None:
        head.bias = nn.Parameter(head.bias.index_select(-1, rows))


def _first(decoder: nn.Module, n: int) -> Linear | nn.Linear | TransposedConvolution | GRU:
    """The layer of the decoder whose input is z; a TypeError if it is no linear map."""
    if isinstance(decoder, Writer):
        return decoder.gru
    first, *later = _layers(decoder)
    if isinstance(first, (Linear, nn.Linear)) and first.weight.shape[-1] == n:
        return first
    if isinstance(first, ToImage) and isinstance(later[0], TransposedConvolution):
        layer = later[0]  # from one pixel to one pixel it is a linear map as well, W (n, C, 1, 1)
        if layer.size == (1, 1) and layer.weight.shape[-2:] == (1, 1) and layer.weight.shape[-4] == n:
            return layer
    raise TypeError(
        f"units can be removed if the decoder starts with a linear map of {n} inputs; this one starts with "
        f"{first}{', ' + str(later[0]) if later else ''}. A kernel larger than 1 x 1, such as that of network='mat', "
        "spreads a unit over pixels that share one bias, and how another module uses z is unknown: in an "
        "nn.Sequential, put it after an nn.Linear."
    )


def _cut_input(decoder: nn.Module, keep: Tensor, cut: Tensor, mean: Tensor, n: int) -> None:
    """Remove columns of the decoder's first layer, and add their product with the mean code to its bias."""
    layer = _first(decoder, n)
    if isinstance(layer, GRU):
        return _cut_writer(layer, keep, cut, mean, n)
    if isinstance(layer, TransposedConvolution):
        matrix, axis = layer.weight[..., 0, 0].mT, -4
        cast(ToImage, _layers(decoder)[0]).shape = (1, 1, len(keep))
    else:
        matrix, axis = layer.weight, -1
        if isinstance(layer, nn.Linear):
            layer.in_features = len(keep)
    constant = _constant(matrix, cut, mean)
    layer.bias = nn.Parameter(constant if layer.bias is None else layer.bias + constant)
    layer.weight = nn.Parameter(layer.weight.index_select(axis, keep))


def _cut_writer(gru: GRU, keep: Tensor, cut: Tensor, mean: Tensor, n: int) -> None:
    """`_cut_input` for texts: the GRU's input weights are (3 states, words + n), for a word's vector and z."""
    weight, bias = cast(Tensor, gru.weight_ih_l0), cast(Tensor, gru.bias_ih_l0)
    words, of_z = weight[:, :-n], weight[:, -n:]
    gru.bias_ih_l0 = nn.Parameter(bias + _constant(of_z, cut, mean))
    gru.weight_ih_l0 = nn.Parameter(torch.cat([words, of_z.index_select(-1, keep)], -1))
    gru.input_size -= len(cut)
    gru.flatten_parameters()


def _constant(matrix: Tensor, cut: Tensor, mean: Tensor) -> Tensor:
    """W_cut m_cut, summed in double precision."""
    return (matrix.index_select(-1, cut).double() @ mean[cut].double()).to(matrix.dtype)
