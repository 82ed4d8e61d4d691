"""The rows of each step: the order of batches, and static buffers, one set per width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from sparsevae.inputs.batch import Batch, Examples
from sparsevae.sampling.noise import mix
from sparsevae.training.optimisers import Gradients


class Order:
    """The rows of the batch of a step: every row once per epoch, in an order that depends on (seed, epoch, number).

    A batch may span two epochs, so that all batches have one size. `number` is the number of the feed.
    """

    def __init__(self, items: Tensor, batch_size: int, seed: int, number: int = 0) -> None:
        self.items, self.n = items, len(items)
        self.size = min(int(batch_size), self.n)
        self.seed, self.number = seed, number
        self._epochs: dict[int, Tensor] = {}

    def _epoch(self, epoch: int) -> Tensor:
        if epoch not in self._epochs:
            generator = torch.Generator(self.items.device).manual_seed(mix(self.seed, epoch, 1 + self.number))
            shuffle = torch.randperm(len(self.items), generator=generator, device=self.items.device)
            self._epochs = {k: v for k, v in self._epochs.items() if k == epoch - 1}
            self._epochs[epoch] = self.items[shuffle]
        return self._epochs[epoch]

    def __call__(self, step: int) -> Tensor:
        epoch, first = divmod(step * self.size, self.n)
        last = first + self.size
        head = self._epoch(epoch)[first:last]
        return head if last <= self.n else torch.cat([head, self._epoch(epoch + 1)[: last - self.n]])


class FeedSchedule:
    """The feed of each step of a run, a function of (rows per feed, total, seed).

    Feed k gets total n_k / n of the steps; the largest remainders are rounded up, so that the shares add up. So rows of
    all feeds are used equally often, up to rounding. The order is random, so that short rows are spread over the run.
    """

    def __init__(self, sizes: Sequence[int], total: int, seed: int) -> None:
        self.alone = len(sizes) == 1
        if self.alone:  # no table of all steps, however many
            return
        n = sum(sizes)
        counts = np.array([total * size // n for size in sizes])
        remainders = np.array([total * size % n for size in sizes])
        counts[np.argsort(-remainders, kind="stable")[: total - counts.sum()]] += 1
        shuffle = torch.randperm(total, generator=torch.Generator().manual_seed(mix(seed, 10)))
        self._feed = np.repeat(np.arange(len(sizes), dtype=np.int32), counts)[shuffle.numpy()]
        self._turn = np.empty_like(self._feed)
        for k, count in enumerate(counts):
            self._turn[self._feed == k] = np.arange(count)

    def __call__(self, step: int) -> tuple[int, int]:
        """The feed of a step, and the number of earlier steps of that feed."""
        return (0, step) if self.alone else (int(self._feed[step]), int(self._turn[step]))


class Feed:
    """Rows of one width: their order, static buffers for one batch, and the functions that compute a step on it.

    `differentiate` returns the terms and one gradient per weight; `run` takes the whole step.
    """

    differentiate: Callable[[], tuple[Tensor, Gradients]]
    run: Callable[[], object]

    def __init__(self, rows: Examples, order: Order) -> None:
        self.rows, self.order = rows, order
        self.index = order(0).clone()
        self.batch = rows.pick(self.index)

    def load(self, turn: int) -> None:
        """Load the batch of this feed's step number `turn`: into new tensors on a CPU, else into the static buffers."""
        index = self.order(turn)
        if self.rows.static:
            self.index.copy_(index)
        elif self.rows.device.type == "cpu":
            self.batch = self.rows.pick(index)
        else:
            for buffer, picked in zip(self.batch, self.rows.pick(index), strict=True):
                if buffer is not None and picked is not None:
                    buffer.copy_(picked, non_blocking=True)

    def read(self) -> Batch:
        """The loaded batch, in the dtype of the rows."""
        return self.rows.pick(self.index) if self.rows.static else self.batch


def some_items(items: Tensor, n: int, seed: int) -> Tensor:
    """At most n of the items, chosen at random by the seed (data may be sorted by class or time), in their order."""
    shuffle = torch.randperm(len(items), generator=torch.Generator().manual_seed(mix(seed, 12)))
    return items[shuffle[:n].sort().values.to(items.device)]
