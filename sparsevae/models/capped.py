"""What the SDLGM models share: settings of the capped code, and the networks that encode and decode it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from torch import Generator, Tensor, nn

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.distributions.family import Family
from sparsevae.estimator.assemble import Network, decoder_of, encoder_of
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.concatenated import ConcatenatedNetworks, ConcatenatedPosterior, ConcatenatedPrior
from sparsevae.latent.priors import Prior
from sparsevae.networks.architectures import Sizes, chosen
from sparsevae.networks.dense import Branched, initialise
from sparsevae.parameters import check_value, parameters
from sparsevae.sampling.gradients import ESTIMATORS

Gradient = Annotated[str, OneOf("auto", "paper", *ESTIMATORS), "Gradient through the draws; paper: relaxed counts."]


@parameters
class Capped:
    """Settings of a code in which at most `cap` features are active."""

    alpha: Annotated[float, In(0, 1, "()"), "Prior share of the cap in use; for counts P(gate on): lambda_0."] = 0.5
    kl: Annotated[
        str, OneOf("tight", "paper"), "For features='counts', tight (KL of the code itself) or paper (larger)."
    ] = "tight"
    gate_hidden: Annotated[
        tuple[int, ...], POSITIVE, "For features='counts', dense: hidden layers of the network for P(gate on)."
    ] = (64,)
    shared_layers: Annotated[
        int, In(0), "For features='counts', dense: layers that encoder and network for P(gate on) share."
    ] = 0


def check_code(est: Any, code: CappedCode) -> None:
    """Refuse settings of a code that contradict each other. `code` has what features and gradient "auto" mean."""
    layers = 1 if est.hidden is None else len(est.hidden)
    check_value("shared_layers", est.shared_layers, int, [In(0, layers), Note("of the encoder's hidden layers")])
    if est.shared_layers and (est.network not in ("auto", "dense") or est.encoder is not None):
        raise ValueError("shared_layers is for network='dense': other encoders share all of theirs with the gate.")
    able = [name for name, kind in ESTIMATORS.items() if "capped" in kind.kinds]
    if code.features == "distinct" and code.estimator not in able:
        raise ValueError(
            f"gradient={est.gradient!r} cannot keep the cap of features='distinct'; use auto, {', '.join(able)}, or "
            "features='counts'."
        )


def gated_encoder(est: Any, sizes: Sizes, weights: Generator | None) -> nn.Module:
    """The encoder of counts: a dense one has a branch of its own for the logit of P(gate on), the last raw value."""
    if est.encoder is not None or chosen(est.network, texts=sizes.words is not None) != "dense":
        return encoder_of(est, sizes, weights)
    gate = tuple(int(h) for h in est.gate_hidden)
    branched = Branched(sizes.features, sizes.hidden, sizes.raw_z - 1, gate, int(est.shared_layers), sizes.members)
    initialise(branched, weights)
    return branched


def parts_of_model(codes: Sequence[CappedCode]) -> tuple[Family, Prior, Network]:
    """Posterior, prior and encoder of one code, or of several independent ones side by side, an encoder for each."""
    posteriors = [code.posterior() for code in codes]
    priors = [code.prior() for code in codes]
    encoders = [encoder_of if code.features == "distinct" else gated_encoder for code in codes]
    if len(codes) == 1:
        return posteriors[0], priors[0], encoders[0]
    posterior = ConcatenatedPosterior(posteriors, [code.n for code in codes])

    def side_by_side(est: Any, sizes: Sizes, weights: Generator | None) -> nn.Module:
        parts = zip(encoders, posterior.widths, strict=True)
        return ConcatenatedNetworks([build(est, sizes._replace(raw_z=width), weights) for build, width in parts])

    return posterior, ConcatenatedPrior(priors), side_by_side


class Presence(nn.Module):
    """Counts z, (..., J), as 0 and 1: whether each feature is present."""

    def forward(self, z: Tensor) -> Tensor:
        return z.clamp_max(1)


def presence_decoder(est: Any, sizes: Sizes, weights: Generator | None) -> nn.Module:
    """A decoder whose input is min(z, 1): which features are present, not how often."""
    return nn.Sequential(Presence(), decoder_of(est, sizes, weights))
