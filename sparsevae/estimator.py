"""SparseCoder: the scikit-learn face of every model. Validation, fit, codes, bounds, samples, save.

A model is a subclass with a recipe: `posterior()`, `prior()`, `objective()` and, where it has them, `schedules()`.
"""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
import scipy.sparse
import sklearn
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae import families, storage
from sparsevae import scaling as scalings
from sparsevae.architectures import NETWORKS, Sizes, image_of
from sparsevae.bounds import SPREAD, Bounds, bounds
from sparsevae.distributions import SpikeSlab, divergence
from sparsevae.draw import Draw, Fresh, PerRow, mix, row_keys
from sparsevae.gradients import points
from sparsevae.history import History
from sparsevae.mixtures import SpikeSlabMixture
from sparsevae.model import LatentModel
from sparsevae.networks import Linear, initialise
from sparsevae.objectives import Objective, free_bits, kl, nll
from sparsevae.parameters import check_choice, check_number, check_sizes, decode, documented, encode, parameters
from sparsevae.priors import Prior
from sparsevae.rows import Rows, Stats, fingerprint, place, stats
from sparsevae.schedules import Constant, Schedule
from sparsevae.settings import Training
from sparsevae.step import ACTIVE_VARIANCE, BLOCK
from sparsevae.threads import inference, threads
from sparsevae.training import fit

__all__ = ["ImportanceBound", "SparseCoder", "load"]

_LOST = (-math.inf, -math.inf, math.inf, 1.0)  # ELBO, importance bound, its error, effective samples
Array = np.ndarray[Any, Any]


F = TypeVar("F", bound=Callable[..., Any])


def _inference(method: F) -> F:
    """Run a method of a fitted estimator without gradients, within the CPU quota, with the same bits every time."""

    @functools.wraps(method)
    def quietly(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        with inference(self._device()):
            return method(self, *args, **kwargs)

    return cast(F, quietly)


class ImportanceBound(NamedTuple):
    """Per item: the K-sample bound in nats, its standard error, and the effective number of samples."""

    bound: Array
    standard_error: Array
    effective_samples: Array


def _csr(blocks: Iterable[Array]) -> Any:
    """Dense blocks of rows -> one CSR matrix, in half the time of scipy's conversion block by block."""
    counts, columns, values, width = [np.zeros(1, np.int64)], [], [], 0
    for block in blocks:
        at, width = np.flatnonzero(block), block.shape[1]
        counts.append(np.count_nonzero(block, axis=1))
        columns.append((at % width).astype(np.int32))
        values.append(block.ravel()[at])
    ends = np.cumsum(np.concatenate(counts))
    return scipy.sparse.csr_matrix((np.concatenate(values), np.concatenate(columns), ends), (len(ends) - 1, width))


@parameters
class SparseCoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all estimators share. Learned attributes: `model_`, `scaling_`, `likelihood_`, `history_`."""

    n_components: Annotated[int, "Number of latent units J."] = field(default=64, kw_only=False)
    hidden: Annotated[
        tuple[int, ...],
        "Hidden layer sizes of the encoder; the decoder mirrors them. Networks asperti and mat ignore it.",
    ] = (400,)
    network: Annotated[
        str, "dense; conv, any image: convolutions, then `hidden`; asperti, 28 x 28 (figure 7); mat, 32 x 32."
    ] = "dense"
    image_shape: Annotated[
        tuple[int, ...] | None,
        "(H, W) or (H, W, C) of a row, for convolutions and pictures; None: a square grey image.",
    ] = None
    likelihood: Annotated[
        str, "bernoulli, gaussian (learned variance), fixed-gaussian, laplace, spike-slab or auto."
    ] = "auto"
    variance_floor: Annotated[float, "Least variance of likelihood='gaussian' or 'spike-slab', in scaled units."] = 0.03
    variance: Annotated[float, "Variance of likelihood='fixed-gaussian' or 'laplace', in scaled units."] = 0.1
    scale: Annotated[str, "auto, standard, unit-norm or none; stored, and undone by inverse_transform."] = "auto"
    encoder: Annotated[nn.Module | None, "Your own network, (B, D) -> (B, any width); a linear head is added."] = None
    decoder: Annotated[nn.Module | None, "Your own network, (B, J) -> (B, any width); a linear head is added."] = None
    training: Annotated[Training | None, "Training settings; None means Training()."] = None

    # -- the recipe: what a paper's file says -------------------------------------------------------------------

    story: ClassVar[type[LatentModel]] = LatentModel

    def posterior(self) -> families.Family:
        """The family of q(z|x)."""
        raise NotImplementedError

    def prior(self) -> Prior:
        """p(z)."""
        raise NotImplementedError

    def weights(self) -> dict[str, float]:
        """Weights of the terms; schedules may drive those named here."""
        return {"kl_z": 1.0}

    def refuse_free_bits(self) -> None:
        """For recipes whose terms are not a KL a unit."""
        if self._training().free_bits:
            raise ValueError(f"training.free_bits is for a KL per unit; {type(self).__name__} has none. Leave it at 0.")

    def objective(self) -> Objective:
        """What training minimises."""
        floor = self._training().free_bits
        return Objective(nll, free_bits(floor) if floor else kl, weights=self.weights())

    def schedules(self) -> dict[str, Schedule]:
        """The recipe's own schedules."""
        return {}

    def check(self) -> None:
        """Refuse constructor arguments that cannot work; subclasses add their own."""
        check_number("n_components", self.n_components, "an integer above 0", lambda n: n > 0, whole=True)
        check_sizes("hidden", self.hidden, empty=True)
        check_choice("network", self.network, NETWORKS)
        if self.image_shape is not None:
            self._check_image_shape(self.image_shape)
        check_choice("likelihood", self.likelihood, families.LIKELIHOODS)
        check_choice("scale", self.scale, scalings.SCALES)
        for name in ("variance_floor", "variance"):
            check_number(
                name, getattr(self, name), "a number above 0 (1e-3 to 1e-1 suits scaled data)", lambda v: v > 0
            )
        for name in ("encoder", "decoder"):
            if not isinstance(getattr(self, name), (nn.Module, type(None))):
                raise TypeError(f"{name} must be a torch.nn.Module or None, got {type(getattr(self, name)).__name__}.")
        if not isinstance(self.training, (Training, type(None))):
            raise TypeError(f"training must be a Training(...) or None, got {self.training!r}.")
        self._training().validate()

    def _check_image_shape(self, shape: Any) -> None:
        expected = "(height, width) or (height, width, channels), such as (28, 28) or (32, 32, 3)"
        if not (isinstance(shape, (tuple, list)) and len(shape) in (2, 3)):
            raise ValueError(f"image_shape must be {expected}; got {shape!r}.")
        for size in shape:
            check_number("image_shape", size, expected, lambda n: n > 0, whole=True)

    # -- scikit-learn -------------------------------------------------------------------------------------------

    @classmethod
    def default_training(cls) -> Training:
        """What training=None means."""
        return Training()

    def _training(self) -> Training:
        return self.default_training() if self.training is None else self.training

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; `training__steps=...` works also where training is None."""
        if any(k.startswith("training__") for k in params) and params.get("training", self.training) is None:
            params["training"] = self.default_training()
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def _n_features_out(self) -> int:
        return self.model_.prior.n_components

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Whatever the user has -> a checked 2-d array (maybe a memory map) or CSR matrix, in its own dtype."""
        if isinstance(X, (str, Path)):
            from sparsevae.data import read_array

            X = read_array(X).X
        if isinstance(X, Tensor):
            X = X.detach().cpu()
            X = (X.float() if X.dtype == torch.bfloat16 else X).numpy()
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", ensure_min_samples=2 if reset else 1, ensure_all_finite=False
        )
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must hold numbers, got values of type {X.dtype}; convert them.")
        values: Any = getattr(X, "data", X) if scipy.sparse.issparse(X) else X
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        self._check_finite(low, high)
        if not reset and 0 < high <= 1 and self._divides_by_255():
            warnings.warn(
                f"this model was fitted on 8-bit values, 0 to 255, and now sees at most {high:g}: were the new rows "
                "scaled already, or binarised to 0 and 1? It divides by 255 itself.",
                UserWarning,
                stacklevel=4,
            )
        return X

    def _divides_by_255(self) -> bool:
        return isinstance(self.scaling_, scalings.Affine) and bool((self.scaling_.scale == 255).all())

    def _check_finite(self, low: float, high: float) -> None:
        """No NaN, no infinity, nothing beyond float32, by the data's extremes."""
        if math.isnan(low) or math.isnan(high):
            raise ValueError(
                f"Input X contains NaN. {type(self).__name__} does not accept missing values: drop those rows or "
                "columns, or fill them in, for instance with sklearn.impute.SimpleImputer."
            )
        largest, limit = max(-low, high), float(np.finfo(np.float32).max)
        if largest > limit:
            what = "infinity" if math.isinf(largest) else f"{largest:.3g}"
            raise ValueError(f"Input X contains {what}; values must lie within {limit:.3g} (float32). Rescale X.")

    # -- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the model from X: array, DataFrame, CSR matrix, tensor, memory map or path. `y` is ignored."""
        self.check()
        if hasattr(self, "model_"):
            del self.model_  # should X be refused, no old model goes with half-new settings
        X = self._read(X, reset=True)
        self._start(X)
        self._train(X, self._training(), self.schedules(), None)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One more pass over new data at the initial rate, all schedules at their ends; scaling stays as it is.

        The first call on a new estimator settles scaling and likelihood from its X.
        """
        self.check()
        fresh = not hasattr(self, "model_")
        X = self._read(X, reset=fresh)
        if fresh:
            self._start(X)
        else:
            self._check_support(self.model_.likelihood, stats(place(X, torch.device("cpu"), resident=False)))
        self._train(X, *self._once_more(), getattr(self, "_moments", None))
        return self

    def _once_more(self) -> tuple[Training, dict[str, Schedule]]:
        """Settings and schedules of one more pass."""
        settings = self._training()
        plan = {**self.schedules(), **(settings.schedules or {})}
        ends: dict[str, Schedule] = {k: Constant(s(1 << 62, 1 << 62)) for k, s in plan.items()}
        once = settings.get_params() | {
            "steps": None,
            "epochs": 1,
            "decay": "constant",
            "restart_optimizer": False,
            "kl_warmup": 0,
            "schedules": None,
            "validation_fraction": 0.0,
            "patience": None,
            "folder": None,
            "resume": False,
            "compile": False,
            "seed": mix(settings.seed, self.n_steps_),
        }
        return Training(**once), ends

    def _start(self, X: Any) -> None:
        """Settle scaling and likelihood by the data, and build the networks."""
        settings = self._training()
        _check_resolution(X)
        rows = place(X, torch.device("cpu"), resident=False)
        with threads(1):  # sums depend on how many threads share them, and a resumed run must find the same scaling
            data = stats(rows)
        self.scaling_ = scalings.choose(self.scale, data, X.dtype)
        self.likelihood_ = self._choose_likelihood(data)
        self.fingerprint_ = fingerprint(rows)
        self.n_steps_ = self.n_rows_ = 0
        self.history_ = History()
        self._moments: dict[str, Tensor] | None = None
        weights = torch.Generator().manual_seed(mix(settings.seed, 0))
        device, model = settings.torch_device(), self._build(self.n_features_in_, weights)
        self._check_support(model.likelihood, data)
        self.model_ = model
        self.to(device)
        some = torch.randperm(rows.shape[0], generator=torch.Generator().manual_seed(mix(settings.seed, 7)))[:BLOCK]
        model.prior.start(self.scaling_(rows.take(some).to(device)))

    def _scaled_levels(self, data: Stats) -> set[float]:
        """The one or two values that the data have, after a scaling that leaves zero at zero; else nothing."""
        span = torch.tensor(sorted(data.levels), dtype=torch.float64)
        if not len(span) or not isinstance(self.scaling_, scalings.Affine) or self.scaling_.shift.any():
            return set()
        shift, scale = self.scaling_.shift.double(), self.scaling_.scale.double()
        return set(((span[:, None] - shift) / scale).unique().tolist())

    def _choose_likelihood(self, data: Stats) -> str:
        if self.likelihood != "auto":
            return self.likelihood
        levels = self._scaled_levels(data)
        binary = bool(levels) and levels <= {0.0, 1.0}
        return "bernoulli" if binary or self._training().binarise else "gaussian"

    def _check_support(self, likelihood: families.Likelihood, data: Stats) -> None:
        """A likelihood that cannot describe the data is refused before training starts."""
        low, high = data.low, data.high
        if isinstance(self.scaling_, scalings.Affine):
            ends = self.scaling_(torch.tensor([[low], [high]], device=self.scaling_.shift.device))
            low, high = float(ends.min()), float(ends.max())
        else:
            reach = math.sqrt(self.n_features_in_)  # of one value in a normalised row
            low, high = -reach if low < 0 else 0.0, reach
        problem = likelihood.check(low, high)
        if problem is None and self._training().binarise and (self.likelihood_ != "bernoulli" or low < 0 or high > 1):
            problem = f"training.binarise needs likelihood='bernoulli' and values in [0, 1], got {low:g} to {high:g}"
        if problem:
            raise ValueError(f"{problem} after scale={self.scale!r}. Rescale X, or use likelihood='gaussian'.")
        if likelihood.atom and not self._leaves_alone():
            raise ValueError(
                f"likelihood={self.likelihood_!r} is about exact zeros, which scale={self.scale!r} does not keep for "
                "these data. Use scale='none'."
            )

    def _leaves_alone(self) -> bool:
        """Whether scaling is the identity."""
        own = self.scaling_
        return isinstance(own, scalings.Affine) and not own.shift.any() and bool((own.scale == 1).all())

    def _build(self, n_features: int, weights: torch.Generator) -> LatentModel:
        n, posterior = int(self.n_components), self.posterior()
        likelihood = families.likelihood(self.likelihood_, variance_floor=self.variance_floor, variance=self.variance)
        hidden, image = tuple(int(h) for h in self.hidden), self.image_shape
        sizes = Sizes(n_features, posterior.width(n), n, likelihood.width(n_features), hidden, image)
        if image is not None:
            image_of(sizes)  # refuses a shape that does not hold a row, whether or not the networks look at it
        encoder = self._network("encoder", self.encoder, sizes, weights)
        decoder = self._network("decoder", self.decoder, sizes, weights)
        prior = self.prior()
        initialise(prior, weights)
        return self.story(encoder, posterior, decoder, likelihood, prior)

    def _network(self, name: str, own: nn.Module | None, sizes: Sizes, weights: torch.Generator) -> nn.Module:
        """One of ours by its name, or the user's own (with its weights) and a linear head."""
        if own is None:
            network: nn.Module = getattr(NETWORKS[self.network], name)(sizes)
            initialise(network, weights)
            return network
        widths = {"encoder": (sizes.features, sizes.raw_z), "decoder": (sizes.units, sizes.raw_x)}
        n_in, n_out = widths[name]
        if any(isinstance(m, nn.modules.dropout._DropoutNd) for m in own.modules()):
            raise ValueError(
                f"{name} holds a Dropout layer, whose noise comes from torch's global random state: a run could be "
                "neither repeated nor resumed. Leave it out; the noise of z regularises already."
            )
        body = copy.deepcopy(own).cpu().eval()
        with torch.no_grad():
            try:
                out = body(torch.zeros(2, n_in))
            except Exception as error:
                raise ValueError(f"{name} cannot take a float tensor of shape (B, {n_in}): {error}") from error
        if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != 2:
            shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(f"{name} must map (B, {n_in}) to (B, width); for B = 2 it gave {shape}.")
        head = Linear(out.shape[1], n_out)
        initialise(head, weights)
        return nn.Sequential(body, head)

    def _lay_out(self, X: Any, targets: Any) -> tuple[Rows, nn.Module]:
        """The rows that training takes, and what turns a batch of them into a network's input."""
        return place(X, self._device(), resident=True), self.scaling_

    def _train(
        self,
        X: Any,
        settings: Training,
        plan: Mapping[str, Schedule],
        moments: dict[str, Tensor] | None,
        targets: Any = None,
    ) -> None:
        rows, prepare = self._lay_out(X, targets)
        self.n_rows_ = max(self.n_rows_, rows.shape[0] - settings.held_out(rows.shape[0]))
        if hasattr(self, "second_stage_"):
            del self.second_stage_  # it knows the codes of the old weights
        model = self.model_.train()
        history = History()
        try:
            history, self._moments = fit(
                model,
                self.objective().to(rows.device),
                rows,
                settings,
                schedules=plan,
                prepare=prepare,
                label=type(self).__name__,
                signature=self._signature(),
                moments=moments,
                history=history,
            )
        except Exception:
            if not (history or self.n_steps_):  # refused or diverged before its first report: there is no model
                del self.model_
            raise
        finally:
            model.eval()
            self.history_.extend(history)
            self.n_steps_ += int(history[-1]["step"]) if history else 0
        self._settle(X)

    @_inference
    def _settle(self, X: Any) -> None:
        """Let a prior that learns look at the training rows once more."""
        if type(self.model_.prior).settle is not Prior.settle:
            for x, n in self._blocks(X):
                self.model_.prior.settle(x[:n])

    def _signature(self) -> dict[str, Any]:
        """What a run is a function of: class, constructor, seed and data; not where it writes or what it prints."""
        settings = encode(self._training().get_params(), "training")["dict"]
        for free in ("folder", "resume", "verbose", "checkpoint_every"):
            del settings[free]
        own = {k: str(getattr(self, k)) for k in ("encoder", "decoder")}
        return {
            "model": type(self).__name__,
            **self._constructor(),
            **own,
            **settings,
            "data": self.fingerprint_,
            "scaling": [type(self.scaling_).__name__, self.scaling_.log_det],
        }

    # -- codes --------------------------------------------------------------------------------------------------

    def _device(self) -> torch.device:
        return next(self.model_.parameters()).device

    def to(self, device: str | torch.device) -> Self:
        """Move a fitted model to a device."""
        self.model_.to(device)
        self.scaling_.to(device)
        if hasattr(self, "second_stage_"):
            self.second_stage_.to(device)
        return self

    def _blocks(self, X: Any) -> Iterator[tuple[Tensor, int]]:
        """Scaled rows in blocks of 512, the last one padded: (512, D) and how many of them count."""
        rows = place(X, self._device(), resident=False)
        n = rows.shape[0]
        for start in range(0, n, BLOCK):
            index = torch.arange(start, start + BLOCK, device=rows.device).clamp_max(n - 1)
            yield self.scaling_(rows.take(index)), min(BLOCK, n - start)

    @_inference
    def transform(self, X: Any, *, max_active: int | None = None) -> Any:
        """The code of every row: the mode of q(z|x), deterministic.

        Spike-and-slab models return a CSR matrix, float32, with exact zeros; `max_active` keeps at most that many
        non-zeros a row, those whose gates are most probable. Gaussian models return a dense array of means.
        """
        X = self._read(X, reset=False)
        if max_active is not None:
            check_number("max_active", max_active, "an integer above 0", lambda k: k > 0, whole=True)
        codes = (self._code(self.model_.encode(x), max_active)[:n].cpu().numpy() for x, n in self._blocks(X))
        if not self._sparse() or self._wants_frame():
            return np.concatenate(list(codes))
        return _csr(codes)

    def _sparse(self) -> bool:
        return isinstance(self.model_.posterior, families.SPARSE)

    def _wants_frame(self) -> bool:
        """set_output, or scikit-learn's own configuration, asked for a DataFrame, which has no sparse form."""
        everywhere = sklearn.get_config()["transform_output"]
        return bool(getattr(self, "_sklearn_output_config", {}).get("transform", everywhere) != "default")

    def _code(self, q: Distribution, max_active: int | None) -> Tensor:
        z: Tensor = q.mode
        if max_active is None or max_active >= z.shape[-1]:
            return z
        if not hasattr(q, "ranking"):
            raise ValueError(f"max_active needs a code with gates; {type(self).__name__} codes are dense. Use VSC.")
        keep = torch.zeros_like(z, dtype=torch.bool).scatter_(-1, q.ranking.topk(max_active, dim=-1).indices, True)
        return torch.where(keep, z, 0.0)

    @_inference
    def inverse_transform(self, Z: Any) -> Array:
        """Decode: the mean of p(x|z) for every code, in X's own units."""
        Z = check_array(Z, accept_sparse="csr", dtype=np.float32, input_name="Z")
        if Z.shape[1] != self._n_features_out:
            raise ValueError(f"codes have {self._n_features_out} columns, one per unit; got {Z.shape[1]}.")
        rows = place(Z, self._device(), resident=False)
        out = []
        for start in range(0, Z.shape[0], BLOCK):
            index = torch.arange(start, start + BLOCK, device=rows.device).clamp_max(Z.shape[0] - 1)
            mean = self.scaling_.inverse(self.model_.decode(rows.take(index)).mean)
            out.append(mean[: Z.shape[0] - start].cpu().numpy())
        return np.concatenate(out)

    # -- scores -------------------------------------------------------------------------------------------------

    @_inference
    def _bounds(self, X: Any, n_samples: int) -> Bounds:
        """Bounds of every row, in nats of X's own units where the likelihood is a density."""
        X = self._read(X, reset=False)
        check_number("n_samples", n_samples, "an integer above 0", lambda k: k > 0, whole=True)
        seed = mix(self._training().seed, 4)
        parts = []
        for x, n in self._blocks(X):
            problem = self.model_.likelihood.check(float(x.min()), float(x.max()))
            if problem:
                raise ValueError(f"{problem}; this model was fitted with likelihood={self.likelihood_!r}.")
            parts.append([v[:n].cpu() for v in bounds(self.model_, x, int(n_samples), seed=seed)])
        out = Bounds(*(torch.cat(v) for v in zip(*parts, strict=True)))
        # Rows so far out that float32 overflows: minus infinity is a true bound too, NaN is nothing.
        out = Bounds(*(v.nan_to_num(nan, torch.inf, -torch.inf) for v, nan in zip(out, _LOST, strict=True)))
        log_det = 0.0 if self.model_.likelihood.discrete else self.scaling_.log_det
        return out._replace(elbo=out.elbo + log_det, importance=out.importance + log_det)

    @_inference
    def score_meaning(self, X: Any) -> str:
        """What a score of X is: 'bound' (on log p(x)), or 'cross-entropy' (grey pixels), 'normalised-row density', or
        'joint density at the code' (log p(x, z) of an autoencoder without noise)."""
        if not self.model_.posterior.density:
            return "joint density at the code"
        if not self.scaling_.reversible:
            return "normalised-row density"
        if self.model_.likelihood.discrete:
            binary = all(bool(((x == 0) | (x == 1)).all()) for x, _ in self._blocks(self._read(X, reset=False)))
            return "bound" if binary else "cross-entropy"
        return "bound"

    def score_samples(self, X: Any, *, n_samples: int = 10) -> Array:
        """Per item, nats: the ELBO with hard draws and unit weights, a true lower bound on log p(x) in the mean.

        Gaussian scores are densities in X's own units. Three settings are no bounds on log p(x), and
        `score_meaning` says so: Bernoulli on grey values is a cross-entropy, scale="unit-norm" scores the normalised
        row at the stated variance floor, and VAE(noise=False) has a joint density at the code. The noise of a row
        depends on (seed, row) alone.
        """
        return self._bounds(X, n_samples).elbo.numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`, nats per item."""
        return float(self.score_samples(X).mean())

    def importance_bound(self, X: Any, *, n_samples: int = 1000) -> ImportanceBound:
        """The importance-weighted bound on log p(x) of every item; refused where scores are no bounds."""
        check_is_fitted(self)
        if (meaning := self.score_meaning(X)) != "bound":
            raise ValueError(
                f"scores of this model on these data are a {meaning}, not a bound on log p(x): binarise grey pixels, "
                "or fit with scale='auto' and with noise. score_samples gives the number under its own name."
            )
        b = self._bounds(X, n_samples)
        return ImportanceBound(b.importance.numpy(), b.standard_error.numpy(), b.effective_samples.numpy())

    @_inference
    def evaluate(self, X: Any, *, caps: Sequence[int] = ()) -> dict[str, Any]:
        """The numbers to judge a model by, on X: score (and what it is), sparsity, reconstruction, cost of caps.

        Counts per row: `mode` (the code's non-zeros), `drawn` (of a hard draw) and `expected` (sum of p_on). A unit
        is active when the variance over rows of the mean of q(z|x) exceeds .01.
        `mse` is per value in X's own units (of normalised rows for scale="unit-norm").
        """
        for cap in caps:
            check_number("a cap", cap, "an integer above 0", lambda k: k > 0, whole=True)
        given, X = X, self._read(X, reset=False)
        mode, drawn, expected, nats, n_rows = 0.0, 0.0, 0.0, 0.0, X.shape[0]
        means = []
        errors = dict.fromkeys((None, *caps), 0.0)
        for x, n in self._blocks(X):
            q = self.model_.encode(x)
            p = self.model_.prior(x, self.model_.encode)
            z = Draw(PerRow(row_keys(x), mix(self._training().seed, 5)), hard=True)(q)
            mode += float((q.mode != 0)[:n].sum())
            drawn += float((z != 0)[:n].sum())
            expected += float(q.p_on[:n].sum()) if hasattr(q, "p_on") else float(n * self._n_features_out)
            nats += float(divergence(q, p, z)[:n].double().sum())
            means.append(q.mean[:n])
            target = self.scaling_.inverse(x)
            for most in errors:
                mean = self.scaling_.inverse(self.model_.decode(self._code(q, most)).mean)
                errors[most] += float((mean - target)[:n].double().square().sum())
        values = n_rows * self.n_features_in_
        score = self.score_samples(given)
        return {
            "rows": n_rows,
            "score": float(score.mean()),
            "score_standard_error": float(score.std()) / math.sqrt(n_rows) if np.isfinite(score).all() else math.inf,
            "score_meaning": self.score_meaning(given),
            **self.model_.likelihood.describe(),
            "nonzeros_mode": mode / n_rows,
            "nonzeros_drawn": drawn / n_rows,
            "nonzeros_expected": expected / n_rows,
            "active_units": int((torch.cat(means).var(0, correction=0) > ACTIVE_VARIANCE).sum()),
            "n_components": self._n_features_out,
            "kl": nats / n_rows,
            "mse": errors[None] / values,
            "caps": {int(cap): errors[cap] / values for cap in caps},
            **(self._three_numbers(given) if self.model_.posterior.discrete else {}),
        }

    def _three_numbers(self, X: Any) -> dict[str, Any]:
        """What is said of a discrete code beside its score, the hard ELBO: two more numbers in the same units.

        `relaxed_objective` is what training saw, with unit weights: where draws are relaxed it is no bound, and may
        lie above log p(x). `importance_bound` is the hard bound of 1,000 samples, on the first 1,000 rows.
        """
        found: dict[str, Any] = {"relaxed_objective": float(self.relaxed_objective(X).mean())}
        if self.score_meaning(X) == "bound":
            few = self._read(X, reset=False)[:1000]
            bound = self.importance_bound(few, n_samples=1000).bound
            found |= {"importance_bound": float(bound.mean()), "importance_rows": len(bound)}
        return found

    @_inference
    def relaxed_objective(self, X: Any) -> Array:
        """Per item, nats: the training objective with unit weights and the draws that training takes; no bound.

        Compare `score_samples`: for a code that training relaxes (concrete, paper, VSC's sigmoid) the gap says how
        much of the objective the hard code keeps.
        """
        X = self._read(X, reset=False)
        (each, draws), seed = points(self.model_), mix(self._training().seed, 8)
        found = []
        for x, n in self._blocks(X):
            keys = row_keys(x) + torch.arange(1, each + 1, device=x.device)[:, None] * SPREAD
            trace = self.model_(x.repeat(each, 1), Draw(PerRow(keys.flatten(), seed), hard=False))
            loss = torch.stack([*nll(trace).values(), *kl(trace).values()]).sum(0)
            found.append(-loss.unflatten(-1, (each, -1))[:draws].mean(0)[:n].cpu())
        log_det = 0.0 if self.model_.likelihood.discrete else self.scaling_.log_det
        return torch.cat(found).numpy() + log_det

    # -- samples ------------------------------------------------------------------------------------------------

    def _decode(self, z: Tensor, draw: Draw, noise: bool) -> Array:
        p = self.model_.decode(z)
        return self.scaling_.inverse(draw(p) if noise else p.mean).cpu().numpy()

    def _fresh(self, seed: int) -> Draw:
        check_number("seed", seed, "an integer", lambda s: True, whole=True)
        return Draw(Fresh(torch.Generator(self._device()).manual_seed(mix(seed, 6))), hard=True)

    @_inference
    def sample(self, n: int = 1, *, seed: int = 0, noise: bool = False, second_stage: bool = False) -> Array:
        """Ancestral samples: z from the prior, then the mean of p(x|z), or a draw from it with `noise`. (n, D)

        With `second_stage` z comes from the model of the codes that `sparsevae.second_stage` fitted instead.
        """
        check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
        draw = self._fresh(seed)
        if second_stage:
            if not hasattr(self, "second_stage_"):
                raise ValueError(
                    "this model has no second stage; fit one first: sparsevae.second_stage(est, X), or "
                    "`sparsevae second-stage DIR --data D`."
                )
            z = self.second_stage_.sample(n, seed=mix(seed, 9), noise=True)
            return self._decode(torch.from_numpy(z).to(self._device()), draw, noise)
        law = self.model_.prior.law(self.model_.encode)
        return self._decode(draw(law.expand((n,))), draw, noise)

    @_inference
    def sample_like(self, X: Any, n: int = 1, *, seed: int = 0, noise: bool = False) -> Array:
        """Samples within one item's active sub-space: units on in its code are redrawn from their slab prior.

        X is one row; the units that are off stay at zero (VSC, figure 13). For dense models this is `sample`.
        """
        check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
        X = self._read(X, reset=False)
        if X.shape[0] != 1:
            raise ValueError(f"sample_like needs one row, got {X.shape[0]}; pass X[:1].")
        x, _ = next(self._blocks(X))
        draw = self._fresh(seed)
        on = self.model_.encode(x).mode[:1] != 0
        law = self.model_.prior.law(self.model_.encode)
        slabs = law.opened() if isinstance(law, (SpikeSlab, SpikeSlabMixture)) else law
        return self._decode(torch.where(on, draw(slabs.expand((n,))), 0.0), draw, noise)

    # -- save ---------------------------------------------------------------------------------------------------

    def _constructor(self) -> dict[str, Any]:
        own = ("encoder", "decoder", "training")
        return {f.name: encode(getattr(self, f.name), f.name) for f in documented(type(self)) if f.name not in own}

    def _portable_training(self) -> dict[str, Any]:
        """Training settings without where and how loudly the run went: a copy of the model runs anywhere."""
        return {**self._training().get_params(), "folder": None, "resume": False, "verbose": 1}

    def save(self, path: str | Path) -> None:
        """Write a folder with safetensors and JSON; the encoder's and decoder's own code is not stored."""
        check_is_fitted(self)
        storage.save_folder(path, *self._stored())

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What is saved: tensors, and settings in plain values; a second stage lies within its model."""
        tensors = {f"model.{k}": v for k, v in self.model_.state_dict().items()}
        tensors |= {f"scaling.{k}": v for k, v in self.scaling_.state_dict().items()}
        names = getattr(self, "feature_names_in_", None)
        meta = {
            "class": type(self).__name__,
            "constructor": self._constructor(),
            "own_networks": [k for k in ("encoder", "decoder") if getattr(self, k) is not None],
            "training": None if self.training is None else encode(self._portable_training(), "training"),
            "n_features_in": int(self.n_features_in_),
            "feature_names_in": None if names is None else [str(name) for name in names],
            "likelihood": self.likelihood_,
            "scaling": type(self.scaling_).__name__,
            "data_fingerprint": self.fingerprint_,
            "n_steps": self.n_steps_,
            "n_rows": self.n_rows_,
            "history": self.history_.columns(),
        }
        if hasattr(self, "second_stage_"):
            inner, meta["second_stage"] = self.second_stage_._stored()
            tensors |= {f"second_stage.{k}": v for k, v in inner.items()}
        return tensors, meta

    def _restore(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        n_features = meta["n_features_in"]
        self.n_features_in_ = n_features
        if meta["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(meta["feature_names_in"], dtype=object)
        self.likelihood_, self.fingerprint_ = meta["likelihood"], meta["data_fingerprint"]
        self.n_steps_, self.n_rows_ = meta["n_steps"], meta.get("n_rows", 0)
        self.history_ = History.from_columns(meta["history"])
        affine = scalings.Affine(torch.zeros(n_features), torch.ones(n_features))
        self.scaling_ = affine if meta["scaling"] == "Affine" else scalings.UnitNorm(n_features)
        self.model_ = self._build(n_features, torch.Generator()).eval()
        for part, module in (("model.", self.model_), ("scaling.", self.scaling_)):
            try:
                module.load_state_dict(_below(tensors, part))
            except RuntimeError as error:
                raise storage.StorageError(f"the stored weights do not fit this model: {error}") from None
        if "second_stage" in meta:
            own = {"encoder": None, "decoder": None}
            inner = _below(tensors, "second_stage.")
            self.second_stage_: SparseCoder = _revive("the second stage", inner, meta["second_stage"], own, None)
        return self


def _below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part of a stored model, by their names within it."""
    return {k.removeprefix(part): v for k, v in tensors.items() if k.startswith(part)}


def _check_resolution(X: Any) -> None:
    """Refuse columns that vary by less than float32 resolves at their size, such as time stamps in seconds."""
    if scipy.sparse.issparse(X) or X.dtype.itemsize <= 4:
        return
    low, high = X.min(axis=0), X.max(axis=0)
    lost = np.flatnonzero((high > low) & (high - low < 1e-5 * np.maximum(np.abs(low), np.abs(high))))
    if len(lost):
        j = int(lost[0])
        raise ValueError(
            f"column {j} of X runs from {low[j]:.10g} to {high[j]:.10g}: too little for its size to survive float32. "
            "Subtract an offset first, for instance with sklearn.preprocessing.StandardScaler in a Pipeline."
        )


def load(
    path: str | Path,
    *,
    encoder: nn.Module | None = None,
    decoder: nn.Module | None = None,
    cls: type[SparseCoder] | None = None,
) -> Any:
    """A fitted estimator from a folder written by `save`, on the CPU. Runs no stored code and needs no data.

    A model with your own `encoder` or `decoder` needs those modules again (their weights come from the file), one
    of your own classes needs `cls`.
    """
    tensors, meta = storage.load_folder(path)
    try:
        return _revive(path, tensors, meta, {"encoder": encoder, "decoder": decoder}, cls)
    except (KeyError, TypeError) as error:
        raise storage.StorageError(
            f"{path} holds settings that this version of sparsevae does not know ({error}); upgrade to load it."
        ) from error


def _revive(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    own: dict[str, Any],
    cls: type[SparseCoder] | None,
) -> SparseCoder:
    from sparsevae import models

    known = models.known() if cls is None else {cls.__name__: cls}
    if meta["class"] not in known:
        raise storage.StorageError(f"{path} holds a {meta['class']}; known classes: {', '.join(known)}. Pass cls=.")
    missing = [k for k in meta["own_networks"] if own[k] is None]
    if missing:
        raise storage.StorageError(f"{path} was fitted with your own {' and '.join(missing)}: pass them to load().")
    training = None if meta["training"] is None else Training(**decode(meta["training"]))
    constructor = {k: decode(v) for k, v in meta["constructor"].items()}
    found = known[meta["class"]]
    networks = {k: v for k, v in own.items() if k in {f.name for f in fields(found)}}  # a counter has no decoder
    return found(**constructor, **networks, training=training)._restore(tensors, meta)
