"""SDLGM's counting experiment: how often does each digit occur on a canvas of five columns?

    python -m reproductions.sdlgm_counting --out results/

5,000 canvases for training, made of MNIST's training digits, and 1,000 for testing, made of its test digits, 28 x 140;
a column is blank with probability 1/2 or 1/11. The paper states neither that rate nor the size, the loss or the
network, and prints a mean squared error of .05, beside .16 for a random forest. The squared error is averaged over
canvases and the ten digits, so it depends on the rate of blanks: `constant` is the error of the training means.

- `columns, conv` and `columns, dense`: SDLGMCounter with one net for all five strips. That canvases are made of five
  strips is given to the model, not learned; the paper does not state whether its network knew;
- `dense`: SDLGMCounter with one net for the whole canvas, which stops early. Like the forest it does not know the
  strips;
- `forest`: 100 trees on the pixels, scikit-learn's defaults.

Also reported: the share of right counts, digit by digit, and of canvases with all ten right. The claim: MSE <= .05 at
both rates, with the forest in the same run; it is judged for the best counter and for the plain net. `--train` and
`--steps` make it smaller, to try it out.

The strips' true distribution is Poisson-multinomial, the model's a multinomial of the same means. The exact likelihood,
a sum over all ways to put the digits into the columns, brought little in one trial on canvases of 8 x 8 digits, of
which no file is kept.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from joblib import parallel_config
from sklearn.ensemble import RandomForestRegressor

import sparsevae as sv
from reproductions import jobs

RATES = {"1/2": 1 / 2, "1/11": 1 / 11}
SEEDS, BAR = range(3), 0.05
PUBLISHED = {"SDLGM": 0.05, "forest": 0.16}
MODELS: dict[str, dict[str, Any]] = {
    "columns, conv": {"columns": 5, "network": "conv", "hidden": (128,)},
    "columns, dense": {"columns": 5, "hidden": (400,)},
    "dense": {"hidden": (400,)},
}
STOPS = {"dense": {"validation_fraction": 0.1, "patience": 5}}  # the others do not learn by heart


def count(method: str, rate: str, seed: int, train: int, steps: int, device: str) -> dict[str, Any]:
    """One method on canvases of one rate of blanks; data and training have the same seed."""
    data = sv.data.load("digit-canvas", n=train, blank=RATES[rate], seed=seed)
    Y, Y_test = data.truth["counts"], data.truth_test["counts"]
    if method == "forest":
        forest = RandomForestRegressor(100, random_state=seed).fit(data.X, Y)
        predicted = forest.predict(data.X_test)
        right = np.rint(predicted) == Y_test
        found = {
            "mse": float(np.mean((predicted - Y_test) ** 2)),
            "constant_mse": float(np.mean((Y.mean(0) - Y_test) ** 2)),
            "counts_right": float(right.mean()),
            "rows_right": float(right.all(1).mean()),
        }
        return found | {"by_digit": right.mean(0).tolist()}
    training = sv.Training(steps=steps, seed=seed, device=device, verbose=0, **STOPS.get(method, {}))
    est: Any = sv.SDLGMCounter(**MODELS[method], image_shape=data.image_shape, training=training)
    est.fit(data.X, Y)
    by_digit = (est.predict_counts(data.X_test) == Y_test).mean(0)
    return {**est.evaluate(data.X_test, Y_test), "by_digit": by_digit.tolist(), "steps_taken": est.n_steps_}


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and deviations over seeds, one line for a method and a rate."""
    lines = []
    for rate in RATES:
        for method in (*MODELS, "forest"):
            runs = [r for r in results if (r["method"], r["rate"]) == (method, rate)]
            line: dict[str, Any] = {"rate": rate, "method": method, "runs": len(runs)}
            for key in ("mse", "constant_mse", "counts_right", "rows_right"):
                values = [r[key] for r in runs]
                line[key] = float(np.mean(values))
                line[f"{key}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            lines.append(line)
    return lines


def verdict(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The errors of the best counter, which knows the strips, and of the plain net, beside the forest's."""
    found = {}
    for rate in RATES:
        errors = {x["method"]: x["mse"] for x in lines if x["rate"] == rate}
        forest = errors.pop("forest")
        name = min(errors, key=lambda k: errors[k])
        found[rate] = {"bar": BAR, "measured": errors[name], "by": name, "forest": forest, "met": errors[name] <= BAR}
        found[rate]["one net for the whole canvas"] = {"measured": errors["dense"], "met": errors["dense"] <= BAR}
    return found


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1, help="for the forest, which does not depend on them")
    args = parser.parse_args()
    size = {"train": args.train, "steps": args.steps}
    todo = [
        {"method": method, "rate": rate, "seed": seed, **size}
        for rate in RATES
        for method in (*MODELS, "forest")
        for seed in SEEDS
    ]
    with parallel_config(backend="threading", n_jobs=args.threads):
        results = jobs.run(count, todo, args.state or args.out / "state", device=args.device)
    lines = summary(results)
    report = {"published": PUBLISHED, "table": lines, "verdict": verdict(lines), "results": results}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "sdlgm_counting.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'blank':8}{'method':16}{'mse':>8}{'±':>8}{'constant':>10}{'counts':>8}{'rows':>8}")
    for x in lines:
        shares = f"{x['constant_mse']:10.3f}{x['counts_right']:8.3f}{x['rows_right']:8.3f}"
        print(f"{x['rate']:8}{x['method']:16}{x['mse']:8.4f}{x['mse_std']:8.4f}{shares}")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
