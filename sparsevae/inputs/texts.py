"""Texts: from texts to rows of word numbers, and from decoded rows to texts."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.exceptions import warn_caller
from sparsevae.inputs.base import Array, Input, Pairs
from sparsevae.inputs.ragged import Ragged
from sparsevae.inputs.rows import Rows
from sparsevae.inputs.scaling import Scaling
from sparsevae.parameters import check_parameters, parameters
from sparsevae.tables.columns import is_table
from sparsevae.text.ids import PAD, ends, spoken
from sparsevae.text.reading import read_texts
from sparsevae.text.splitting import TOKENIZERS
from sparsevae.text.vocabulary import Vocabulary
from sparsevae.text.widths import choose_widths

_MULTIPLE = 8  # the number of positions is a multiple of it
_AT_ONCE = {"cpu": 32, "cuda": 512}  # texts per block: a GRU takes a step per word
_COLUMN = Note("the name of a column; of one without a name pass its texts, X[column]")
_PAPER = 20_000  # size of HSVAE's vocabulary
_LEAST_STEPS, _PASSES, _BATCH, _RATE = 1_000, 6, 32, 1e-2  # defaults of `Training` for texts
_LEGAL: dict[str, tuple[Any, ...]] = {
    "network": ("auto", "gru"),
    "likelihood": ("auto",),
    "scale": ("auto", "none"),
    "image_shape": (None,),
    "encoder": (None,),
    "decoder": (None,),
    "decoder_hidden": (None,),
    "skip": (None, False),
    "shared_layers": (0,),  # a GRU shares all of its layers
}


@parameters
class Text(BaseEstimator):
    """Settings of the conversion of texts to rows of word numbers.

    {parameters}
    """

    tokenizer: Annotated[
        str, OneOf(*TOKENIZERS), "words (any language), space (of texts that are split), paper (HSVAE's DBpedia)."
    ] = "words"
    size: Annotated[
        int | None,
        In(2),
        "Largest size of the vocabulary, the unknown word included: the most frequent words are kept. None: as many as "
        "leave at most 5 % of words unknown, without words seen once, 1,000 to 20,000; 20,000 for tokenizer='paper'.",
    ] = None
    min_count: Annotated[int, POSITIVE, "Words that occur less often are unknown."] = 1
    max_length: Annotated[int, POSITIVE, "Most words per text; longer texts are cut."] = 60
    column: Annotated[str | None, _COLUMN, "The column of texts of a DataFrame, a .csv or a .parquet file."] = None
    embedding: Annotated[int, POSITIVE, "Size of the vector of a word in the networks."] = 128
    vocabulary: Annotated[
        Vocabulary | None, "Your own, in place of tokenizer, size and min_count; None: learned from the texts."
    ] = None

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        check_parameters(self, "text.")


class Texts(Input):
    """Texts as rows of word numbers: words, EOS, padding. Learned: `vocabulary`.

    The width is the number of positions of the longest text, rounded up to a multiple of 8; `lay_out` and
    `group_by_width` group texts of similar lengths, so most batches are narrower. `text` is a copy of the settings.
    """

    likelihood_name = "tokens"
    kind: ClassVar[str] = "texts"
    hidden: ClassVar[tuple[int, ...]] = (128,)
    stops_early: ClassVar[bool] = False  # six passes are few
    vocabulary: Vocabulary
    cut_noted = False  # True after the first warning of a fit; old pickles lack it

    def __init__(self, text: Text) -> None:
        self.text = Text(**text.get_params(deep=False))
        self.prepare, self.column = Scaling(), self.text.column
        self.width = _rounded(int(self.text.max_length) + 1)

    def about(self) -> dict[str, int]:
        return {"words": len(self.vocabulary.words)}

    def check_settings(self, model: str, settings: Mapping[str, Any]) -> None:
        if "text" not in settings:
            raise ValueError(f"{model} needs rows of numbers, and X holds texts. HSVAE takes texts.")
        for key, values in _LEGAL.items():
            if (value := settings.get(key, values[0])) not in values:
                raise ValueError(f"for texts {key} must be {' or '.join(map(repr, values))}, got {value!r}.")
        if settings["training.binarise"]:
            raise ValueError("training.binarise is for pixels, and X holds texts: leave it False.")
        if (hidden := settings["hidden"]) is not None and len(hidden) != 1:
            raise ValueError(f"for texts hidden must be one size, that of the GRU's states, got {hidden!r}.")

    def training_defaults(self, n_rows: int, batch_size: int | None) -> dict[str, Any]:
        """Six passes with small batches and a high learning rate: a step takes time per word, even for few rows."""
        size = min(batch_size or _BATCH, max(1, n_rows))
        steps = max(_LEAST_STEPS, math.ceil(_PASSES * n_rows / size))
        return {"steps": steps, "batch_size": _BATCH, "learning_rate": _RATE}

    def sizes(self) -> dict[str, int]:
        """Sizes of the vocabulary and of word vectors; positions of a row, and of the longest legal text with EOS."""
        own = {"words": len(self.vocabulary), "embedding": int(self.text.embedding)}
        return own | {"positions": self.width, "longest": int(self.text.max_length) + 1}

    @property
    def scaling(self) -> Any:
        raise AttributeError("texts have no scaling; methods that draw or compare values need rows of numbers.")

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, est: BaseEstimator, X: Any, *, reset: bool) -> Array:
        """Word numbers, (n, positions of the longest) int32."""
        if reset:
            for name in ("n_features_in_", "feature_names_in_"):  # set by an earlier fit on numbers
                if hasattr(est, name):
                    delattr(est, name)
        texts = texts_of(X, self.column)
        if len(texts) < (least := 2 if reset else 1):
            name = type(est).__name__
            raise ValueError(f"Found {len(texts)} texts, while a minimum of {least} is required by {name}.")
        if reset:
            own = {name: getattr(self.text, name) for name in ("tokenizer", "min_count")}
            size = self.text.size or (_PAPER if self.text.tokenizer == "paper" else None)
            self.vocabulary = self.text.vocabulary or Vocabulary.fit(texts, size=size and int(size), **own)
        found = self.vocabulary.encode(texts, max_length=int(self.text.max_length))
        if found.cut.any() and not self.cut_noted:
            self.cut_noted = True
            warn_caller(
                f"{int(found.cut.sum()):,} of {len(texts):,} texts ({found.cut.mean():.2g}) have more than "
                f"{self.text.max_length} words and were cut after them; Text(max_length=...) sets the limit."
            )
        width = _rounded(int(found.lengths.max()))
        rows = np.zeros((len(texts), width), np.int32)
        for part in np.array_split(np.arange(len(texts)), -(-len(texts) // 10_000)):
            rows[part] = found.take(part, width)
        return rows

    def as_rows(self, x: Any) -> Any:
        return [x] if isinstance(x, (str, bytes)) else x

    # -- rows by length -----------------------------------------------------------------------------------------

    def block_size(self, device: torch.device, draws: int = 1) -> int:
        return texts_at_once(device, draws)

    def lay_out(self, X: Array, device: torch.device) -> Rows:
        lengths = _lengths(X)
        widths = choose_widths(lengths, multiple=_MULTIPLE)
        return Ragged(X[:, : widths[-1]], lengths, widths, device)

    def group_by_width(self, X: Array) -> tuple[list[Any], Array]:
        """Groups of one width each; the group of a row depends on its own length alone."""
        steps = np.array(_steps(self.width))
        group = np.searchsorted(steps, _lengths(X))
        places = [np.flatnonzero(group == k) for k in range(len(steps))]
        parts = []
        for at, width in zip(places, steps, strict=True):
            if len(at):
                rows = X[:, :width][at]
                parts.append(np.pad(rows, ((0, 0), (0, int(width) - rows.shape[1])), constant_values=PAD))
        return parts, np.concatenate(places).argsort()

    # -- decoded texts ------------------------------------------------------------------------------------------

    def to_user(self, values: Tensor) -> list[str]:
        return self.vocabulary.decode(values.cpu().numpy())

    def concatenate(self, parts: Sequence[Sequence[str]]) -> list[str]:
        return [text for texts in parts for text in texts]

    def errors(self, x: Tensor, decoded: Iterable[Distribution]) -> Tensor:
        """Number of words, of unknown words, and -log p(x|z) under every code, per row."""
        unknown = x == self.vocabulary.unknown
        nats = [-p.log_prob(x) for p in decoded]
        return torch.stack([spoken(x).sum(-1), unknown.sum(-1), *nats]).double()

    def summarise(
        self, errors: Array, rows: int, blocks: Pairs, score: float, nll: float, caps: Sequence[int]
    ) -> dict[str, Any]:
        words, unknown, code, *capped = (errors / rows).tolist()
        return {
            "words": words,
            "unknown": unknown / words,
            "nll": nll,
            "nll_code": code,
            "perplexity": float(np.exp(-score / words)),
            "perplexity_reconstruction": float(np.exp(nll / words)),
            "caps": {int(cap): nats for cap, nats in zip(caps, capped, strict=True)},
        }

    # -- save ---------------------------------------------------------------------------------------------------

    def in_force(self) -> dict[str, Any]:
        own = {name: getattr(self.text, name) for name in ("tokenizer", "max_length", "embedding")}
        return own | {"scale": None, "vocabulary": f"{len(self.vocabulary.words):,} words"}

    def signature(self) -> dict[str, Any]:
        """Settings and a hash of the vocabulary: the fingerprint of word numbers does not depend on the words."""
        words = json.dumps(self.vocabulary.to_dict()).encode()
        settings = {k: v for k, v in self.text.get_params(deep=False).items() if k != "vocabulary"}
        return {"texts": settings, "vocabulary": hashlib.sha256(words).hexdigest()[:16]}

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"text": self.text.get_params(deep=False) | {"vocabulary": self.vocabulary}}

    @classmethod
    def restored(cls, meta: Mapping[str, Any]) -> Texts:
        text = Text(**meta["text"])
        text.validate()
        found = cls(text)
        found.vocabulary = cast(Vocabulary, found.text.vocabulary)
        return found


def texts_of(X: Any, column: str | None) -> list[str]:
    """The texts of X, in any form that `read_texts` takes; `column` applies to tables, not to lists or .txt files."""
    table = is_table(X) or (isinstance(X, (str, os.PathLike)) and Path(X).suffix.lower() != ".txt")
    return read_texts(X, column=column if table else None)


def texts_at_once(device: torch.device, draws: int = 1) -> int:
    """Texts per block that are encoded, scored or generated together, with `draws` draws each.

    On a CPU 32, since 640 rows take hardly less time per row; on a GPU 512, since a step of 512 rows takes hardly more
    time than one of 32. The result is 1 or a power of two from 4 on: with other numbers of rows, the rounding of a row
    in matrix products may depend on its position.
    """
    rows = -(-_AT_ONCE["cpu" if device.type == "cpu" else "cuda"] // draws)
    return 1 if rows == 1 else max(4, 1 << (rows - 1).bit_length())


def _lengths(X: Array) -> Array:
    """Positions up to EOS, EOS included, (n, W) -> (n,)."""
    lengths: Array = torch.cat([ends(rows) for rows in torch.from_numpy(X).split(10_000)]).numpy() + 1
    return lengths


def _rounded(positions: int) -> int:
    """Positions rounded up to a multiple of 8."""
    return -(-positions // _MULTIPLE) * _MULTIPLE


def _steps(most: int) -> tuple[int, ...]:
    """The widths at which texts are encoded and scored: multiples of 8 that grow by at most a half, up to `most`.

    They are few, so that groups are large, and the width of a short text does not depend on `max_length`.

    >>> _steps(72)
    (8, 16, 24, 32, 48, 64, 72)
    """
    steps, width = [], _MULTIPLE
    while width < most:
        steps.append(width)
        width += max(_MULTIPLE, 1 << (width.bit_length() - 2))
    return (*steps, most)
