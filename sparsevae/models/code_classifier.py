"""A classifier with a dense code: the supervised counterpart of the dense models, row "SC" of HSVAE's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any

from torch import Generator, Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent

from sparsevae.checks import POSITIVE
from sparsevae.distributions.family import at_least_float32
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.estimator.assemble import Build, DataSpec, encoder_of, sizes_of
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, Units
from sparsevae.estimator.supervised import Classifies
from sparsevae.inputs.base import Array
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import PointPosterior
from sparsevae.latent.supervised import Discriminative
from sparsevae.likelihoods.base import Likelihood
from sparsevae.networks.dense import Linear, initialise
from sparsevae.parameters import parameters


class LinearLikelihood(nn.Module):
    r"""p(y|z), linear in the code: with logits :math:`a = W z + b`, (..., d) -> (..., L),

    .. math:: p(y | z) = \prod_k \mathrm{softmax}(a)_k^{y_k} \quad\text{or}\quad
        \prod_k \sigma(a_k)^{y_k} (1 - \sigma(a_k))^{1 - y_k},

    for one class per row, or for independent labels.
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
class CodeClassifier(Classifies, Units, FromTexts, SparseCoder):
    r"""Classifier with a small dense code: encoder, d units, a linear softmax, trained on labels end to end.

    .. math:: \mathcal L = -\log p(y | z), \quad z = f(x), \quad p(y | z) = \mathrm{softmax}(W z + b)

    The encoder and the size of the code are those of the other models, for rows of numbers, images and texts. There is
    no decoder, no noise and no KL: the accuracy is a reference for codes learned without labels. `transform` gives the
    d units.

    y is (n,), one class per row, or (n, L) of 0 and 1, dense or CSR; every label then has a logit of its own, and is
    predicted where its probability exceeds 1/2. By default training stops early, by a tenth of the rows.

    {parameters}

    {attributes}

    References
    ----------
    Prokhorov, Li, Shareghi, Collier, "Hierarchical sparse variational autoencoder for text encoding", 2020: the row
    "SC" of its classification table. The paper does not define it; its scores depend on the size of the code, as
    those of this model do.

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
        """The probability of every class, (n, L), rows sum to 1; or P(label) of independent labels."""
        return self._from_posterior(X, lambda q: self.model_.targets(q, q.mean).mean)

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """Scores of the predictions of y: accuracy (share of exact rows), F1 scores, labels per row."""
        if y is None:
            raise ValueError("CodeClassifier has no p(x|z), so there is no score of X alone: pass y, evaluate(X, y).")
        if len(caps):
            raise ValueError(f"caps are for codes with gates; CodeClassifier codes are dense. Got caps={caps!r}.")
        found = self._accuracy(X, y)
        return {"rows": found["rows"], "accuracy": found["exact"], **found}
