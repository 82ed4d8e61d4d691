"""The coder: codes without the parts of a law that they do not need, and when it must leave everything as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import sparsevae as sv
from sparsevae.coder import coder
from sparsevae.families import SpikeSlabPosterior
from sparsevae.networks import Linear

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")

X = np.random.default_rng(0).random((70, 12)).astype(np.float32)
SHORT = sv.Training(steps=3, batch_size=16, device="cpu", verbose=0)
WITH_LESS = {
    "VAE": sv.VAE(5, training=SHORT),
    "VSC": sv.VSC(5, training=SHORT),
    "VSC that is a VAE": sv.VSC(5, alpha=1.0, training=SHORT),
    "PseudoVSC": sv.PseudoVSC(5, training=SHORT),
    "deep": sv.VSC(5, hidden=(9, 8), training=SHORT),
    "images": sv.VSC(5, network="conv", image_shape=(12, 1, 1), training=SHORT),
    "own encoder": sv.VSC(5, encoder=nn.Sequential(nn.Linear(12, 7), nn.Tanh()), training=SHORT),
}
AS_IT_IS = {
    "discrete": sv.SDLGM(5, training=SHORT),
    "hierarchical": sv.HSVAE(5, training=SHORT),
}


@pytest.mark.parametrize("name", WITH_LESS)
def test_the_code_is_the_mode_of_the_whole_law_and_deviations_are_not_computed(name: str) -> None:
    est = WITH_LESS[name].fit(X)
    x, computed = torch.from_numpy(X), []
    encode = coder(est.model_)
    handle = nn.modules.module.register_module_forward_hook(
        lambda m, _, out: computed.append(out.shape[-1]) if isinstance(m, Linear) else None
    )
    try:
        found, whole = encode(x), est.model_.encode(x)
    finally:
        handle.remove()
    torch.testing.assert_close(found.mode, whole.mode)
    if hasattr(whole, "ranking"):
        torch.testing.assert_close(found.ranking, whole.ranking)
    assert computed[len(computed) // 2 - 1] == computed[-1] - 5  # one number a unit less


@pytest.mark.parametrize("name", AS_IT_IS)
def test_other_models_are_asked_for_the_whole_law(name: str) -> None:
    est = AS_IT_IS[name].fit(X)
    assert coder(est.model_) == est.model_.encode


@pytest.mark.parametrize("where", ["encoder", "head"])
@pytest.mark.parametrize("how", ["hook", "forward"])
def test_who_listens_to_the_encoder_or_its_last_layer_hears_all_of_it(where: str, how: str) -> None:
    est, heard = sv.VSC(5, training=SHORT).fit(X), []
    module = est.model_.encoder if where == "encoder" else est.model_.encoder[-1]
    if how == "hook":
        module.register_forward_hook(lambda m, _, out: heard.append(out.shape[-1]))
    else:
        old = module.forward
        module.forward = lambda x: (heard.append(15), old(x))[1]  # type: ignore[method-assign]
    est.transform(X)
    assert heard == [15]


def test_hidden_layers_may_be_listened_to() -> None:
    est, heard = sv.VSC(5, hidden=(9,), training=SHORT).fit(X), []
    est.model_.encoder[1].register_forward_hook(lambda m, _, out: heard.append(tuple(out.shape)))
    est.transform(X)
    assert heard == [(512, 9)]


def test_codes_follow_the_weights_as_they_are_now() -> None:
    est = sv.VSC(5, training=SHORT).fit(X)
    before = est.transform(X).toarray()
    with torch.no_grad():
        est.model_.encoder[-1].bias[:5] += 1.0
    after = est.transform(X).toarray()
    np.testing.assert_allclose(after, np.where(before != 0, before + 1, 0), rtol=1e-5, atol=1e-6)


def test_a_family_with_another_law_says_anew_what_its_mode_needs() -> None:
    class Negated(SpikeSlabPosterior):
        def forward(self, raw: torch.Tensor) -> torch.distributions.Distribution:
            return super().forward(-raw)

    assert SpikeSlabPosterior.modal == (0, 2)
    assert Negated.modal is None


def test_a_linear_map_to_some_outputs_gives_those_of_the_whole_for_every_member() -> None:
    layer = Linear(4, 6, (3,))
    layer.reset(torch.Generator().manual_seed(0))
    x = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(1))
    outputs = torch.tensor([5, 0, 2])
    torch.testing.assert_close(layer.some(outputs)(x), layer(x)[..., outputs])
