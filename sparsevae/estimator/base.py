"""Learner: a recipe that learns from X. What the data settle, the networks that are built, and the run itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sparsevae.checks import check_room
from sparsevae.estimator.build import (
    DEFAULT_HIDDEN,
    check_settings,
    check_support,
    choose_likelihood,
    embedding_for,
    likelihood_for,
    training_for,
)
from sparsevae.estimator.fields import Recipe
from sparsevae.estimator.ration import Ration
from sparsevae.exceptions import delay_warnings
from sparsevae.inputs.arrays import Arrays, stats_of
from sparsevae.inputs.base import Input
from sparsevae.inputs.kind import as_list, holds_texts
from sparsevae.inputs.rows import BLOCK, Rows, place
from sparsevae.inputs.stats import fingerprint
from sparsevae.inputs.texts import Texts
from sparsevae.latent.model import LatentModel
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.networks.architectures import NETWORKS, Sizes, chosen, image_of, with_head
from sparsevae.networks.dense import initialise
from sparsevae.parameters import decode, documented, encode, parameters
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import mix
from sparsevae.schedules import Constant, Controller, Schedule
from sparsevae.threads import inference, ordinary
from sparsevae.training.history import History
from sparsevae.training.knobs import lasting
from sparsevae.training.loop import Watch, fit
from sparsevae.training.settings import Training

_LARGE = 1000  # a size that may make a network large


@parameters
class Learner(Recipe):
    """A recipe with `fit`. Learned: `model_`, `input_` (with `scaling_`, `likelihood_`), `history_`."""

    # -- the data -----------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @property
    def likelihood_(self) -> str:
        """The likelihood in use."""
        return self.input_.likelihood_name

    @property
    def scaling_(self) -> Any:
        """From X's units to the networks', and back; texts have none."""
        return self.input_.scaling  # type: ignore[attr-defined]

    def _read(self, X: Any, *, reset: bool) -> Any:
        """Whatever the user has -> checked rows; `reset` settles what kind of data this is."""
        X = as_list(X)
        if reset:
            text = self._text()
            self.input_: Input = Texts(text) if holds_texts(X, text.column) else Arrays()
            check_settings(self, self.input_)
            return self.input_.read(self, X, reset=True)
        check_is_fitted(self)
        if isinstance(self.input_, Arrays) and holds_texts(X, None):
            raise ValueError(f"X must hold numbers, as it did when this {type(self).__name__} was fitted; got texts.")
        return self.input_.read(self, X, reset=False)

    # -- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None) -> Self:
        """Learn the model from X: array, DataFrame, CSR matrix, tensor, memory map or path; or texts, a list of str.

        `y` is ignored. `watch` is called with every report, a row of `history_`, when the model is as of that step:
        transform, evaluate and the rest then tell how it is on its way.
        """
        self.check()
        if hasattr(self, "model_"):
            del self.model_  # should X be refused, no old model goes with half-new settings
        X = self._read(X, reset=True)
        self._start(X)
        self._train(X, self.training_, self.schedules(), None, watch=watch)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """One more pass over new data at the initial rate, all schedules at their ends; scaling stays as it is.

        So does a slope that is part of the law, once there are steps behind it: where the last run left it.
        The first call on a new estimator settles scaling and likelihood, or the vocabulary, from its X. The optimiser
        goes on with the moments of the last step. They begin anew where there are none for these weights: in a saved
        model, a third of the size, and after a run with patience, which ends with the weights of its best report.
        """
        self.check()
        fresh = not hasattr(self, "model_")
        X = self._read(X, reset=fresh)
        if fresh:
            self._start(X)
        else:
            self._check_support(X)
        self._train(X, *self._once_more(X.shape[0]), getattr(self, "_moments", None))
        return self

    def _check_support(self, X: Any) -> None:
        """Refuse more rows for a model that is there, where its likelihood does not describe them."""
        if isinstance(self.input_, Arrays):
            check_support(self, self.input_, stats_of(X))

    def check_unchanged(self) -> None:
        """Refuse to go on with a model whose constructor has come to say something else."""
        old, new = (_in_words(plain) for plain in (self.built_, self._plain()))
        changed = [k for k in old if new[k] != old[k]]
        if changed:
            was, is_ = (", ".join(f"{k}={words[k]}" for k in changed) for words in (old, new))
            raise ValueError(
                f"this {type(self).__name__} was fitted with {was}, and is now set to {is_}: set that back, or call "
                "fit for a new model."
            )

    def _once_more(self, n_rows: int) -> tuple[Training, dict[str, Schedule]]:
        """Settings and schedules of one more pass over the model that was built."""
        self.check_unchanged()
        settings = self._training()
        plan = {**self.schedules(), **(settings.schedules or {})}
        kept = lasting(self.model_) if self.n_steps_ else ()
        ends: dict[str, Schedule] = {
            k: s if isinstance(s, Controller) else Constant(s(1 << 62, 1 << 62))
            for k, s in plan.items()
            if k not in kept
        }
        return training_for(self.input_, settings.once_more(mix(settings.seed, self.n_steps_)), n_rows), ends

    @ordinary()
    def _start(self, X: Any) -> None:
        """Settle what the data settle, and build the networks."""
        choose_likelihood(self, self.input_, X)
        self.hidden_, self.defaults_ = self._hidden(), dict(self.defaults_by_kind.get(self.input_.kind, {}))
        n_rows = X.shape[0] - self._training().held_out(X.shape[0])
        self.training_ = settings = training_for(self.input_, self._training(), n_rows)
        self.check_run(settings.total_steps(n_rows))
        rows = place(X, torch.device("cpu"), resident=False)
        self.fingerprint_ = fingerprint(rows)
        self.n_steps_ = self.n_rows_ = 0
        self.history_ = History()
        self._moments: dict[str, Tensor] | None = None
        weights = torch.Generator().manual_seed(mix(settings.seed, 0))
        device = settings.torch_device()
        with _Room(self, device):
            model = self._build(self.input_.width, weights)
        self.model_, self.built_ = model, self._plain()
        self.to(device)
        some = torch.randperm(rows.shape[0], generator=torch.Generator().manual_seed(mix(settings.seed, 7)))[:BLOCK]
        model.prior.start(self.input_.prepare(rows.take(some).to(device)))

    def _check_step(self, settings: Training, rows: Rows) -> None:
        """Refuse a step whose rows, with every draw of each, take more than all memory."""
        batch = min(cast(int, settings.batch_size), rows.shape[0])
        copies = int(settings.n_samples) * points(self.model_)[0]
        n = self.model_.prior.n_components
        largest = self.model_.posterior.largest(n)  # a count is a sum of as many draws
        numbers = batch * copies * (rows.shape[1] + (n if largest is None else max(n, int(largest.max()))))
        draws = {k: getattr(self, k) for k in ("n_gamma", "n_z", "samples", "cap") if getattr(self, k, None)}
        sizes = {"training.batch_size": batch, "training.n_samples": settings.n_samples, **draws}
        check_room(numbers, sizes, "the rows of a training step", self._device())

    def _sizes_in_force(self) -> dict[str, Any]:
        """The constructor's integers that say how large networks are, if any is large the large ones; X's own size."""
        kinds = {p.name: str(p.type) for p in documented(type(self))}
        found = {k: getattr(self, k) for k, kind in kinds.items() if "int" in kind and "float" not in kind}
        found |= {"hidden": self.hidden_}
        if isinstance(self.input_, Texts):
            found["text.embedding"] = self._text().embedding
        large = {k: v for k, v in found.items() if np.max(v or 0, initial=0) >= _LARGE}
        return (large or found) | self.input_.about()

    @delay_warnings()
    @ordinary()
    def _train(
        self,
        X: Any,
        settings: Training,
        plan: Mapping[str, Schedule],
        moments: dict[str, Tensor] | None,
        targets: Any = None,
        watch: Watch | None = None,
    ) -> None:
        rows = self.input_.lay_out(X, self._device())
        y = None if targets is None else place(targets, rows.device, resident=True)
        self._check_step(settings, rows)
        self.n_rows_ = max(self.n_rows_, rows.shape[0] - settings.held_out(rows.shape[0]))
        model = self.model_.train()
        history = History()
        try:
            history, self._moments = fit(
                model,
                self.objective().to(rows.device),
                rows,
                settings,
                schedules=plan,
                targets=y,
                prepare=self.input_.prepare,
                label=type(self).__name__,
                signature=self._signature(),
                moments=moments,
                history=history,
                watch=watch,
            )
        except Exception:
            if not (history or self.n_steps_):  # refused or diverged before its first report: there is no model
                del self.model_
            raise
        finally:
            model.eval()
            self.history_.extend_with(history, self.n_steps_)
            self.n_steps_ += history.steps
        self._after_training(X)

    def _after_training(self, X: Any) -> None:
        """Let a prior that learns look at the training rows once more."""
        if type(self.model_.prior).after_training is not Prior.after_training:
            with inference(self._device()):
                for x, n in self._blocks(X):
                    self.model_.prior.after_training(x[:n])

    def _signature(self) -> dict[str, Any]:
        """What a run is a function of: class, constructor, seed and data; not where it writes or what it prints."""
        settings = encode(self.training_.get_params(), "training")["dict"]
        for free in ("folder", "resume", "verbose", "checkpoint_every"):
            del settings[free]
        own = {k: str(getattr(self, k)) for k in ("encoder", "decoder")}
        return {
            "model": type(self).__name__,
            **self._resolved(),
            "hidden": list(self.hidden_),
            **own,
            **settings,
            "data": self.fingerprint_,
            **self.input_.signature(),
        }

    def _resolved(self) -> dict[str, Any]:
        """The constructor's arguments in plain values, with what None came to by the kind of data."""
        return {k: self.defaults_.get(k) if v is None else v for k, v in self.built_["constructor"].items()}

    def in_force(self) -> dict[str, Any]:
        """What this model was fitted with, by argument: what None and "auto" came to for these data.

        Without `encoder`, `decoder` and `training`; of texts with their settings and the size of the vocabulary.
        """
        own = {k: getattr(self, f"{k}_", decode(v)) for k, v in self._resolved().items()}
        own["network"] = chosen(own["network"], texts=isinstance(self.input_, Texts))
        return own | self.input_.in_force()

    # -- the networks -------------------------------------------------------------------------------------------

    def _hidden(self) -> tuple[int, ...]:
        return DEFAULT_HIDDEN[self.input_.kind] if self.hidden is None else tuple(int(h) for h in self.hidden)

    def _build(self, n_features: int, weights: torch.Generator) -> LatentModel:
        n, posterior, likelihood = int(self.n_components), self.posterior(), self._likelihood(weights)
        sizes = self._sizes(n_features, posterior.width(n), n, likelihood.width(n_features))
        encoder = self._network("encoder", self.encoder, sizes, weights)
        decoder = self._network("decoder", self.decoder, sizes, weights)
        prior = self.prior()
        initialise(prior, weights)
        return self.model_class(encoder, posterior, decoder, likelihood, prior)

    def _likelihood(self, weights: torch.Generator) -> Likelihood:
        likelihood = likelihood_for(self, self.input_)
        initialise(likelihood, weights)
        return likelihood

    def _sizes(self, n_features: int, raw_z: int, units: int, raw_x: int) -> Sizes:
        image, words = self.image_shape, embedding_for(self.input_)
        sizes = Sizes(n_features, raw_z, units, raw_x, self.hidden_, image, words=words)
        if image is not None:
            image_of(sizes)  # refuses a shape that does not hold a row, whether or not the networks look at it
        return sizes

    def _network(self, name: str, own: nn.Module | None, sizes: Sizes, weights: torch.Generator) -> nn.Module:
        """One of ours by its name, or the user's own (with its weights) and a linear head."""
        if own is None:
            texts = sizes.words is not None
            network: nn.Module = getattr(NETWORKS[chosen(self.network, texts=texts)], name)(sizes)
            initialise(network, weights)
            return network
        widths = {"encoder": (sizes.features, sizes.raw_z), "decoder": (sizes.units, sizes.raw_x)}
        return with_head(name, own, *widths[name], weights)

    # -- a fitted model, and rows for it ------------------------------------------------------------------------

    def _device(self) -> torch.device:
        return next(self.model_.parameters()).device

    def to(self, device: str | torch.device) -> Self:
        """Move a fitted model to a device."""
        self.model_.to(device)
        self.input_.prepare.to(device)
        return self

    def _blocks(self, X: Any, draws: int = 1) -> Iterator[tuple[Tensor, int]]:
        """Rows as the networks see them, in blocks of one size, the last one filled up: (512, D) and how many count."""
        rows = place(X, self._device(), resident=False)
        for index, n in self._places(rows, draws):
            yield self.input_.prepare(rows.take(index)), n

    def _places(self, rows: Rows, draws: int = 1) -> Iterator[tuple[Tensor, int]]:
        """Positions of rows, (512,) of numbers and fewer of texts, and how many of them count."""
        n, size = rows.shape[0], self.input_.block_size(rows.device, draws)
        for start in range(0, n, size):
            index = torch.arange(start, start + size, device=rows.device)
            yield index.clamp_max(n - 1), min(size, n - start)


class _Room(Ration):
    """Refuses networks that take more than all memory, with their gradients and an optimiser's moments."""

    def __init__(self, est: Learner, device: torch.device) -> None:
        super().__init__()
        self.est, self.device, self.numbers = est, device, 0

    def made(self, shape: tuple[int, ...]) -> None:
        self.numbers += 4 * math.prod(shape)
        if self.numbers > _LARGE**2:  # what all machines have need not be compared
            check_room(self.numbers, self.est._sizes_in_force(), "networks and their training", self.device)


def _in_words(plain: Mapping[str, Any]) -> dict[str, str]:
    """A stored recipe as a user would write it."""
    own = {k: "a network of your own" if k in plain["own_networks"] else "None" for k in ("encoder", "decoder")}
    return {k: repr(decode(v)) for k, v in plain["constructor"].items()} | {**own, "text": repr(plain["text"])}
