"""What we are compared with: the loop a careful user writes by hand, and pythae's own trainer.

`HandVSC` is Variational Sparse Coding in plain PyTorch, the same mathematics as `sparsevae.VSC` with a Gaussian
likelihood of learned variance; `speed.same_model` asserts that loss and gradients agree. `HandHSVAE` is HSVAE on
sentences; `text.same_model` asserts that losses agree.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Beta, kl_divergence
from torch.nn.functional import cross_entropy, logsigmoid, softplus
from torch.utils.data import DataLoader, TensorDataset

from sparsevae.text.ids import EOS, PAD

BLOCK = 100  # steps; every loop looks at its loss once a block, ours also reports and keeps a roll-back point
FLOOR = 0.03  # least variance of the likelihood, for ours and for the peer


class Clock:
    """Times blocks of BLOCK steps from step `first` to `last`, waiting for the device each time.

    Before every block it lets someone else run: `rest`, which is not counted.
    """

    def __init__(self, first: int, last: int, device: torch.device, rest: Callable[[], None] = lambda: None) -> None:
        self.first, self.last, self.device, self.rest = first, last, device, rest
        self.marks = [*range(first, last, min(BLOCK, last - first)), last]
        self.warm = 0.0  # when the first block was due
        self.blocks: list[float] = []  # seconds a step

    def __call__(self, step: int) -> None:
        if step not in self.marks:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        if step == self.first:
            self.warm = now
        else:
            before = self.marks[len(self.blocks)]
            self.blocks.append((now - self._began) / (step - before))
        if step != self.last:
            self.rest()
        self._began = time.perf_counter()


class HandVSC(nn.Module):
    """x -> 400 -> (loc, log-variance, gate logits) x 200 -> 400 -> (mean, raw variance) x 784."""

    def __init__(self, n_in: int, hidden: int, units: int, alpha: float, sharpness: float = 50.0) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, 3 * units))
        self.decoder = nn.Sequential(nn.Linear(units, hidden), nn.ReLU(), nn.Linear(hidden, 2 * n_in))
        self.alpha, self.sharpness, self.units = alpha, sharpness, units

    def loss(self, x: Tensor, eps: Tensor, u: Tensor) -> Tensor:
        mu, log_var, a = self.encoder(x).chunk(3, -1)
        sigma, p_on = torch.exp(0.5 * log_var) + 1e-4, torch.sigmoid(a)
        z = torch.sigmoid(self.sharpness * (u - 1 + p_on)) * (mu + sigma * eps)
        mean, s = self.decoder(z).chunk(2, -1)
        var = FLOOR + softplus(s)
        nll = 0.5 * ((x - mean) ** 2 / var + var.log() + math.log(2 * math.pi)).sum(-1)
        slab = 0.5 * (mu**2 + sigma**2 - 1) - sigma.log()
        on, off = logsigmoid(a) - math.log(self.alpha), logsigmoid(-a) - math.log1p(-self.alpha)
        return (nll + (p_on * (slab + on) + (1 - p_on) * off).sum(-1)).mean()


class HandHSVAE(nn.Module):
    """Sentences (B, T) of word numbers -> GRU -> (loc, s, a, b) x units -> GRU -> logits of all positions."""

    def __init__(self, words: int, embedding: int, hidden: int, units: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.words = nn.Embedding(words, embedding)
        self.reader = nn.GRU(embedding, hidden, batch_first=True)
        self.heads = nn.Linear(hidden, 4 * units)
        self.writer = nn.GRU(embedding + units, hidden, batch_first=True)
        self.logits = nn.Linear(hidden, words)
        self.alpha, self.beta, self.units = alpha, beta, units

    def loss(self, x: Tensor, eps: Tensor, u: Tensor, gamma: Tensor | None = None) -> Tensor:
        """Of x with its noise, (B, units) each; the logit of gamma = P(off) is drawn, or given."""
        end = (x != PAD).sum(-1) - 1
        last = self.reader(self.words(x))[0][torch.arange(len(x), device=x.device), end]
        mu, s, a, b = self.heads(last).chunk(4, -1)
        sigma, (a, b) = softplus(s) + 1e-4, ((softplus(c) + 1e-5).clamp(0.5, 100.0) for c in (a, b))
        q, p = Beta(a, b), Beta(torch.full_like(a, self.alpha), torch.full_like(b, self.beta))
        gamma = torch.logit(q.rsample(), 1e-6) if gamma is None else gamma
        soft = torch.sigmoid((torch.logit(u) - gamma) / 0.5)
        gate = (u > torch.sigmoid(gamma)).float() + (soft - soft.detach())
        z = gate * (mu + sigma * eps)
        heard = self.words(nn.functional.pad(x[:, :-1], (1, 0), value=EOS))
        states, _ = self.writer(torch.cat([heard, z.unsqueeze(1).expand(-1, x.shape[1], -1)], -1))
        nll = cross_entropy(self.logits(states).flatten(0, 1), x.flatten(), ignore_index=PAD, reduction="sum") / len(x)
        slab = 0.5 * (mu**2 + sigma**2 - 1) - sigma.log()
        return nll + ((torch.sigmoid(-gamma) * slab) + kl_divergence(q, p)).sum(-1).mean()


def loader_batches(X: Tensor, batch: int, workers: int, device: torch.device) -> Iterator[Tensor]:
    """TensorDataset and a shuffling DataLoader, epoch after epoch; pinned memory on CUDA, workers kept alive."""
    loader = DataLoader(
        TensorDataset(X),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
    while True:
        for (x,) in loader:
            yield x.to(device, non_blocking=True)


def resident_batches(X: Tensor, batch: int) -> Iterator[Tensor]:
    """Data already on the device; a minibatch is an index."""
    while True:
        for index in torch.randperm(len(X), device=X.device).split(batch):
            if len(index) == batch:
                yield X[index]


def products(model: HandVSC, batch: int) -> Iterator[None]:
    """The matrix products of a step of `model` and nothing else, into buffers at hand: no loop can take less.

    y = x W', dW = dy' x and, but for the first layer, dx = dy W.
    """
    layers = []
    for layer in (m for m in model.modules() if isinstance(m, nn.Linear)):
        W = layer.weight.detach()
        x, dy = (torch.randn(batch, n, device=W.device) for n in (layer.in_features, layer.out_features))
        layers.append((x, W, dy, torch.empty_like(dy), torch.empty_like(W), torch.empty_like(x)))
    while True:
        for i, (x, W, dy, y, dW, dx) in enumerate(layers):
            torch.mm(x, W.t(), out=y)
            torch.mm(dy.t(), x, out=dW)
            if i:
                torch.mm(dy, W, out=dx)
        yield


def hand_steps(model: HandVSC | HandHSVAE, batches: Iterator[Tensor], *, fused: bool) -> Iterator[None]:
    """Adam on `model`, a step at a time; the loss is looked at once a block."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True if fused else None)
    for step, x in enumerate(batches):
        eps = torch.randn(len(x), model.units, device=x.device)
        u = torch.rand(len(x), model.units, device=x.device)
        loss = model.loss(x, eps, u)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % BLOCK == 0 and not math.isfinite(loss.item()):
            raise ArithmeticError(f"the peer's loss was not finite at step {step}")
        yield


def loop(steps: Iterator[None], clock: Clock) -> None:
    """Steps until the clock's last."""
    for step in range(clock.last):
        clock(step)
        next(steps)
    clock(clock.last)


def has_pythae() -> bool:
    return importlib.util.find_spec("pythae") is not None


def pythae_loop(X: Tensor, hidden: int, units: int, batch: int, clock: Clock) -> None:
    """pythae's VAE (no gates, no variance head) through its own BaseTrainer, on the CPU."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from pythae.data.datasets import BaseDataset
        from pythae.models import VAE, VAEConfig
        from pythae.models.base.base_utils import ModelOutput
        from pythae.models.nn import BaseDecoder, BaseEncoder
        from pythae.trainers import BaseTrainer, BaseTrainerConfig
        from pythae.trainers.training_callbacks import TrainingCallback

        for name in [n for n in logging.root.manager.loggerDict if n.startswith("pythae")]:
            logging.getLogger(name).setLevel(logging.ERROR)

        class Encoder(BaseEncoder):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Sequential(nn.Linear(X.shape[1], hidden), nn.ReLU())
                self.loc, self.log_var = nn.Linear(hidden, units), nn.Linear(hidden, units)

            def forward(self, x: Tensor) -> Any:
                h = self.body(x)
                return ModelOutput(embedding=self.loc(h), log_covariance=self.log_var(h))

        class Decoder(BaseDecoder):
            def __init__(self) -> None:
                super().__init__()
                self.body = nn.Sequential(nn.Linear(units, hidden), nn.ReLU(), nn.Linear(hidden, X.shape[1]))

            def forward(self, z: Tensor) -> Any:
                return ModelOutput(reconstruction=torch.sigmoid(self.body(z)))

        class Timer(TrainingCallback):
            """The clock's window: after step `first`, to after step `last`, ends of epochs included."""

            done = 0

            def on_train_step_end(self, training_config: Any, **kwargs: Any) -> None:
                self.done += 1
                clock(self.done)

        with tempfile.TemporaryDirectory() as folder:
            settings = BaseTrainerConfig(
                output_dir=folder,
                num_epochs=math.ceil((clock.last + 1) * batch / len(X)),
                per_device_train_batch_size=batch,
                learning_rate=1e-3,
                no_cuda=True,
            )
            config = VAEConfig(input_dim=(X.shape[1],), latent_dim=units, reconstruction_loss="mse")
            # A prefix of the rows, so that the last epoch ends soon after the clock's last step.
            rows = X[: min(len(X), (clock.last + 1) * batch)]
            data = BaseDataset(rows, torch.zeros(len(rows)))
            BaseTrainer(VAE(config, Encoder(), Decoder()), data, training_config=settings, callbacks=[Timer()]).train()
