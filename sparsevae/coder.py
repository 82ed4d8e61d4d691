"""What `transform` asks of a model: the most probable code, and no more of q(z|x) than that needs.

A code has no use for the deviations of its slabs, and they are a third of what VSC's encoder computes in its last layer
(half of a VAE's). Where that layer is a linear map of ours, they are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.families import wide
from sparsevae.model import LatentModel
from sparsevae.networks import Linear
from sparsevae.tracing import hooked

__all__ = ["coder"]


def coder(model: LatentModel) -> Callable[[Tensor], Distribution]:
    """x (*members, B, D) -> a law with the mode and the ranking of q(z|x); elsewhere it may differ.

    It is q(z|x) itself for models that read x or make its law in a way of their own, for other last layers, and where
    someone has hooked into them. The weights are those of now.
    """
    encoder, parts = model.encoder, model.posterior.modal
    usual = all(getattr(type(model), name) is getattr(LatentModel, name) for name in ("read", "encode", "law"))
    if not usual or parts is None or type(encoder) is not nn.Sequential or hooked(encoder):
        return model.encode
    *body, head = encoder
    if type(head) is not Linear or hooked(head):
        return model.encode
    blocks = torch.arange(head.weight.shape[-2], device=head.weight.device).chunk(model.posterior.parts)
    less = nn.Sequential(*body, head.some(torch.cat([blocks[part] for part in parts])))
    return lambda x: model.posterior.outline(wide(less(x)))
