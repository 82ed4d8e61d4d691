"""A classifier with a code inside: the supervised twin of the dense coders, row "SC" of HSVAE's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent

from sparsevae.checks import POSITIVE
from sparsevae.distributions.family import at_least_float32
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.estimator.assemble import Build, DataSpec, encoder_of, sizes_of
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, Units
from sparsevae.estimator.supervised import Classifies, FromLabels
from sparsevae.inputs.base import Array
from sparsevae.inputs.kind import as_list
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import PointPosterior
from sparsevae.latent.supervised import Discriminative
from sparsevae.likelihoods.base import Likelihood
from sparsevae.networks.dense import Linear, initialise
from sparsevae.parameters import parameters

_NEEDS_Y = "CodeClassifier has no p(x|z), so a row alone says nothing of how good it is: give y, evaluate(X, y)."


class LinearLikelihood(nn.Module):
    r"""The law of y that is linear in a code: with logits :math:`a = W z + b`, (..., d) -> (..., L),

    .. math:: p(y | z) = \prod_k \mathrm{softmax}(a)_k^{y_k} \quad\text{or}\quad
        \prod_k \sigma(a_k)^{y_k} (1 - \sigma(a_k))^{1 - y_k},

    one class a row, or every label for itself.
    """

    def __init__(self, n_units: int, n_labels: int, *, single: bool) -> None:
        super().__init__()
        self.single, self.linear = single, Linear(n_units, n_labels)

    def forward(self, q: Distribution, z: Tensor) -> Distribution:
        logits = at_least_float32(self.linear(z))
        if self.single:
            return OneHotCode(logits, logits.shape[-1])
        return Independent(Bernoulli(logits=logits, validate_args=False), 1, validate_args=False)


@parameters
class CodeClassifier(Classifies, FromLabels, Units, FromTexts, SparseCoder):
    r"""Classifier through a small dense code: encoder, d units, a linear softmax, learned from labels end to end.

    .. math:: \mathcal L = -\log p(y | z), \quad z = f(x), \quad p(y | z) = \mathrm{softmax}(W z + b)

    The encoder is that of the other models, for rows of numbers, images and texts, and so is the size of the code. What
    differs is what the code is for: there is no decoder, no noise and no KL, so its accuracy is what labels alone can
    make of such a network, beside which codes learned without labels are judged. `transform` gives the d units.

    y is (n,), one class a row, or (n, L) of 0 and 1, dense or CSR; every label is then a logit of its own, and
    predicted where its probability exceeds 1/2. Out of the box training stops early, on a tenth of the rows.

    {parameters}

    {attributes}

    References
    ----------
    Prokhorov, Li, Shareghi, Collier, "Hierarchical sparse variational autoencoder for text encoding", 2020: the row
    "SC" of its classification table. The paper does not define it; its scores depend on the size of the code, which
    this reading explains.

    Examples
    --------
    >>> import sparsevae as sv
    >>> texts = [f"{a} {b} {c}" for a in ("the", "my", "that") for b in ("cat", "dog") for c in ("eats", "is old")] * 10
    >>> training = sv.Training(steps=60, learning_rate=1e-2, verbose=0)
    >>> est = sv.CodeClassifier(4, hidden=(16,), text=sv.Text(embedding=8), training=training)
    >>> est = est.fit(texts, ["cat" if "cat" in text else "dog" for text in texts])
    >>> est.predict(["the old cat", "my dog"]).tolist()
    ['cat', 'dog']
    """

    n_components: Annotated[int, POSITIVE, "Number of units d of the code."] = field(default=32, kw_only=False)
    learned: ClassVar[tuple[str, ...]] = (*FromLabels.learned, "classes_", "single_", "sparse_")

    def rules(self) -> None:
        self.refuse_free_bits()
        settings = self.training_settings()
        for name, idle, what in (("kl_warmup", 0, "the weight of a KL"), ("n_samples", 1, "draws of a code")):
            if (value := getattr(settings, name)) != idle:
                raise ValueError(
                    f"training.{name} is for {what}, and CodeClassifier has none; got {value!r}. Leave it at {idle}."
                )

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n = int(self.n_components)
        posterior = PointPosterior()
        encoder = encoder_of(self, sizes_of(self, data, posterior.width(n), n), weights)
        targets = LinearLikelihood(n, self.n_labels_, single=self.single_)
        initialise(targets, weights)
        model = Discriminative(
            encoder, posterior, nn.Identity(), Likelihood(), None, targets, exact=True, n_components=n
        )
        return Build(model, Objective(nll))

    # -- labels -------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Array:
        """The probability of every class, (n, L), rows sum to 1; or P(label), every label for itself."""
        check_is_fitted(self)
        targets = self.model_.targets
        return self.fitted_.ask(self.fitted_.rows(X), lambda q: targets(q, q.mean).mean)

    def predict(self, X: Any) -> Any:
        """The likeliest classes, (n,); or labels (n, L), 0/1, CSR where y was."""
        return self._from_probabilities(self.predict_proba(X), 0.5, self.n_labels_)

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge predictions of y by: accuracy (of whole rows), F1 scores, numbers of labels."""
        if y is None:
            raise ValueError(_NEEDS_Y)
        if len(caps):
            raise ValueError(f"caps are for codes with gates; CodeClassifier codes are dense. Got caps={caps!r}.")
        X = as_list(X)
        P, Y = self.predict(X), self._targets(self.fitted_.rows(X), y, {})
        found = self._judge(P, Y)
        return {"rows": found["rows"], "accuracy": found["exact"], **found}
