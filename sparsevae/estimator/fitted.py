"""Fitted: the learned state of an estimator, as analysis, report and command line use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.estimator.assemble import DataSpec
from sparsevae.estimator.blocks import Blocks
from sparsevae.inputs.base import Array, Input
from sparsevae.inputs.codes import read_codes
from sparsevae.inputs.kind import as_list, check_kind
from sparsevae.inputs.rows import place, some_rows
from sparsevae.latent.codes import code_of, gated
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective
from sparsevae.refinement.contributions import ROWS, linear_gain, linear_map, measured_gain
from sparsevae.refinement.inference import STEPS, infer
from sparsevae.refinement.pursuit import Dictionary, pursue_from
from sparsevae.sampling.noise import mix
from sparsevae.storage.codec import decode
from sparsevae.threads import inference
from sparsevae.training.history import History
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


UNSET: dict[str, Any] = {"skip": False, "start": "random", "code": "mode", "target_active": None}
"""What None stands for where a model has no default of its own, and in stored models that are older than the field."""


@dataclass(eq=False)
class Fitted:
    """The learned state of an estimator.

    Attributes
    ----------
    input : Input
        The kind of data: reads and scales X, and converts decoded rows to X's form.
    training : Training
        The settings in use.
    hidden, defaults
        The values that hidden=None and other arguments of None stand for.
    model : LatentModel
        The networks, with q(z|x), p(x|z) and p(z).
    built : dict
        The constructor arguments, as plain values, of the time when the model was built.
    history : History
        One row per report.
    n_steps, n_rows : int
        Steps taken; the largest number of rows of a training run.
    moments : dict or None
        Those of the optimiser, for `partial_fit`.
    gain : Tensor (J,) or None
        What a unit brings to the output, measured after training (`refinement.contributions`).
    """

    est: SparseCoder
    input: Input
    training: Training
    hidden: tuple[int, ...]
    defaults: dict[str, Any]
    fingerprint: str = ""
    n_steps: int = 0
    n_rows: int = 0
    history: History = field(default_factory=History)
    moments: dict[str, Tensor] | None = None
    gain: Tensor | None = None
    model: LatentModel = None  # type: ignore[assignment]  # from when it is built
    built: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> DataSpec:
        """The argument of `build`."""
        return DataSpec(self.input, self.n_rows)

    @property
    def objective(self) -> Objective:
        """The training objective, with its weights before the first step."""
        return self.est.build(self.data, None).objective

    @property
    def weights(self) -> dict[str, float]:
        """The weight of every term that has one, before the first step."""
        objective = self.objective
        return {name: float(getattr(objective, name)) for name in objective.knobs}

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def n_units(self) -> int:
        """J, the number of columns of a code."""
        return self.model.n_components

    @property
    def sparse(self) -> bool:
        """True if codes have exact zeros, and so a P(on) per unit."""
        return self.model.posterior.sparse

    @property
    def largest(self) -> Array | None:
        """The largest value of each unit in a code of whole numbers, (J,); None for real values."""
        found = self.model.posterior.largest(self.n_units)
        return None if found is None else found.numpy()

    # -- rows ---------------------------------------------------------------------------------------------------

    def rows(self, X: Any) -> Any:
        """X, in any form that `fit` takes, as checked rows."""
        X = as_list(X)
        check_kind(X, self.input, type(self.est).__name__)
        return self.input.read(self.est, X, reset=False)

    def blocks(self, rows: Any, draws: int = 1) -> Blocks:
        """Checked rows in blocks on the device; the more `draws` per row, the fewer rows per block."""
        groups, order = self.input.group_by_width(rows)
        placed = [place(own, self.device, resident=False) for own in groups]
        return Blocks(placed, order, self.input.block_size(self.device, draws), self.input.prepare)

    def code_blocks(self, Z: Any) -> Blocks:
        """Codes Z, (n, J), checked and in blocks."""
        rows = place(read_codes(Z, self.n_units), self.device, resident=False)
        return Blocks([rows], None, self.input.block_size(self.device), torch.nn.Identity())

    def ask(self, rows: Any, function: Callable[[Distribution], Tensor]) -> Array:
        """A function of q(z|x), (B, ...), for all checked rows, (n, ...)."""
        with inference(self.device):
            found: Array = self.blocks(rows).map(lambda x: function(self.model.encode(x)))
        return found

    def code(self, q: Distribution, max_active: int | None = None, kind: str | None = None) -> Tensor:
        """Codes, (B, J), of a kind, with at most `max_active` non-zeros per row; None: the constructor's."""
        name, cap = type(self.est).__name__, self.est.max_active if max_active is None else max_active
        if kind not in (None, "mode") and not (self.sparse and gated(q)):
            raise ValueError(f"code={kind!r} needs a code with gates and slabs; of {name} there is code='mode' alone.")
        if cap is not None and cap < q.event_shape[0] and not self.sparse:
            raise ValueError(f"max_active needs a code with gates; {name} codes are dense. Use VSC.")
        kind = kind or self.est.value("code")  # it may have been set since the fit
        return code_of(self.model, q, None if cap is None else int(cap), kind, self._gain())

    def _gain(self) -> Tensor | None:
        """By what `max_active` ranks; None: by gates, for whole numbers and where no gain was measured."""
        if self.model.posterior.discrete:
            return None
        found = linear_gain(self.model)
        return self.gain if found is None else found

    def measure(self, rows: Any) -> None:
        """Measure `gain` on some checked rows, where a cap ranks by it: codes of real values of rows of numbers."""
        decodes, posterior = self.est.decodes and self.input.kind == "numbers", self.model.posterior
        if not (decodes and posterior.sparse and not posterior.discrete) or linear_gain(self.model) is not None:
            return
        shuffle = torch.Generator().manual_seed(mix(self.training.seed, 15))
        some = torch.randperm(rows.shape[0], generator=shuffle)[: some_rows(ROWS, self.input.width)]
        x = place(rows, torch.device("cpu"), resident=False).take(some).to(self.device)
        with inference(self.device):
            self.gain = measured_gain(self.model, self.input.prepare(x))

    def coder(
        self, max_active: int | None = None, refine: bool | int = False, kind: str | None = None
    ) -> Callable[[Tensor], Tensor]:
        """The function from prepared rows x, (B, D), to their codes, (B, J); `transform` describes the arguments."""
        model, seed = self.model, mix(self.est.training_settings().seed, 14)
        if not refine:
            return lambda x: self.code(model.encode(x), max_active, kind)
        found = self.dictionary if refine is True else None
        if found is not None and self.sparse and model.posterior.signed and not model.posterior.discrete:
            most = self.est.max_active if max_active is None else max_active

            def pursued(x: Tensor) -> Tensor:
                q = model.encode(x)
                return pursue_from(found, x, q, most, code_of(model, q, kind=kind or self.est.value("code")))

            return pursued
        steps = STEPS if refine is True else int(refine)
        return lambda x: self.code(model.posterior_from(infer(model, x, steps, seed)), max_active, kind)

    @property
    def dictionary(self) -> Dictionary | None:
        """The atoms of a linear decoder whose output is the mean of p(x|z), in the networks' units; else None."""
        found = linear_map(self.model) if self.est.decodes and self.model.likelihood.location else None
        return None if found is None else Dictionary.of(*found)

    # -- settings -----------------------------------------------------------------------------------------------

    def resolved(self) -> dict[str, Any]:
        """The constructor arguments, with None resolved by the kind of data."""
        return {k: self.defaults.get(k) if v is None else decode(v) for k, v in self.built["constructor"].items()}

    def to(self, device: str | torch.device) -> None:
        self.model.to(device)
        self.input.prepare.to(device)
        self.gain = None if self.gain is None else self.gain.to(device)


def _of(name: str) -> Any:
    return property(lambda est: getattr(est.fitted_, name))


class _BeforeFit:
    """The value of `fitted_` before `fit`: reading it raises NotFittedError, which is an AttributeError too."""

    def __get__(self, est: Any, owner: type) -> Any:
        check_is_fitted(est)


class Learned:
    """`fitted_`, and its attributes under their own names."""

    fitted_: Fitted = cast(Any, _BeforeFit())
    model_ = _of("model")
    input_ = _of("input")
    history_ = _of("history")
    training_ = _of("training")
    hidden_ = _of("hidden")
    n_steps_ = _of("n_steps")
    n_rows_ = _of("n_rows")
    fingerprint_ = _of("fingerprint")

    @property
    def likelihood_(self) -> str:
        """The name of the likelihood in use."""
        return self.fitted_.input.likelihood_name

    @property
    def scaling_(self) -> Any:
        """From X's units to those of the networks, and back; texts have none."""
        return self.fitted_.input.scaling

    @property
    def components_(self) -> Array:
        """The atoms of a linear decoder in X's units, (J, D): x decoded from z is z @ components_ plus that of 0."""
        own = self.fitted_
        found = linear_map(own.model) if own.dictionary is not None and own.input.scaling.reversible else None
        if found is None:
            raise AttributeError(
                f"this {type(own.est).__name__} has no components_: they need a linear decoder of values, as with "
                "decoder_hidden=(), skip=False, likelihood='gaussian', 'column-gaussian', 'fixed-gaussian' or "
                "'laplace', and a scale other than 'unit-norm'."
            )
        return (found[0].T * getattr(own.input.scaling, "scale", 1.0)).cpu().numpy()
