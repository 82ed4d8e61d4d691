"""SparseCoder: the scikit-learn face of every model.

A model is a subclass that mixes in the fields it has (`fields`) and says how it is built (`build`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import sklearn
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Generator, Tensor, nn

from sparsevae.checks import POSITIVE, OneOf, check_number, check_room, check_seed
from sparsevae.estimator import evaluation, learning, samples
from sparsevae.estimator.assemble import Build, DataSpec
from sparsevae.estimator.blocks import fitted
from sparsevae.estimator.fields import NETWORK, ObservedData
from sparsevae.estimator.fitted import Learned
from sparsevae.estimator.saving import save
from sparsevae.estimator.scores import ImportanceBound, bounds_of, importance_of, meaning_of, relaxed_of
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Array
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.rows import to_csr
from sparsevae.inputs.texts import Text, Texts
from sparsevae.latent.objective import Term, free_bits, kl
from sparsevae.networks.architectures import NETWORKS, chosen
from sparsevae.parameters import check_caps, check_parameters, parameters
from sparsevae.training.loop import Watch
from sparsevae.training.settings import Training


def _decodes(est: SparseCoder) -> bool:
    return est.decodes


def _has_bound(est: SparseCoder) -> bool:
    return est.has_bound


@parameters
class SparseCoder(Learned, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all estimators share: the encoder's fields, and what is asked of a fitted model.

    Learned: `fitted_`, with the model, the kind of data, the settings in force and the history, and `model_`,
    `history_` and so on as short ways to them.
    """

    hidden: Annotated[
        tuple[int, ...] | None, POSITIVE, "The encoder's layers; the decoder mirrors them. None: (400,); texts: (128,)."
    ] = None
    network: Annotated[
        str, OneOf("auto", *NETWORKS), "auto: gru for texts, else dense. conv: any image, asperti 28 x 28, mat 32 x 32."
    ] = "auto"
    image_shape: Annotated[
        tuple[int, int] | tuple[int, int, int] | None, POSITIVE, "(H, W) or (H, W, C) of a row; None: a grey square."
    ] = None
    encoder: Annotated[nn.Module | None, NETWORK, "Your network, (B, D) -> (B, width); a linear head is added."] = None
    scale: Annotated[str, OneOf(*scalings.SCALES), "How X is scaled; inverse_transform undoes it."] = "auto"
    training: Annotated[Training | None, "Training settings; None means Training()."] = None

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "model_": ("LatentModel", "the networks: q(z|x) from `model_.encode`, p(x|z) from `model_.decode`"),
        "likelihood_": ("str", "the name of p(x|z), for models that have one"),
        "scaling_": ("Scaling", "from X's units to the networks', and back; texts have none"),
        "history_": ("History", "one row per report"),
        "training_": ("Training", "the settings in use, with what None came to"),
        "n_features_in_": ("int", "the columns of X; `feature_names_in_` their names, if it had any"),
    }
    learned: ClassVar[tuple[str, ...]] = ()  # attributes that are stored beside the model: plain values and arrays
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # kind of data -> argument -> what None means

    # -- what a model says of itself ----------------------------------------------------------------------------

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        """The model for these data, its first weights drawn from `weights`; None: weights come from elsewhere."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse constructor arguments that cannot work."""
        check_parameters(self)
        self.training_settings().validate()
        if (text := getattr(self, "text", None)) is not None:
            text.validate()
        self.rules()

    def rules(self) -> None:
        """Refuse what the ranges beside the fields cannot say."""

    def check_run(self, steps: int) -> None:
        """Refuse what does not fit a run of so many steps."""

    @classmethod
    def default_training(cls) -> Training:
        """What training=None means."""
        return Training()

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        """y as numbers, (n, L), for models that learn from labels; None: y is ignored."""
        return None

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        """See the checked rows and targets before the model is built; `tune`: in `fit`, not in `partial_fit`."""

    @property
    def decodes(self) -> bool:
        """Whether codes can be decoded."""
        return isinstance(self, ObservedData)

    @property
    def has_bound(self) -> bool:
        """Whether there are p(x|z) and p(z), and so samples and a bound on log p(x)."""
        return self.decodes

    # -- settings -----------------------------------------------------------------------------------------------

    def training_settings(self) -> Training:
        """`training`, or what None means."""
        return self.default_training() if self.training is None else self.training

    def text_settings(self) -> Text:
        """`text`, or what None means."""
        return getattr(self, "text", None) or Text()

    def value(self, name: str) -> Any:
        """A constructor argument, or what None means for the data that the model is built for; before, for numbers."""
        own = getattr(self, name)
        known = self.fitted_.defaults if hasattr(self, "fitted_") else self.defaults_by_kind["numbers"]
        return known[name] if own is None else own

    def kl_term(self) -> Term:
        """The KL of every latent variable, or the one with free nats that `training.free_bits` asks for."""
        floor = self.training_settings().free_bits
        return free_bits(floor) if floor else kl

    def refuse_free_bits(self) -> None:
        """For models whose terms are not a KL per unit."""
        if self.training_settings().free_bits:
            raise ValueError(f"training.free_bits is for a KL per unit; {type(self).__name__} has none. Leave it at 0.")

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; `training__steps=...` works also where training is None, and so for text."""
        for name, default in {"training": self.default_training, "text": Text}.items():
            if any(k.startswith(f"{name}__") for k in params) and params.get(name, getattr(self, name, 0)) is None:
                params[name] = default()
        super().set_params(**params)
        return self

    def in_force(self) -> dict[str, Any]:
        """What this model was fitted with, by argument: what None and "auto" came to for these data.

        Without `encoder`, `decoder` and `training`; of texts with their settings and the size of the vocabulary.
        """
        found = self.fitted_
        own: dict[str, Any] = {k: getattr(self, f"{k}_", v) for k, v in found.resolved().items()}
        own["network"] = chosen(own["network"], texts=isinstance(found.input, Texts))
        return own | found.input.in_force()

    def check_unchanged(self) -> None:
        """Refuse to go on with a model whose constructor has come to say something else."""
        learning.check_unchanged(self)

    # -- scikit-learn -------------------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return self.fitted_.n_units

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _wants_frame(self) -> bool:
        """set_output, or scikit-learn's own configuration, asked for a DataFrame, which has no sparse form."""
        everywhere = sklearn.get_config()["transform_output"]
        return bool(getattr(self, "_sklearn_output_config", {}).get("transform", everywhere) != "default")

    # -- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None) -> Self:
        """Learn the model from X: array, DataFrame, CSR matrix, tensor, memory map or path; or texts, a list of str.

        `y` is ignored. `watch` is called with every report, a row of `history_`, when the model is as of that step:
        transform, evaluate and the rest then tell how it is on its way.
        """
        return self._learn(X, y, watch)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One more pass over new data at the initial rate, all schedules at their ends; scaling stays as it is.

        So does a slope that is part of the law, once there are steps behind it: where the last run left it.
        The first call on a new estimator settles scaling and likelihood, or the vocabulary, from its X. The optimiser
        goes on with the moments of the last step. They begin anew where there are none for these weights: in a saved
        model, a third of the size, and after a run with patience, which ends with the weights of its best report.
        """
        return self._pass_over(X, y)

    def prepare(self, X: Any, y: Any = None) -> Self:
        """What `fit` does before its first step: X is checked, the model is built for it, untrained."""
        self._begin(X, y, {})
        return self

    def _begin(self, X: Any, y: Any, about_y: dict[str, Any], *, tune: bool = True) -> tuple[Any, Any, Build]:
        """Checked rows and targets, and the model for them."""
        self.check()
        if hasattr(self, "fitted_"):
            del self.fitted_  # should X or y be refused, no old model goes with half-new settings
        kind, X = learning.first_look(self, X)
        Y = self._targets(X, y, about_y)
        self.before_fit(X, Y, tune=tune)
        return X, Y, learning.build(self, kind, X, Y)

    def _learn(self, X: Any, y: Any, watch: Watch | None, **about_y: Any) -> Self:
        X, Y, made = self._begin(X, y, about_y)
        learning.train_on(self, X, Y, made, watch)
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

    def to(self, device: str | torch.device) -> Self:
        """Move a fitted model to a device."""
        self.fitted_.to(device)
        return self

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> Any:
        """`fit`, then `transform`; a generator's items are taken once."""
        return super().fit_transform(as_list(X), y, **more)

    # -- codes --------------------------------------------------------------------------------------------------

    @fitted
    def transform(self, X: Any, *, max_active: int | None = None) -> Any:
        """The code of every row: the mode of q(z|x), deterministic.

        Spike-and-slab models return a CSR matrix, float32, with exact zeros; `max_active` keeps at most that many of a
        row's non-zeros, those whose gates are most probable and, of equally probable ones, the largest values. Gaussian
        models return a dense array of means.
        """
        own = self.fitted_
        blocks = own.blocks(own.rows(X))
        if max_active is not None:
            check_number("max_active", max_active, "an integer above 0", lambda k: k > 0, whole=True)

        def code(x: Tensor) -> Tensor:
            return own.code(own.model.encode(x), max_active)

        if own.sparse and not self._wants_frame():
            return blocks.in_order(to_csr(blocks.each(code)))
        return blocks.map(code)

    @available_if(_has_bound)
    def draw_codes(self, X: Any, n: int = 1, *, seed: int = 0) -> Array:
        """Hard draws of q(z|x), n of every row: (n, rows, J), dense. A row's draws depend on (seed, row) alone."""
        check_number("n", n, "an integer above 0", lambda n: n > 0, whole=True)
        check_seed("seed", seed)
        check_is_fitted(self)
        X = self.fitted_.rows(X)
        check_room(n * X.shape[0] * self.fitted_.n_units, {"n": n, "rows of X": X.shape[0]}, "the draws")
        return samples.draws(self, X, int(n), seed)

    def posterior_means(self, X: Any, *, seed: int | None = None) -> dict[str, Array]:
        """Means of q(z|x), (rows, J) each: of units with gates `slab`, when they are on, and `gated`, P(on) times it;
        of other codes `mean`.

        HSVAE's P(on) = 1 - gamma is a latent variable itself: `gated` has its mean, or with a `seed` one draw of it a
        row, (1 - gamma) mu, which is what the paper's Hoyer is told of. Other models' are the same either way.
        """
        if seed is not None:
            check_seed("seed", seed, "an integer or None")
        check_is_fitted(self)
        return samples.means(self, self.fitted_.rows(X), seed)

    @available_if(_decodes)
    @fitted
    def inverse_transform(self, Z: Any) -> Any:
        """Decode: the mean of p(x|z) for every code, in X's own units; for texts a list of str, the likeliest words."""
        own = self.fitted_
        return own.input.concatenate([samples.decode(self, z)[:n] for z, n, _ in own.code_blocks(Z)])

    @available_if(_has_bound)
    def generate(
        self, Z: Any, how: str = "greedy", *, temperature: float = 1.0, beams: int = 5, seed: int = 0
    ) -> list[str]:
        """A text for every code: "greedy" (the likeliest word every time), "sample" (words drawn) or "beam".

        `temperature` and `seed` are for "sample": below 1 it keeps to likely words. `beams` beginnings are kept by
        "beam", which looks for the likeliest text as a whole. For models of texts.
        """
        return samples.generate(self, Z, how, temperature=temperature, beams=beams, seed=seed)

    @available_if(_decodes)
    def reconstruct(self, X: Any, **how: Any) -> Any:
        """What is left of X after its code: `inverse_transform` of `transform`; for texts `how` goes to `generate`."""
        Z = self.transform(X)
        return self.generate(Z, **how) if how else self.inverse_transform(Z)

    # -- scores -------------------------------------------------------------------------------------------------

    @available_if(_has_bound)
    def score_meaning(self, X: Any) -> str:
        """What a score of X is: 'bound' (on log p(x)), or 'cross-entropy' (grey pixels), 'normalised-row density', or
        'joint density at the code' (log p(x, z) of an autoencoder without noise)."""
        check_is_fitted(self)
        return meaning_of(self, self.fitted_.rows(X))

    @available_if(_has_bound)
    def score_samples(self, X: Any, *, n_samples: int = 10) -> Array:
        """Per item, nats: the ELBO with hard draws and unit weights, a true lower bound on log p(x) in the mean.

        Gaussian scores are densities in X's own units. Three settings are no bounds on log p(x), and
        `score_meaning` says so: Bernoulli on grey values is a cross-entropy, scale="unit-norm" scores the normalised
        row at the stated variance floor, and VAE(noise=False) has a joint density at the code. The noise of a row
        depends on (seed, row) alone.
        """
        check_is_fitted(self)
        found: Array = bounds_of(self, self.fitted_.rows(X), n_samples).elbo.numpy()
        return found

    @available_if(_has_bound)
    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`, nats per item."""
        return float(self.score_samples(X).mean())

    @available_if(_has_bound)
    def importance_bound(self, X: Any, *, n_samples: int = 1000) -> ImportanceBound:
        """The importance-weighted bound on log p(x) of every item; refused where scores are no bounds.

        In expectation it lies below log p(x) and rises towards it with `n_samples`. Where weights have heavy tails
        (`pareto_k` above .7, and less than half of the samples effective) a bound may be nats away, whatever its
        standard error says; there is a warning if those are more than one row in twenty.
        """
        check_is_fitted(self)
        return importance_of(self, self.fitted_.rows(X), n_samples)

    @fitted
    def evaluate(self, X: Any, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge a model by, on X: score (and what it is), sparsity, reconstruction, cost of caps.

        `kl` is what the score pays for the code: of all latent variables, each also by name where there are several;
        in closed form where it has one, else by the score's draws. Three pay something else in training, and that is
        told: PseudoVSC for its choice of a pseudo-input (the score knows the mixture), SDLGM(kl="paper") for
        features that are off, and VAE(noise=False) a penalty that is no KL.
        `n_samples` are the draws a row that the score is a mean over; on long texts most of the time goes there.
        `score_standard_error` is that of a mean over rows, whatever the draws: of one row NaN, not known.

        Counts per row: `mode` (the code's non-zeros), `drawn` (of a hard draw) and `expected` (sum of p_on). Drawn
        are gates: where an off unit is not exactly zero, HSVAE(spike_scale=...), those that came out on. A unit is
        active when the variance over rows of the mean of q(z|x) exceeds .01.
        `mse` is per value in X's own units (of normalised rows for scale="unit-norm").

        Of units with gates there is also `hoyer`, how sparse codes are by Hoyer's measure (two rows at least), as
        `metrics.code_hoyer` has it: of one draw a row, `draws`; of `slab` means mu; of `gated` means P(on) mu, of
        HSVAE with one draw of P(on) = 1 - gamma. For texts it is told of all codes, of those without gates by the
        one `mean`.

        For texts there are instead of `mse`: `words` a text, the end counted; the share of `unknown` ones; `nll`, nats
        of a text given a draw of its code (the score's draws), and `nll_code`, given the code that `transform`
        returns; and two perplexities per word, by the score and by `nll`.
        """
        check_caps(caps)
        return evaluation.evaluate(self, self.fitted_.rows(X), caps, n_samples)

    @available_if(_has_bound)
    def relaxed_objective(self, X: Any) -> Array:
        """Per item, nats: the training objective with unit weights and the draws that training takes; no bound.

        Compare `score_samples`: for a code that training relaxes (concrete, paper, VSC's sigmoid) the gap says how
        much of the objective the hard code keeps.
        """
        check_is_fitted(self)
        return relaxed_of(self, self.fitted_.rows(X))

    # -- samples ------------------------------------------------------------------------------------------------

    @available_if(_has_bound)
    @fitted
    def sample(self, n: int = 1, *, seed: int = 0, noise: bool = False, second_stage: SparseCoder | None = None) -> Any:
        """Ancestral samples: z from the prior, then the mean of p(x|z), or a draw from it with `noise`. (n, D)

        Of texts a list of str: the likeliest word every time, or words drawn with `noise`.
        With `second_stage`, a model of the codes as `sparsevae.second_stage(est, X)` returns it, z is a draw from that.
        """
        return samples.sample(self, n, seed, noise, second_stage)

    @available_if(_has_bound)
    @fitted
    def sample_like(self, X: Any, n: int = 1, *, seed: int = 0, noise: bool = False) -> Any:
        """Samples within one item's active sub-space: units on in its code are redrawn from their slab prior.

        X is one row, such as X[0] or X[:1]; the units that are off stay at zero (VSC, figure 13). For dense models this
        is `sample`. Codes of whole numbers (bits, groups, counts) are refused: which units are on says nearly all of
        them, so there is no value to redraw. For these `inverse_transform` of `draw_codes` gives variations of an item.
        """
        return samples.sample_like(self, X, n, seed, noise)

    # -- save ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a folder with safetensors and JSON; the encoder's and decoder's own code is not stored."""
        save(self, path)
