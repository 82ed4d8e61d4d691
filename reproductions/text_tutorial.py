"""The figures of docs/text.md: models with their defaults on 5,000 sentences and 2,500 words, on a CPU.

    python -m reproductions.text_tutorial --out results/

5,000 of DBpedia's sentences, drawn at random, train `HSVAE()`, `VSC()` and `BetaVAE()` as they are, but for a
vocabulary of 2,500 words; they are measured on 1,000 sentences of the paper's test file. Nothing is tuned here. The
probe is a logistic regression on the codes of the sentences that trained the model; chance is 1 / 14. Seconds are those
of `fit`, vocabulary included, by the clock and by processor time.
"""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

import numpy as np
import torch

import sparsevae as sv
from reproductions import jobs
from sparsevae import metrics

MODELS = ("HSVAE", "VSC", "BetaVAE")
RECONSTRUCTED = 6  # test sentences


def train(model: str, rows: int, seed: int, size: int | None = 2500, device: str = "auto") -> dict[str, Any]:
    """One model, and what its codes of test sentences are good for."""
    data, draw = sv.data.load("dbpedia"), np.random.default_rng(0)
    assert data.X_test is not None
    assert data.y is not None
    assert data.y_test is not None
    some, test = draw.permutation(len(data.X))[:rows], draw.permutation(len(data.X_test))[:1000]
    X, X_test = data.X[some], data.X_test[test]
    est = getattr(sv, model)(text=sv.Text(size=size), training=sv.Training(seed=seed, device=device, verbose=0))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        began = time.perf_counter(), time.process_time()
        est.fit(X)
        took = time.perf_counter() - began[0], time.process_time() - began[1]
    report = est.evaluate(X_test)
    kept = ("score", "nll", "kl", "perplexity", "perplexity_reconstruction", "words", "unknown")
    probe = metrics.linear_probe(est.transform(X), data.y[some], est.transform(X_test), data.y_test[test])
    texts = [str(text) for text in X_test[:RECONSTRUCTED]]
    return {
        "fit_seconds": took[0],
        "fit_cpu_seconds": took[1],
        "threads": torch.get_num_threads(),
        "steps": est.n_steps_,
        "vocabulary": len(est.input_.vocabulary.words),
        "warnings": [w.category.__name__ for w in warned],
        **{k: report[k] for k in (*kept, "nonzeros_mode", "active_units", "n_components")},
        "accuracy": probe,
        "told_again": dict(zip(texts, est.reconstruct(texts), strict=True)),
        "samples": est.sample(3, seed=1, noise=True),
    }


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=2500, help="words; 0: the default of sv.Text")
    args = parser.parse_args()
    todo = [{"model": model, "rows": args.rows, "seed": args.seed, "size": args.size or None} for model in args.models]
    found = jobs.run(train, todo, args.state or args.out / "state", device=args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "text_tutorial.json").write_text(json.dumps(found, indent=1) + "\n")
    for row in found:
        shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
        print(json.dumps({k: v for k, v in shown.items() if k not in ("told_again", "samples")}))


if __name__ == "__main__":
    main()
