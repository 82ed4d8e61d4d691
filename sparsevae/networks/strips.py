"""One net applied to each vertical strip of an image."""

from __future__ import annotations

from torch import Tensor, nn

from sparsevae.distributions.counts import Counts


class Strips(nn.Module):
    """The same net on each of C vertical strips of an image: log p_ck, (B, H W channels) -> (B, C (K + 1))."""

    def __init__(self, net: nn.Module, image: tuple[int, int, int], columns: int) -> None:
        super().__init__()
        height, width, channels = image
        self.net, self.columns = net, columns
        self.layout = (height, columns, width // columns, channels)

    def categories(self, x: Tensor) -> Tensor:
        """log p_ck, (B, H W C) -> (B, columns, K + 1); the last category is "nothing"."""
        strips = x.unflatten(-1, self.layout).movedim(-3, -4).flatten(-3)
        raw = self.net(strips.flatten(0, 1))
        log_p: Tensor = Counts(raw[..., -1:], raw[..., :-1], 1).categories().unflatten(0, (-1, self.columns))
        return log_p

    def forward(self, x: Tensor) -> Tensor:
        return self.categories(x).flatten(-2)
