"""SparseCoder: the scikit-learn interface of every model.

A model is a subclass that mixes in its fields (`estimator.fields`) and implements `build`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import sklearn
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length
from torch import Generator, Tensor, nn

from sparsevae.checks import POSITIVE, OneOf, check_room, check_seed
from sparsevae.estimator import evaluation, learning, samples
from sparsevae.estimator.assemble import Build, DataSpec
from sparsevae.estimator.blocks import fitted
from sparsevae.estimator.fields import NETWORK, ObservedData
from sparsevae.estimator.fitted import UNSET, Learned
from sparsevae.estimator.saving import save
from sparsevae.estimator.scores import ImportanceBound, bounds_of, importance_of, meaning_of, relaxed_of
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Array
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.rows import to_csr
from sparsevae.inputs.texts import Text, Texts
from sparsevae.latent.codes import KINDS
from sparsevae.latent.objective import Term, free_bits, kl
from sparsevae.networks.architectures import NETWORKS, chosen
from sparsevae.parameters import check_caps, check_parameters, check_value, parameters
from sparsevae.refinement.inference import CHECKS
from sparsevae.training.loop import Watch
from sparsevae.training.settings import Training

_decodes, _has_bound = attrgetter("decodes"), attrgetter("has_bound")


class _Absent:
    """Fields that some models mix in, and their values for the others."""

    text: Text | None = None
    decoder: nn.Module | None = None
    decoder_hidden: tuple[int, ...] | None = None
    skip: bool | None = None
    start: str | None = None
    code: str | None = None
    likelihood: str = "auto"
    max_active: int | None = None


@parameters
class SparseCoder(Learned, _Absent, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of all models: the encoder's fields, and the methods of a fitted model.

    `fitted_` has the model, the kind of data, the settings in use and the history; `model_`, `history_` and so on
    (`Learned`) are shortcuts to its attributes.
    """

    hidden: Annotated[
        tuple[int, ...] | None,
        POSITIVE,
        "Sizes of the encoder's layers; the decoder has them reversed. None: (400,); texts: (128,).",
    ] = None
    network: Annotated[
        str, OneOf("auto", *NETWORKS), "auto: gru for texts, else dense. conv: any image, asperti 28 x 28, mat 32 x 32."
    ] = "auto"
    image_shape: Annotated[
        tuple[int, int] | tuple[int, int, int] | None, POSITIVE, "(H, W) or (H, W, C) of a row; None: square and grey."
    ] = None
    encoder: Annotated[nn.Module | None, NETWORK, "Your network, (B, D) -> (B, width); a linear head is added."] = None
    scale: Annotated[str, OneOf(*scalings.SCALES), "How X is scaled; inverse_transform undoes it."] = "auto"
    training: Annotated[Training | None, "Training settings; None means Training()."] = None

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "model_": ("LatentModel", "the networks: q(z|x) from `model_.encode`, p(x|z) from `model_.decode`"),
        "likelihood_": ("str", "the name of p(x|z), for models that have one"),
        "scaling_": ("Scaling", "from X's units to those of the networks, and back; texts have none"),
        "history_": ("History", "one row per report"),
        "training_": ("Training", "the settings in use, with the values that None stands for"),
        "n_features_in_": ("int", "the number of columns of X; `feature_names_in_` are their names, if it has any"),
    }
    learned: ClassVar[tuple[str, ...]] = ()  # attributes that are stored beside the model: plain values and arrays
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # kind of data -> argument -> value of None

    # -- hooks of a model ---------------------------------------------------------------------------------------

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        """The model for these data, with weights drawn from `weights`; None: the caller sets them afterwards."""
        raise NotImplementedError(
            f"{type(self).__name__} must define build(data, weights) -> Build: see CONTRIBUTING.md"
        )

    def check(self) -> None:
        """Refuse constructor arguments that cannot work."""
        check_parameters(self)
        self.training_settings().validate()
        if self.text is not None:
            self.text.validate()
        if self.decoder is not None and self.decoder_hidden is not None:
            raise ValueError("decoder_hidden is for the library's decoder, and decoder is your own: leave out one.")
        self.rules()

    def rules(self) -> None:
        """Refuse what the ranges of single fields cannot exclude, such as fields that contradict each other."""

    def defaults_for(self, kind: str, n_rows: int) -> dict[str, Any]:
        """What arguments of None stand for, for this kind of data and so many training rows."""
        return dict(self.defaults_by_kind.get(kind, {}))

    def check_run(self, steps: int) -> None:
        """Refuse settings that do not fit a run of this many steps."""

    @classmethod
    def default_training(cls) -> Training:
        """The settings that training=None stands for."""
        return Training()

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        """y as numbers, (n, L), for models that learn from labels; None: y is ignored."""
        return None

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        """Called with checked rows and targets before the model is built; `tune` is False in `partial_fit`."""

    @property
    def decodes(self) -> bool:
        """True if codes can be decoded."""
        return isinstance(self, ObservedData)

    @property
    def has_bound(self) -> bool:
        """True if there are p(x|z) and p(z), and so samples and a bound on log p(x)."""
        return self.decodes

    # -- settings -----------------------------------------------------------------------------------------------

    def training_settings(self) -> Training:
        """`training`, or the default for None."""
        return self.default_training() if self.training is None else self.training

    def text_settings(self) -> Text:
        """`text`, or the default for None."""
        return self.text or Text()

    def value(self, name: str) -> Any:
        """A constructor argument; None is resolved by the kind of data of the fit, before `fit` as for numbers."""
        own = getattr(self, name)
        known = self.fitted_.defaults if hasattr(self, "fitted_") else self.defaults_for("numbers", 0)
        return (known[name] if name in known else UNSET[name]) if own is None else own

    def kl_term(self) -> Term:
        """The KL of every latent variable, with the free nats of `training.free_bits` if that is above 0."""
        floor = self.training_settings().free_bits
        return free_bits(floor) if floor else kl

    def refuse_free_bits(self) -> None:
        """Refuse `training.free_bits`, for models whose terms are not a KL per unit."""
        if self.training_settings().free_bits:
            raise ValueError(f"training.free_bits is for a KL per unit; {type(self).__name__} has none. Leave it at 0.")

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; `training__steps=...` works also where training is None, and so for text."""
        for name, default in {"training": self.default_training, "text": Text}.items():
            if any(k.startswith(f"{name}__") for k in params) and params.get(name, getattr(self, name)) is None:
                params[name] = default()
        super().set_params(**params)
        return self

    def in_force(self) -> dict[str, Any]:
        """The settings of the fitted model, by argument, with the values that None and "auto" stand for.

        Without `encoder`, `decoder` and `training`. For texts with their settings and the size of the vocabulary.
        """
        found = self.fitted_
        own: dict[str, Any] = {k: getattr(self, f"{k}_", v) for k, v in found.resolved().items()}
        own["network"] = chosen(own["network"], texts=isinstance(found.input, Texts))
        return own | found.input.in_force()

    def check_unchanged(self) -> None:
        """Refuse if constructor arguments were set anew since `fit`."""
        learning.check_unchanged(self)

    # -- scikit-learn -------------------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return self.fitted_.n_units

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _wants_frame(self) -> bool:
        """True if set_output or scikit-learn's configuration asks for a DataFrame, which has no sparse form."""
        everywhere = sklearn.get_config()["transform_output"]
        return bool(getattr(self, "_sklearn_output_config", {}).get("transform", everywhere) != "default")

    # -- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None) -> Self:
        """Learn the model from X: array, DataFrame, CSR matrix, tensor, memory map or path; or texts, a list of str.

        `y` is ignored. `watch` is called with every report, a row of `history_`; transform, evaluate and the other
        methods can be used in it, and use the weights of that step.
        """
        return self._learn(X, y, watch)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One more pass over new data at the initial learning rate; schedules stay at their last values.

        Scaling and likelihood, or the vocabulary, stay as they are; the first call on a new estimator chooses them by
        its X. A slope that is part of q(z|x) stays where the last run left it. The optimiser continues with its
        moments. They start at zero for a loaded model, which is stored without them, and after a run with patience,
        which ends with the weights of its best report.
        """
        return self._pass_over(X, y)

    def prepare(self, X: Any, y: Any = None) -> Self:
        """The part of `fit` before the first step: X is checked and the model is built for it, untrained."""
        self._begin(X, y, {})
        return self

    def _begin(self, X: Any, y: Any, about_y: dict[str, Any], *, tune: bool = True) -> tuple[Any, Any, Build]:
        """Checked rows and targets, and the model for them."""
        self.check()
        self.__dict__.pop("fitted_", None)  # if X or y is refused, the estimator must not look fitted
        kind, X = learning.first_look(self, X)
        Y = self._targets(X, y, about_y)
        self.before_fit(X, Y, tune=tune)
        return X, Y, learning.build(self, kind, X, Y)

    def _learn(self, X: Any, y: Any, watch: Watch | None, **about_y: Any) -> Self:
        X, Y, made = self._begin(X, y, about_y)
        learning.train(self, X, Y, made, self.fitted_.training, watch=watch)
        return self

    def _pass_over(self, X: Any, y: Any, **about_y: Any) -> Self:
        if hasattr(self, "fitted_"):
            self.check()
            X = self.fitted_.rows(X)
            Y = self._targets(X, y, about_y)
            self.before_fit(X, Y, tune=False)
        else:
            X, Y, _ = self._begin(X, y, about_y, tune=False)
        learning.pass_over(self, X, Y)
        return self

    def _targets(self, X: Any, y: Any, about_y: dict[str, Any]) -> Any:
        Y = self.read_targets(y, **about_y)
        if Y is not None:
            check_consistent_length(X, Y)
        return Y

    def _from_posterior(self, X: Any, function: Callable[[Any], Tensor]) -> Array:
        """A function of q(z|x), (B, ...), for every row of X, (n, ...)."""
        return self.fitted_.ask(self.fitted_.rows(X), function)

    def to(self, device: str | torch.device) -> Self:
        """Move a fitted model to a device."""
        self.fitted_.to(device)
        return self

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> Any:
        """`fit`, then `transform`; X may be a generator, whose items are read once."""
        return super().fit_transform(as_list(X), y, **more)

    # -- codes --------------------------------------------------------------------------------------------------

    @fitted
    def transform(
        self, X: Any, *, code: str | None = None, max_active: int | None = None, refine: bool | int = False
    ) -> Any:
        """The code of every row, deterministic: the mode of q(z|x), or another kind.

        Sparse codes are a float32 CSR matrix with exact zeros, others a dense array. For codes with gates and slabs
        `code` is "mode", the slab's mean where P(on) > 1/2, "gated", P(on) times the slab's mean, or "thresholded",
        that product where its size is above .1; None is the model's own field `code`.

        `max_active` (None: the constructor's) keeps at most that many of a row's non-zeros: those that bring most to
        the output, P(on) z^2 times the unit's gain; of whole numbers, of texts and of older models with a deep decoder
        the most probable.

        `refine` spends more time on each row. For a linear decoder of Gaussian or Laplace values True is a pursuit on
        its dictionary, `components_`, for as many non-zeros, with coefficients by least squares. Elsewhere, and for
        slab="log-normal", it is 20 steps, or the given number on any decoder, of inference on q(z|x), which raise the
        row's bound or leave its code as it is.
        """
        own = self.fitted_
        blocks = own.blocks(own.rows(X), CHECKS if refine else 1)
        if code is not None:
            check_value("code", code, str, [OneOf(*KINDS)])
        if max_active is not None:
            POSITIVE.check("max_active", max_active, whole=True)
        if not isinstance(refine, bool):
            POSITIVE.check("refine", refine, "True, False or a number of steps, an integer above 0", whole=True)
        if refine and not self.has_bound:
            raise ValueError(f"refine needs p(x|z) and p(z), and {type(self).__name__} has none: leave it at False.")
        encode = own.coder(max_active, refine, code)
        if own.sparse and not self._wants_frame():
            return blocks.in_order(to_csr(blocks.each(encode)))
        return blocks.map(encode)

    @available_if(_has_bound)
    def draw_codes(self, X: Any, n: int = 1, *, seed: int = 0) -> Array:
        """n hard draws of q(z|x) per row: (n, rows, J), dense. The draws of a row depend on (seed, row) alone."""
        POSITIVE.check("n", n, whole=True)
        check_seed("seed", seed)
        X = self.fitted_.rows(X)
        check_room(n * X.shape[0] * self.fitted_.n_units, {"n": n, "rows of X": X.shape[0]}, "the draws")
        return samples.draws(self, X, int(n), seed)

    def posterior_means(self, X: Any, *, seed: int | None = None) -> dict[str, Array]:
        """Means of q(z|x), (rows, J) each: for codes with gates `slab`, E[z | on], and `gated`, P(on) E[z | on]; for
        other codes `mean`.

        HSVAE's P(on) = 1 - gamma is a latent variable. `gated` uses its mean, or with a `seed` one draw of it per row,
        (1 - gamma) mu, as in the paper's Hoyer measure. For other models the seed makes no difference.
        """
        if seed is not None:
            check_seed("seed", seed, "an integer or None")
        return samples.means(self, self.fitted_.rows(X), seed)

    @available_if(_decodes)
    @fitted
    def inverse_transform(self, Z: Any) -> Any:
        """The mean of p(x|z) for every code, in X's own units; for texts a list of str, the most probable words."""
        own = self.fitted_
        return own.input.concatenate([samples.decode(self, z)[:n] for z, n, _ in own.code_blocks(Z)])

    @available_if(_has_bound)
    def generate(
        self, Z: Any, how: str = "greedy", *, temperature: float = 1.0, beams: int = 5, seed: int = 0
    ) -> list[str]:
        """A text for every code. `how`: "greedy" (the most probable next word), "sample" (words drawn) or "beam".

        "sample" uses `seed` and `temperature`: the lower it is, the more probable the words. "beam" searches for the
        most probable text with `beams` candidates. For models of texts.
        """
        return samples.generate(self, Z, how, temperature=temperature, beams=beams, seed=seed)

    @available_if(_decodes)
    def reconstruct(self, X: Any, **how: Any) -> Any:
        """`inverse_transform(transform(X))`; for texts `how` are arguments of `generate`."""
        Z = self.transform(X)
        return self.generate(Z, **how) if how else self.inverse_transform(Z)

    # -- scores -------------------------------------------------------------------------------------------------

    @available_if(_has_bound)
    def score_meaning(self, X: Any) -> str:
        """What a score of X is: 'bound' (on log p(x)), 'cross-entropy' (grey pixels), 'normalised-row density', or
        'joint density at the code' (log p(x, z) of an autoencoder without noise)."""
        return meaning_of(self, self.fitted_.rows(X))

    @available_if(_has_bound)
    def score_samples(self, X: Any, *, n_samples: int = 10) -> Array:
        """Per item, nats: the ELBO with hard draws and unit weights, a true lower bound on log p(x) in the mean.

        Gaussian scores are densities in X's own units. Where there is no bound on log p(x), `score_meaning` names the
        score: of grey values, scale="unit-norm", VAE(noise=False). The noise depends on (seed, row) alone.
        """
        found: Array = bounds_of(self, self.fitted_.rows(X), n_samples).elbo.numpy()
        return found

    @available_if(_has_bound)
    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`, nats per item."""
        return float(self.score_samples(X).mean())

    @available_if(_has_bound)
    def importance_bound(self, X: Any, *, n_samples: int = 1000) -> ImportanceBound:
        """The importance-weighted bound on log p(x) of every item; refused where scores are no bounds.

        In expectation it lies below log p(x) and rises towards it with `n_samples`. Heavy tails of weights (`pareto_k`
        above .7, less than half of the samples effective) are warned of in more than one row of twenty.
        """
        return importance_of(self, self.fitted_.rows(X), n_samples)

    @fitted
    def evaluate(self, X: Any, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """A table of scores on X: the score and its meaning, sparsity of codes, reconstruction error, effect of caps.

        `kl` is the KL in the score: over all latent variables, and by name if there are several; in closed form where
        there is one, else estimated from the score's `n_samples` draws per row. Training minimises something else in
        PseudoVSC (the choice of a pseudo-input), SDLGM(kl="paper") (features that are off) and VAE(noise=False) (a
        penalty that is no KL). `score_standard_error` is that of the mean over rows; NaN for one row.

        Counts per row: `mode` (non-zeros of the code), `drawn` (of a hard draw; gates that are on if spike_scale is
        above 0) and `expected` (sum of p_on). A unit is active if the variance over rows of the mean of q(z|x) exceeds
        .01. `used`, `always_on`, `dead`, `empty` and `usage_entropy`: `metrics.code_usage` of the code.
        `mse` is per value in X's own units (of normalised rows for scale="unit-norm"), `mean_mse` that of the mean row
        in place of each, and `r2` = 1 - mse / mean_mse (none if all rows are equal).

        For codes with gates, and at least two rows, `hoyer` is Hoyer's sparsity (`metrics.code_hoyer`) of `draws` (one
        per row), `slab` (mu) and `gated` (P(on) mu, for HSVAE of one draw); for texts also of the `mean` of others.

        For texts, in place of `mse`: `words` per text, its end included; the share of `unknown` ones; `nll`, nats per
        text given a draw of its code (the score's draws), and `nll_code`, given the code that `transform` returns; two
        perplexities per word, from the score and from `nll`.
        """
        check_caps(caps)
        return evaluation.evaluate(self, self.fitted_.rows(X), caps, n_samples)

    @available_if(_has_bound)
    def relaxed_objective(self, X: Any) -> Array:
        """Per item, nats: the training objective with unit weights and the draws that training takes; no bound.

        Its gap to `score_samples` is the effect of relaxed draws (concrete, paper, VSC's sigmoid).
        """
        return relaxed_of(self, self.fitted_.rows(X))

    # -- samples ------------------------------------------------------------------------------------------------

    @available_if(_has_bound)
    @fitted
    def sample(self, n: int = 1, *, seed: int = 0, noise: bool = False, second_stage: SparseCoder | None = None) -> Any:
        """Ancestral samples: z from the prior, then the mean of p(x|z), or a draw from it with `noise`. (n, D)

        For texts a list of str: the most probable next word each time, or words drawn with `noise`.
        `second_stage` is a model of the codes, as `sparsevae.second_stage(est, X)` returns it: z is drawn from that.
        """
        return samples.sample(self, n, seed, noise, second_stage)

    @available_if(_has_bound)
    @fitted
    def sample_like(self, X: Any, n: int = 1, *, seed: int = 0, noise: bool = False) -> Any:
        """Samples in the active sub-space of one item: units that are on in its code are drawn from their slab prior.

        X is one row, such as X[0] or X[:1]; units that are off stay at zero (VSC, figure 13). For dense models this is
        `sample`. Codes of whole numbers (bits, groups, counts) have no values to redraw and are refused:
        `inverse_transform` of `draw_codes` gives variations of an item.
        """
        return samples.sample_like(self, X, n, seed, noise)

    # -- save ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a folder with safetensors and JSON; the code of your own encoder and decoder is not stored."""
        save(self, path)
