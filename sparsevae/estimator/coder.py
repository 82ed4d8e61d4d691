"""SparseCoder: the scikit-learn face of every model. What is asked of a fitted one: codes, scores, samples, save.

A model is a subclass with a recipe: `posterior()`, `prior()`, `objective()` and, where it has them, `schedules()`. How
it is fitted is in `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import sklearn
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.checks import check_number, check_room, check_seed
from sparsevae.estimator import evaluation
from sparsevae.estimator.base import Learner
from sparsevae.estimator.blocks import fitted, in_order
from sparsevae.estimator.saving import save
from sparsevae.estimator.scores import ImportanceBound, bounds_of, importance_of, meaning_of, relaxed_of
from sparsevae.inputs.base import Array
from sparsevae.inputs.codes import read_codes
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.rows import place, to_csr
from sparsevae.inputs.texts import Texts
from sparsevae.latent.bounds import SPREAD
from sparsevae.latent.codes import capped, code_sites, means_of
from sparsevae.latent.model import Site
from sparsevae.latent.posteriors import SPARSE
from sparsevae.likelihoods.tokens import TokenData
from sparsevae.parameters import check_caps, parameters
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh, PerRow, mix, row_keys


@parameters
class SparseCoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Learner):
    """What all estimators share. Learned: `model_`, `input_` (with `scaling_`, `likelihood_`), `history_`."""

    learned: ClassVar[tuple[str, ...]] = ()  # attributes that are stored beside the model: plain values and arrays

    # -- scikit-learn -------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.model_.prior.n_components

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> Any:
        """`fit`, then `transform`; a generator's items are taken once."""
        return super().fit_transform(as_list(X), y, **more)

    # -- codes --------------------------------------------------------------------------------------------------

    def _grouped(self, X: Any, draws: int = 1) -> tuple[Iterator[tuple[Tensor, int]], Array | None]:
        """Blocks of rows of one width each, and the order that takes what is made of them back to X's."""
        groups, order = self.input_.group_by_width(X)
        return (block for rows in groups for block in self._blocks(rows, draws)), order

    @fitted
    def transform(self, X: Any, *, max_active: int | None = None) -> Any:
        """The code of every row: the mode of q(z|x), deterministic.

        Spike-and-slab models return a CSR matrix, float32, with exact zeros; `max_active` keeps at most that many of a
        row's non-zeros, those whose gates are most probable and, of equally probable ones, the largest values. Gaussian
        models return a dense array of means.
        """
        X = self._read(X, reset=False)
        if max_active is not None:
            check_number("max_active", max_active, "an integer above 0", lambda k: k > 0, whole=True)
        blocks, order = self._grouped(X)
        codes = (self._code(self.model_.encode(x), max_active)[:n].cpu().numpy() for x, n in blocks)
        dense = not self._sparse() or self._wants_frame()
        return in_order(np.concatenate(list(codes)) if dense else to_csr(codes), order)

    def _sparse(self) -> bool:
        return isinstance(self.model_.posterior, SPARSE)

    def _wants_frame(self) -> bool:
        """set_output, or scikit-learn's own configuration, asked for a DataFrame, which has no sparse form."""
        everywhere = sklearn.get_config()["transform_output"]
        return bool(getattr(self, "_sklearn_output_config", {}).get("transform", everywhere) != "default")

    def _code(self, q: Distribution, max_active: int | None) -> Tensor:
        if max_active is None or max_active >= q.event_shape[0]:
            mode: Tensor = q.mode
            return mode
        if not hasattr(q, "ranking"):
            raise ValueError(f"max_active needs a code with gates; {type(self).__name__} codes are dense. Use VSC.")
        return capped(q, max_active)

    def _largest(self) -> Array | None:
        """The largest value of each unit in a code of whole numbers, (J,); None for real values."""
        found = self.model_.posterior.largest(self._n_features_out)
        return None if found is None else found.numpy()

    def draw_codes(self, X: Any, n: int = 1, *, seed: int = 0) -> Array:
        """Hard draws of q(z|x), n of every row: (n, rows, J), dense. A row's draws depend on (seed, row) alone."""
        check_number("n", n, "an integer above 0", lambda k: k > 0, whole=True)
        check_seed("seed", seed)
        X = self._read(X, reset=False)
        check_room(n * X.shape[0] * self._n_features_out, {"n": n, "rows of X": X.shape[0]}, "the draws")
        return self._draws(X, int(n), seed)

    @fitted
    def _draws(self, X: Any, n: int, seed: int) -> Array:
        """`draw_codes` of rows that were read. A row is encoded once, and nothing but the draws is held of all rows."""
        blocks, order = self._grouped(X)
        places = np.arange(X.shape[0]) if order is None else order.argsort()  # of grouped rows in X
        found = np.empty((n, X.shape[0], self._n_features_out), np.float32)
        for x, rows in blocks:
            keys, q = row_keys(x), self.model_.encode(x)
            here, places = places[:rows], places[rows:]
            streams = keys + torch.arange(1, n + 1, device=x.device)[:, None] * SPREAD  # (n, B), one for every draw
            for k, own in enumerate(streams):
                found[k, here] = Draw(PerRow(own, mix(seed, 10)), hard=True)(q)[:rows].cpu().numpy()
        return found

    def _ask(self, X: Any, question: Callable[[Distribution], Tensor]) -> Array:
        """A question to q(z|x), row by row; (n, ...)."""
        return self._answers(self._read(X, reset=False), question)

    @fitted
    def _answers(self, X: Any, question: Callable[[Distribution], Tensor]) -> Array:
        """`_ask` of rows that were read."""
        blocks, order = self._grouped(X)
        answers = [question(self.model_.encode(x))[:n].cpu().numpy() for x, n in blocks]
        found: Array = in_order(np.concatenate(answers), order)
        return found

    def posterior_means(self, X: Any, *, seed: int | None = None) -> dict[str, Array]:
        """Means of q(z|x), (rows, J) each: of units with gates `slab`, when they are on, and `gated`, P(on) times it;
        of other codes `mean`.

        HSVAE's P(on) = 1 - gamma is a latent variable itself: `gated` has its mean, or with a `seed` one draw of it a
        row, (1 - gamma) mu, which is what the paper's Hoyer is told of. Other models' are the same either way.
        """
        if seed is not None:
            check_seed("seed", seed, "an integer or None")
        return self._means(self._read(X, reset=False), seed)

    @fitted
    def _means(self, X: Any, seed: int | None = None) -> dict[str, Array]:
        """`posterior_means` of rows that were read."""
        (blocks, order), found = self._grouped(X), []
        for x, n in blocks:
            qs = [self.model_.encode(x)] if seed is None else [site.q for site in self._sites(x, mix(seed, 11))]
            found.append({kind: mean[:n].cpu().numpy() for kind, mean in means_of(qs).items()})
        return {kind: in_order(np.concatenate([each[kind] for each in found]), order) for kind in found[0]}

    def _sites(self, x: Tensor, seed: int) -> list[Site]:
        """The latent variables that codes are made of, in one hard telling of rows x."""
        return code_sites(self.model_(x, Draw(PerRow(row_keys(x), seed), hard=True)))

    @fitted
    def inverse_transform(self, Z: Any) -> Any:
        """Decode: the mean of p(x|z) for every code, in X's own units; for texts a list of str, the likeliest words."""
        return self.input_.concatenate([self._decode(z)[:n] for z, n in self._codes(Z)])

    def _codes(self, Z: Any) -> Iterator[tuple[Tensor, int]]:
        """A user's codes in blocks of one size, the last one filled up, and how many of them count."""
        rows = place(read_codes(Z, self._n_features_out), self._device(), resident=False)
        return ((rows.take(index), n) for index, n in self._places(rows))

    @fitted
    def generate(
        self, Z: Any, how: str = "greedy", *, temperature: float = 1.0, beams: int = 5, seed: int = 0
    ) -> list[str]:
        """A text for every code: "greedy" (the likeliest word every time), "sample" (words drawn) or "beam".

        `temperature` and `seed` are for "sample": below 1 it keeps to likely words. `beams` beginnings are kept by
        "beam", which looks for the likeliest text as a whole. For models of texts.
        """
        if not isinstance(self.input_, Texts):
            raise ValueError(
                f"generate writes texts, and this {type(self).__name__} was fitted on numbers: use "
                "inverse_transform, or sample."
            )
        check_number("temperature", temperature, "a number above 0", lambda t: t > 0)
        check_number("beams", beams, "an integer above 0", lambda b: b > 0, whole=True)
        check_room(beams * self.input_.width, {"beams": beams}, "the beginnings of a text", self._device())
        more: dict[str, Any] = {"temperature": temperature, "beams": int(beams), "noise": self._fresh(seed).noise}
        likelihood = cast(TokenData, self.model_.likelihood)
        blocks = (likelihood.write(self.model_.decode(z[:n]), how, **more) for z, n in self._codes(Z))
        return self.input_.concatenate([self.input_.to_user(tokens) for tokens in blocks])

    def reconstruct(self, X: Any, **how: Any) -> Any:
        """What is left of X after its code: `inverse_transform` of `transform`; for texts `how` goes to `generate`."""
        Z = self.transform(X)
        return self.generate(Z, **how) if how else self.inverse_transform(Z)

    # -- scores -------------------------------------------------------------------------------------------------

    def score_meaning(self, X: Any) -> str:
        """What a score of X is: 'bound' (on log p(x)), or 'cross-entropy' (grey pixels), 'normalised-row density', or
        'joint density at the code' (log p(x, z) of an autoencoder without noise)."""
        return meaning_of(self, self._read(X, reset=False))

    def score_samples(self, X: Any, *, n_samples: int = 10) -> Array:
        """Per item, nats: the ELBO with hard draws and unit weights, a true lower bound on log p(x) in the mean.

        Gaussian scores are densities in X's own units. Three settings are no bounds on log p(x), and
        `score_meaning` says so: Bernoulli on grey values is a cross-entropy, scale="unit-norm" scores the normalised
        row at the stated variance floor, and VAE(noise=False) has a joint density at the code. The noise of a row
        depends on (seed, row) alone.
        """
        return bounds_of(self, self._read(X, reset=False), n_samples).elbo.numpy()

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`, nats per item."""
        return float(self.score_samples(X).mean())

    def importance_bound(self, X: Any, *, n_samples: int = 1000) -> ImportanceBound:
        """The importance-weighted bound on log p(x) of every item; refused where scores are no bounds.

        In expectation it lies below log p(x) and rises towards it with `n_samples`. Where weights have heavy tails
        (`pareto_k` above .7, and less than half of the samples effective) a bound may be nats away, whatever its
        standard error says; there is a warning if those are more than one row in twenty.
        """
        return importance_of(self, self._read(X, reset=False), n_samples)

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
        return evaluation.evaluate(self, self._read(X, reset=False), caps, n_samples)

    def relaxed_objective(self, X: Any) -> Array:
        """Per item, nats: the training objective with unit weights and the draws that training takes; no bound.

        Compare `score_samples`: for a code that training relaxes (concrete, paper, VSC's sigmoid) the gap says how
        much of the objective the hard code keeps.
        """
        return relaxed_of(self, self._read(X, reset=False))

    # -- samples ------------------------------------------------------------------------------------------------

    def _decode(self, z: Tensor, draw: Draw | None = None) -> Any:
        """Codes (B, J) in X's own form: the decoded x, or a draw of p(x|z)."""
        likelihood, p = self.model_.likelihood, self.model_.decode(z)
        return self.input_.to_user(likelihood.point(p) if draw is None else likelihood.draw(p, draw))

    def _fresh(self, seed: int) -> Draw:
        check_seed("seed", seed)
        return Draw(Fresh(torch.Generator(self._device()).manual_seed(mix(seed, 6))), hard=True)

    def _check_samples(self, n: int) -> None:
        check_room(n * (self._n_features_out + self.input_.width), {"n": n}, "samples and their codes", self._device())

    @fitted
    def sample(self, n: int = 1, *, seed: int = 0, noise: bool = False, second_stage: SparseCoder | None = None) -> Any:
        """Ancestral samples: z from the prior, then the mean of p(x|z), or a draw from it with `noise`. (n, D)

        Of texts a list of str: the likeliest word every time, or words drawn with `noise`.
        With `second_stage`, a model of the codes as `sparsevae.second_stage(est, X)` returns it, z is a draw from that.
        """
        check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
        self._check_samples(n)
        draw = self._fresh(seed)
        if second_stage is not None:
            if getattr(second_stage, "n_features_in_", None) != self._n_features_out:
                what = f"a fitted model of codes of {self._n_features_out} units, as sparsevae.second_stage returns it"
                raise ValueError(f"second_stage must be {what}; got {second_stage!r}.")
            z = second_stage.sample(n, seed=mix(seed, 9), noise=True)
            return self._decode(torch.from_numpy(z).to(self._device()), draw if noise else None)
        prior = self.model_.prior.marginal(self.model_.encode)
        return self._decode(draw(prior.expand((n,))), draw if noise else None)

    @fitted
    def sample_like(self, X: Any, n: int = 1, *, seed: int = 0, noise: bool = False) -> Any:
        """Samples within one item's active sub-space: units on in its code are redrawn from their slab prior.

        X is one row, such as X[0] or X[:1]; the units that are off stay at zero (VSC, figure 13). For dense models this
        is `sample`. Codes of whole numbers (bits, groups, counts) are refused: which units are on says nearly all of
        them, so there is no value to redraw. For these `inverse_transform` of `draw_codes` gives variations of an item.
        """
        check_number("n", n, "an integer, 0 or above", lambda n: n >= 0, whole=True)
        if self._largest() is not None:
            raise ValueError(
                f"sample_like redraws the values of an item's active units, and codes of this {type(self).__name__} "
                "are whole numbers, not values from a slab. For variations of the item use "
                "inverse_transform(draw_codes(X, n)[:, 0]) with X of one row; for new rows use sample."
            )
        self._check_samples(n)
        X = self._read(self.input_.as_rows(X), reset=False)
        if X.shape[0] != 1:
            raise ValueError(f"sample_like needs one row, got {X.shape[0]}; pass X[0] or X[:1].")
        x, _ = next(self._blocks(X))
        draw = self._fresh(seed)
        on = self.model_.encode(x).mode[:1] != 0
        if not bool(on.any()):
            raise ValueError("no unit is on in this row's code, so there is nothing to redraw; try another row.")
        prior = self.model_.prior.marginal(self.model_.encode)
        slabs = prior.with_gates_open() if self._sparse() and hasattr(prior, "with_gates_open") else prior
        return self._decode(torch.where(on, draw(slabs.expand((n,))), 0.0), draw if noise else None)

    # -- save ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a folder with safetensors and JSON; the encoder's and decoder's own code is not stored."""
        save(self, path)
