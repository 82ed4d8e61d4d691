"""Recipe: a model's constructor, and what a paper's file says of it.

The constructor is the configuration: stored verbatim, checked in `fit`. A paper's file adds `posterior()`, `prior()`,
`weights()` or `objective()` and, where it has them, `schedules()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Annotated, Any, ClassVar, Self

from sklearn.base import BaseEstimator
from torch import nn

from sparsevae.checks import POSITIVE, Note, OneOf
from sparsevae.distributions.family import Family
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.texts import Text
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, free_bits, kl, nll
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.choose import LIKELIHOODS
from sparsevae.networks.architectures import NETWORKS
from sparsevae.parameters import check_parameters, encode, parameters
from sparsevae.schedules import Schedule
from sparsevae.training.settings import Training

_OWN = Note("of torch.nn")
_SCALED = Note("1e-3 to 1e-1 suits scaled data")


@parameters
class Recipe(BaseEstimator):
    """What all constructors share."""

    n_components: Annotated[int, POSITIVE, "Number of latent units J."] = field(default=64, kw_only=False)
    hidden: Annotated[
        tuple[int, ...] | None, POSITIVE, "The encoder's layers; the decoder mirrors them. None: (400,); texts: (128,)."
    ] = None
    network: Annotated[
        str, OneOf("auto", *NETWORKS), "auto: gru for texts, else dense. conv: any image, asperti 28 x 28, mat 32 x 32."
    ] = "auto"
    image_shape: Annotated[
        tuple[int, int] | tuple[int, int, int] | None, POSITIVE, "(H, W) or (H, W, C) of a row; None: a grey square."
    ] = None
    likelihood: Annotated[str, OneOf(*LIKELIHOODS), "p(x|z); gaussian learns its variance. auto: by X."] = "auto"
    variance_floor: Annotated[float, POSITIVE, _SCALED, "Least learned variance, in scaled units."] = 0.03
    variance: Annotated[float, POSITIVE, _SCALED, "Variance of fixed-gaussian and laplace, in scaled units."] = 0.1
    scale: Annotated[str, OneOf(*scalings.SCALES), "How X is scaled; inverse_transform undoes it."] = "auto"
    encoder: Annotated[nn.Module | None, _OWN, "Your network, (B, D) -> (B, width); a linear head is added."] = None
    decoder: Annotated[nn.Module | None, _OWN, "Your network, (B, J) -> (B, width); a linear head is added."] = None
    text: Annotated[Text | None, "How texts are read; None means Text()."] = None
    training: Annotated[Training | None, "Training settings; None means Training()."] = None

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "model_": ("LatentModel", "the networks: q(z|x) from `model_.encode`, p(x|z) from `model_.decode`"),
        "likelihood_": ("str", "the name of p(x|z), for models that have one"),
        "scaling_": ("Scaling", "from X's units to the networks', and back; texts have none"),
        "history_": ("History", "one row per report"),
        "training_": ("Training", "the settings in use, with what None came to"),
        "n_features_in_": ("int", "the columns of X; `feature_names_in_` their names, if it had any"),
    }

    model_class: ClassVar[type[LatentModel]] = LatentModel
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # kind of data -> argument -> what None means

    def posterior(self) -> Family:
        """The family of q(z|x)."""
        raise NotImplementedError

    def prior(self) -> Prior:
        """p(z)."""
        raise NotImplementedError

    def weights(self) -> dict[str, float]:
        """Weights of the terms; schedules may drive those named here."""
        return {"kl_z": 1.0}

    def _generates(self) -> bool:
        """Whether the model has a p(x|z)."""
        return True

    def _value(self, name: str) -> Any:
        """A constructor argument, or what None means: `defaults_` of the fitted model; before fit that for numbers."""
        own = getattr(self, name)
        return getattr(self, "defaults_", self.defaults_by_kind["numbers"])[name] if own is None else own

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
        """Refuse constructor arguments that cannot work; subclasses add what their fields' ranges cannot say."""
        check_parameters(self)
        self._training().validate()
        self._text().validate()

    def check_run(self, steps: int) -> None:
        """Refuse what does not fit a run of so many steps; subclasses may."""

    @classmethod
    def default_training(cls) -> Training:
        """What training=None means."""
        return Training()

    def _training(self) -> Training:
        return self.default_training() if self.training is None else self.training

    def _text(self) -> Text:
        return Text() if self.text is None else self.text

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments; `training__steps=...` works also where training is None, and so for text."""
        for name, default in {"training": self.default_training, "text": Text}.items():
            if any(k.startswith(f"{name}__") for k in params) and params.get(name, getattr(self, name)) is None:
                params[name] = default()
        super().set_params(**params)
        return self

    def _plain(self) -> dict[str, Any]:
        """The recipe in plain values, as it is stored; without `training`, which may change from run to run."""
        return {
            "constructor": self._constructor(),
            "own_networks": [k for k in ("encoder", "decoder") if getattr(self, k) is not None],
            "text": None if self.text is None else self.text.plain(),
        }

    def _constructor(self) -> dict[str, Any]:
        own = ("encoder", "decoder", "training", "text")
        return {f.name: encode(getattr(self, f.name), f.name) for f in fields(self) if f.name not in own}
