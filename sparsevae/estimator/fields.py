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

from sparsevae.checks import check_number
from sparsevae.distributions.family import Family
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.texts import Text
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, free_bits, kl, nll
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.choose import LIKELIHOODS
from sparsevae.networks.architectures import NETWORKS
from sparsevae.parameters import check_choice, check_sizes, parameters
from sparsevae.schedules import Schedule
from sparsevae.storage.codec import encode
from sparsevae.training.settings import Training

_NESTED = {"training": Training, "text": Text}  # parameters that have parameters


@parameters
class Recipe(BaseEstimator):
    """What all constructors share."""

    n_components: Annotated[int, "Number of latent units J."] = field(default=64, kw_only=False)
    hidden: Annotated[
        tuple[int, ...] | None,
        "Hidden layers of the encoder; the decoder mirrors them. None: (400,); for texts, one GRU, (128,).",
    ] = None
    network: Annotated[
        str,
        "auto (gru for texts, dense for numbers), conv (any image; then `hidden`), asperti (28 x 28), mat (32 x 32).",
    ] = "auto"
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
    text: Annotated[Text | None, "How texts are read; None means Text()."] = None
    training: Annotated[Training | None, "Training settings; None means Training()."] = None

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
        """Refuse constructor arguments that cannot work; subclasses add their own."""
        check_number("n_components", self.n_components, "an integer above 0", lambda n: n > 0, whole=True)
        if self.hidden is not None:
            check_sizes("hidden", self.hidden, empty=True)
        check_choice("network", self.network, ("auto", *NETWORKS))
        if self.image_shape is not None:
            self._check_image_shape(self.image_shape)
        check_choice("likelihood", self.likelihood, LIKELIHOODS)
        check_choice("scale", self.scale, scalings.SCALES)
        for name in ("variance_floor", "variance"):
            check_number(
                name, getattr(self, name), "a number above 0 (1e-3 to 1e-1 suits scaled data)", lambda v: v > 0
            )
        for name in ("encoder", "decoder"):
            if not isinstance(getattr(self, name), (nn.Module, type(None))):
                raise TypeError(f"{name} must be a torch.nn.Module or None, got {type(getattr(self, name)).__name__}.")
        for name, kind in _NESTED.items():
            if not isinstance(getattr(self, name), (kind, type(None))):
                raise TypeError(f"{name} must be a {kind.__name__}(...) or None, got {getattr(self, name)!r}.")
        self._training().validate()
        self._text().validate()

    def check_run(self, steps: int) -> None:
        """Refuse what does not fit a run of so many steps; subclasses may."""

    def _check_image_shape(self, shape: Any) -> None:
        expected = "(height, width) or (height, width, channels), such as (28, 28) or (32, 32, 3)"
        if not (isinstance(shape, (tuple, list)) and len(shape) in (2, 3)):
            raise ValueError(f"image_shape must be {expected}; got {shape!r}.")
        for size in shape:
            check_number("image_shape", size, expected, lambda n: n > 0, whole=True)

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
            "text": None if self.text is None else encode(self.text.get_params(deep=False), "text"),
        }

    def _constructor(self) -> dict[str, Any]:
        own = ("encoder", "decoder", *_NESTED)
        return {f.name: encode(getattr(self, f.name), f.name) for f in fields(self) if f.name not in own}
