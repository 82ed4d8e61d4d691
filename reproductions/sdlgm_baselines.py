"""Linear baselines of SDLGM's table II: micro- and macro-F1 on Birds, Emotions and CAL500.

    python -m reproductions.sdlgm_baselines --out results/

The table's logistic, softmax and sparsemax rows are those of the sparsemax paper (Martins and Astudillo, 2016), whose
text leaves parts of the protocol open. This one reproduces its numbers:

- Mulan's files and their own split (CAL500 has none: the first 400 of its 502 songs are for training, our choice);
  rows without a label are dropped; features are standardised by the training rows, nominal ones as numbers;
- strength of the penalty 1, .1, ..., 1e-9; threshold .05, .1, ..., .5 (logistic), 1/L, ..., 10/L (softmax), 1, 1.5,
  ..., 5 (sparsemax); chosen by the mean over five contiguous folds of the training rows, ceil(n/5) rows each and the
  rest in the last, separately for micro- and for macro-F1, then fitted to all training rows;
- L-BFGS, 100 steps at most, memory 10, no penalty on the bias;
- macro-F1 is the harmonic mean of macro-precision and macro-recall (erratum 18), not the mean of the labels' F1.

Everything is done twice, since one choice depends on when L-BFGS stops. "early" stops at scipy's own 1e-5 for the
gradient, as did the prototype whose numbers are the target here (within .1 on Birds and Emotions); "late" at 1e-8. On
Emotions two thresholds of sparsemax lie .02 points of cross-validated micro-F1 apart: the early run picks one, the late
run the other, and with it the published number.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

import sparsevae as sv
from reproductions import jobs
from reproductions.linear import LinearMultiLabel
from sparsevae.metrics import bootstrap_interval, macro_f1, micro_f1

REGULARISATION = [10.0**-k for k in range(10)]
THRESHOLDS = {
    "logistic": [k / 20 for k in range(1, 11)],
    "softmax": [float(k) for k in range(1, 11)],  # LinearMultiLabel divides by L
    "sparsemax": [k / 2 for k in range(2, 11)],
}
FOLDS = 5
TOLERANCES = {"early": 1e-5, "late": 1e-8}
BAR = 0.1  # points from the prototype, on Birds and Emotions

# micro-F1 of the model tuned for it, harmonic macro-F1 of the model tuned for that, in percent
PUBLISHED = {
    ("birds", "logistic"): (45.78, 33.77),
    ("birds", "softmax"): (48.67, 37.06),
    ("birds", "sparsemax"): (49.44, 39.13),
    ("emotions", "logistic"): (66.75, 68.56),
    ("emotions", "softmax"): (67.34, 67.51),
    ("emotions", "sparsemax"): (66.38, 66.07),
    ("cal500", "logistic"): (48.88, 24.49),
    ("cal500", "softmax"): (47.46, 23.51),
    ("cal500", "sparsemax"): (48.47, 26.20),
}
PROTOTYPE = {
    ("birds", "logistic"): (45.72, 33.65),
    ("birds", "softmax"): (48.67, 37.06),
    ("birds", "sparsemax"): (49.44, 39.13),
    ("emotions", "logistic"): (66.75, 68.56),
    ("emotions", "softmax"): (67.34, 67.51),
    ("emotions", "sparsemax"): (66.94, 66.07),
    ("cal500", "logistic"): (47.74, 23.64),
    ("cal500", "softmax"): (47.48, 21.55),
    ("cal500", "sparsemax"): (47.70, 24.43),
}


def harmonic(Y: Any, P: Any) -> float:
    """The macro-F1 of the published numbers."""
    return macro_f1(Y, P, definition="harmonic")


METRICS = {"micro": micro_f1, "macro": harmonic}


def folds(n: int) -> list[np.ndarray[Any, Any]]:
    """Contiguous blocks of rows: 391 rows give 79, 79, 79, 79 and 75."""
    size = math.ceil(n / FOLDS)
    return [np.arange(i * size, min((i + 1) * size, n)) for i in range(FOLDS)]


def predictions(est: LinearMultiLabel, X: np.ndarray[Any, Any]) -> list[Any]:
    """Labels of one fitted model, for every threshold of its loss."""
    return [est.set_params(threshold=t).predict(X) for t in THRESHOLDS[est.loss]]


def baseline(name: str, loss: str, tolerance: float, device: str = "cpu") -> dict[str, Any]:
    """Tune for either metric by cross-validation, fit to all training rows, score the test rows; CPU alone."""
    data = sv.data.load(name, drop_unlabelled=True)
    scaler = StandardScaler().fit(data.X)
    X, X_test, Y, Y_test = scaler.transform(data.X), scaler.transform(data.X_test), data.y, data.y_test
    assert Y is not None
    common: dict[str, Any] = {"loss": loss, "tolerance": tolerance}
    scores = {metric: np.zeros((len(REGULARISATION), len(THRESHOLDS[loss]))) for metric in METRICS}
    for i, strength in enumerate(REGULARISATION):
        for held_out in folds(len(X)):
            est = LinearMultiLabel(regularisation=strength, **common)
            est.fit(np.delete(X, held_out, axis=0), np.delete(Y, held_out, axis=0))
            for j, P in enumerate(predictions(est, X[held_out])):
                for metric, score in METRICS.items():
                    scores[metric][i, j] += 100 * score(Y[held_out], P) / FOLDS
    found: dict[str, Any] = {"rows": [len(X), len(X_test)], "features": X.shape[1], "labels": Y.shape[1]}
    for metric, score in METRICS.items():
        i, j = np.unravel_index(scores[metric].argmax(), scores[metric].shape)
        best, second = np.sort(scores[metric], axis=None)[[-1, -2]]
        chosen = {"regularisation": REGULARISATION[i], "threshold": THRESHOLDS[loss][j]}
        P = LinearMultiLabel(**chosen, **common).fit(X, Y).predict(X_test)
        interval = bootstrap_interval(score, Y_test, P)
        found[metric] = {
            **chosen,
            "validation": best,
            "ahead_by": best - second,  # of the second-best setting
            "test": 100 * interval.value,
            "interval_95": [100 * interval.low, 100 * interval.high],
            "all": {
                "micro": 100 * micro_f1(Y_test, P),
                "macro_harmonic": 100 * harmonic(Y_test, P),
                "macro_mean": 100 * macro_f1(Y_test, P),
            },
        }
    return found


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per number of table II: ours by either stopping rule, the published one, the prototype's."""
    ours = {(r["name"], r["loss"], r["tolerance"]): r for r in results}
    return [
        {
            "data": name,
            "loss": loss,
            "metric": metric,
            **{kind: ours[name, loss, t][metric]["test"] for kind, t in TOLERANCES.items()},
            "published": PUBLISHED[name, loss][place],
            "prototype": PROTOTYPE[name, loss][place],
        }
        for name, loss in PUBLISHED
        for place, metric in enumerate(METRICS)
    ]


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest distance from the prototype, and how many numbers are the published ones to two decimals."""
    bound = [r for r in rows if r["data"] != "cal500"]
    worst = max(abs(r["early"] - r["prototype"]) for r in bound)
    same = {kind: sum(abs(r[kind] - r["published"]) < 0.005 for r in bound) for kind in TOLERANCES}
    return {
        "worst_distance_from_prototype": {"bar": BAR, "measured": worst, "met": worst <= BAR},
        "published_to_two_decimals": {**same, "of": len(bound)},
    }


def main() -> None:
    args = jobs.options(__doc__).parse_args()
    todo = [{"name": name, "loss": loss, "tolerance": t} for name, loss in PUBLISHED for t in TOLERANCES.values()]
    results = jobs.run(baseline, todo, args.state or args.out / "state", device="cpu")
    rows = table(results)
    report = {"table": rows, "verdict": verdict(rows), "results": results}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "sdlgm_baselines.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'':28}{'early':>9}{'late':>9}{'published':>11}{'prototype':>11}")
    for r in rows:
        numbers = f"{r['early']:9.2f}{r['late']:9.2f}{r['published']:11.2f}{r['prototype']:11.2f}"
        print(f"{r['data']:10}{r['loss']:10}{r['metric']:8}{numbers}")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
