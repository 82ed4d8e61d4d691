"""HSVAE's table 1 and figures 2 and 3 on DBpedia: reconstruction, accuracy and sparsity of sentence codes.

    python -m reproductions.hsvae_dbpedia --out results/

Embedding 256, GRUs of 512, 16 and 32 units, batch 512, constant Adam rate 8e-4, 4,100 steps (15 epochs of the paper's
140,000 sentences), three seeds. The paper's train.txt is not in its repository; without it the 38,500 texts of our pool
stand in, cut after 60 words, which a third of them exceed. 4,100 steps are 55 epochs of those, so models
overfit: every number is given at the epoch with the best R on the paper's validation file and at the end. With `--train
path/to/train.txt` the same command runs on the paper's own file. Words, validation and test sentences
are the paper's; the report counts test sentences that are in the training texts word for word.

- HSVAE (alpha, beta): spike .05, weights .01 of both KLs, as published.
- VAE C: |KL - C|, weight 1 (the paper names none).
- MAT (psi, lambda): weights of KL and MMD, prior with 80 % off. The paper's three pairs are not stated; psi is HSVAE's.
  (.1, 10) and (1, 100), tried first, name no more classes than chance; they are run where `--models` names them.
- SC: the same encoder, a linear code, a linear softmax, trained on the labels.

R is -log p(x|z) per sentence, EOS counted, in the mean over draws: two of test sentences, one of validation sentences.
Accuracy is that of a multinomial logistic regression on the mean of five draws, fitted on training texts; since models
overfit these, there is also one fitted on validation sentences. Hoyer's sparsity is of draws (appendix D.2),
of the mean of five, as in the authors' code (erratum 26), and of means, with gates of slab and gated ones.
Agg.Hoyer is `printed` of the signed mean, as in the paper, and `aggregate` of absolute values. An epoch is 274 steps, a
fifteenth of the run, measured on every fifth validation sentence. Verdicts are at most "in trend": training
texts differ.
"""

from __future__ import annotations

import copy
import functools
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sparsevae as sv
from reproductions import jobs, sentences
from sparsevae import metrics
from sparsevae.data.sets import dbpedia

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"HSVAE {a},{b}": ("HSVAE", {"alpha": a, "beta": b, **sentences.GATES})
        for a, b in ((30, 10), (30, 30), (10, 30))
    },
    **{f"VAE C={c}": ("CapacityVAE", {"capacity": float(c), "gamma": 1.0}) for c in (0, 5, 10, 15)},
    **{
        f"MAT {p},{m}": ("MAT", {"kl_weight": p, "mmd_weight": m})
        for p, m in ((0.01, 1.0), (0.01, 10.0), (0.01, 100.0), (0.1, 10.0), (1.0, 100.0))
    },
    "SC": ("CodeClassifier", {}),
}
EXTRA = ("MAT 0.1,10.0", "MAT 1.0,100.0")  # not in the table unless asked for
ORDER = [name for name in MODELS if name.startswith("HSVAE")]  # Av.Hoyer falls in it
PUBLISHED = {  # by units: R and accuracy
    16: {
        "VAE C=0": (115.7, 0.07),
        "VAE C=5": (110.0, 0.50),
        "VAE C=10": (106.7, 0.58),
        "VAE C=15": (104.0, 0.66),
        "HSVAE 30,10": (108.3, 0.59),
        "HSVAE 30,30": (107.0, 0.63),
        "HSVAE 10,30": (98.3, 0.81),
        "SC": (None, 0.98),
    },
    32: {
        "VAE C=0": (115.7, 0.07),
        "VAE C=5": (110.7, 0.44),
        "VAE C=10": (107.7, 0.62),
        "VAE C=15": (105.7, 0.66),
        "HSVAE 30,10": (107.0, 0.61),
        "HSVAE 30,30": (104.7, 0.72),
        "HSVAE 10,30": (96.0, 0.85),
        "SC": (None, 0.97),
    },
}
EPOCHS = 15
DRAWS = 5
CHANCE = 0.1  # accuracy below which a code has no information about 14 classes
WIDTH = 60  # words

Parts = Mapping[str, tuple[Any, Any]]


@functools.cache
def _texts(train_file: str | None) -> Parts:
    """Texts and classes of the three parts; the paper's vocabulary knows where words end."""
    test, valid = (dbpedia.make(held_out=part, train=train_file) for part in ("test", "valid"))
    return {"train": (test.X, test.y), "valid": (valid.X_test, valid.y_test), "test": (test.X_test, test.y_test)}


def overlap(texts: Parts) -> int:
    """How many test sentences, as the model reads them, are also training texts."""
    seen, asked = (
        [tuple(row) for row in dbpedia.vocabulary().encode(texts[part][0], max_length=WIDTH).padded(WIDTH + 1).tolist()]
        for part in ("train", "test")
    )
    known = set(seen)
    return sum(row in known for row in asked)


def sparsity(hoyer: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """{code: {form: value}} in one line."""
    return {f"{form}_{code}": value for code, forms in hoyer.items() for form, value in forms.items()}


def train(
    name: str, units: int, seed: int, steps: int, train_file: str | None = None, device: str = "auto"
) -> dict[str, Any]:
    """One model: what it is like after every epoch on validation texts; on test texts at the best and at the end."""
    texts, (model, own) = _texts(train_file), MODELS[name]
    if texts["train"][1] is None:
        raise ValueError("the probe needs classes: put train_class_label.txt beside train.txt, one class a line.")
    training = sentences.training(steps, 512, seed, device, report_every=math.ceil(steps / EPOCHS))
    text = sv.Text(vocabulary=dbpedia.vocabulary(), max_length=WIDTH, embedding=sentences.EMBEDDING)
    est = getattr(sv, model)(units, hidden=(sentences.STATES,), text=text, training=training, **own)
    learn = classify if model == "CodeClassifier" else code
    return {"train_rows": len(texts["train"][0]), **learn(est, texts)}


def code(est: Any, texts: Parts) -> dict[str, Any]:
    """A coder: R and sparsity by epoch; the gates of classes, where it has gates, at the best epoch."""
    epochs: list[dict[str, Any]] = []
    best: dict[str, Any] = {"R": math.inf}

    def watch(row: Mapping[str, Any]) -> None:
        report = est.evaluate(texts["valid"][0][::5], n_samples=1)
        terms = {k: v for k, v in row.items() if k.startswith(("nll", "kl"))}
        epochs.append({"step": row["step"], "training": terms, "R": report["nll"], **sparsity(report["hoyer"])})
        if report["nll"] < best["R"]:
            best.update(R=report["nll"], epoch=len(epochs), weights=copy.deepcopy(est.model_.state_dict()))

    est.fit(texts["train"][0], watch=watch)
    last, _ = measured(est, texts)
    est.model_.load_state_dict(best["weights"])
    at_best, gates = measured(est, texts)
    return {"epochs": epochs, "last": last, "best_epoch": best["epoch"], "best": at_best, "gates": gates}


def measured(est: Any, texts: Parts) -> tuple[dict[str, float], Any]:
    """Numbers of test texts; and P(off) of every class and unit, where there are gates."""
    X, y = texts["test"]
    report, found = est.evaluate(X, n_samples=2), sv.classes(est, *texts["train"], X_test=X, y_test=y, draws=DRAWS)
    numbers = {k: report[k] for k in ("nll", "kl", "score", "perplexity", "active_units")}
    numbers |= {"accuracy": found.accuracy, "accuracy_one_draw": found.accuracy_one_draw}
    means = est.draw_codes(X, DRAWS).mean(0)
    if (checked := texts["valid"])[1] is not None:
        numbers["accuracy_validation"] = metrics.linear_probe(
            est.draw_codes(checked[0], DRAWS).mean(0), checked[1], means, y
        )
    numbers |= sparsity({**report["hoyer"], "five": metrics.code_hoyer(means)._asdict()})
    if found.separation is None:
        return numbers, None
    return numbers | found.separation._asdict(), found.gates.tolist()


def classify(est: Any, texts: Parts) -> dict[str, Any]:
    """The supervised twin: accuracy on validation texts by epoch, and on test texts at the best and at the end.

    Where validation texts have no classes, as in the authors' folder, the end counts for the best.
    """
    epochs: list[dict[str, Any]] = []
    best: dict[str, Any] = {"accuracy": -math.inf}

    def watch(row: Mapping[str, Any]) -> None:
        accuracy = est.score(*texts["valid"]) if texts["valid"][1] is not None else None
        epochs.append({"step": row["step"], "accuracy": accuracy})
        if accuracy is None or accuracy > best["accuracy"]:
            best.update(accuracy=accuracy, epoch=len(epochs), weights=copy.deepcopy(est.model_.state_dict()))

    def test() -> dict[str, float]:
        hoyer = metrics.code_hoyer(est.transform(texts["test"][0]))._asdict()
        return {"accuracy": est.score(*texts["test"]), **sparsity({"mean": hoyer})}

    est.fit(*texts["train"], watch=watch)
    last = test()
    est.model_.load_state_dict(best["weights"])
    return {"epochs": epochs, "last": last, "best_epoch": best["epoch"], "best": test()}


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means and deviations over seeds, a row for each model and size."""
    rows = []
    for name, units in dict.fromkeys((r["name"], r["units"]) for r in results):
        runs = [r for r in results if (r["name"], r["units"]) == (name, units)]
        row: dict[str, Any] = {"name": name, "units": units, "seeds": len(runs)}
        row["best_epoch"] = [r["best_epoch"] for r in runs]
        for when in ("best", "last"):
            for key in runs[0][when]:
                values = [r[when][key] for r in runs]
                deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
                row[f"{when}_{key}"] = [float(np.mean(values)), deviation]
        if name != "SC":
            steady = [[e["average_draws"] for e in r["epochs"][4:]] for r in runs]  # epochs 5 to 15
            row["hoyer_std_over_epochs"] = float(np.mean([np.std(s) for s in steady]))
        if name in PUBLISHED.get(units, ()):
            row["published"] = dict(zip(("R", "accuracy"), PUBLISHED[units][name], strict=True))
        rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table to read: means over seeds, at the best epoch and behind the stroke at the last."""

    def both(row: dict[str, Any], key: str, form: str) -> str:
        return " / ".join(format(row[f"{when}_{key}"][0], form) for when in ("best", "last"))

    head = ["model", "seeds", "R", "published", "accuracy", "published"]
    head += ["Av.Hoyer of draws", "its deviation, epochs 5 to 15", "Agg.Hoyer"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        paper, line = row.get("published", {}), [f"{row['name']}, {row['units']} units", str(row["seeds"])]
        line += [both(row, "nll", ".1f") if "best_nll" in row else "", f"{paper['R']:.1f}" if paper.get("R") else ""]
        line += [both(row, "accuracy", ".2f"), f"{paper['accuracy']:.2f}" if paper else ""]
        if "hoyer_std_over_epochs" in row:
            line += [both(row, "average_draws", ".2f"), f"{row['hoyer_std_over_epochs']:.3f}"]
            line += [both(row, "printed_draws", ".2f")]
        lines.append(line + [""] * (len(head) - len(line)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def point(row: dict[str, Any], when: str) -> tuple[float, float]:
    """R and accuracy of a row, at the best or the last epoch, or published."""
    if when == "published":
        return row["published"]["R"], row["published"]["accuracy"]
    return row[f"{when}_nll"][0], row[f"{when}_accuracy"][0]


def at_equal(rows: list[dict[str, Any]], others: list[dict[str, Any]], when: str) -> dict[str, Any]:
    """Accuracy of each row, and that of the others at the row's R, on lines between them; None outside their range."""
    found = {}
    for row in rows if len(others) > 1 else ():
        R, accuracy = point(row, when)
        other = float(metrics.at_equal(*zip(*(point(r, when) for r in others), strict=True), R))
        found[row["name"]] = [accuracy, None if math.isnan(other) else other]
    return found


def equal(rows: list[dict[str, Any]], units: int, when: str) -> dict[str, dict[str, Any]]:
    """`at_equal` of HSVAE's rows of so many units among VAE's, and of VAE's among HSVAE's."""
    own = [r for r in rows if r["units"] == units and (when != "published" or "published" in r)]
    sparse, dense = ([r for r in own if r["name"].startswith(kind)] for kind in ("HSVAE", "VAE"))
    return {
        "accuracy of HSVAE, and of VAE at equal R": at_equal(sparse, dense, when),
        "accuracy of VAE, and of HSVAE at equal R": at_equal(dense, sparse, when),
    }


def verdict(rows: list[dict[str, Any]], results: list[dict[str, Any]], when: str) -> dict[str, Any]:
    """What the paper claims, as far as these runs speak to it, at the best epoch or the last.

    Correlations are over runs, not over their means.
    """

    def correlation(runs: list[dict[str, Any]]) -> float | None:
        coded = [r[when] for r in runs if r["name"] != "SC"]
        R, accuracies = ([r[k] for r in coded] for k in ("nll", "accuracy"))
        return float(np.corrcoef(R, accuracies)[0, 1]) if len(R) > 2 else None

    found: dict[str, Any] = {"correlation of accuracy with R, all runs": correlation(results)}
    for units in dict.fromkeys(r["units"] for r in rows if r["name"] != "SC"):
        own = {r["name"]: r for r in rows if r["units"] == units}
        hoyer = {n: r[f"{when}_average_draws"][0] for n, r in own.items() if n.startswith("HSVAE")}
        falls = list(hoyer) == ORDER and list(hoyer.values()) == sorted(hoyer.values(), reverse=True)
        silent = own["VAE C=0"][f"{when}_accuracy"][0] if "VAE C=0" in own else None
        related = correlation([r for r in results if r["units"] == units])
        found[str(units)] = {
            "in trend": falls and silent is not None and silent < CHANCE and related is not None and related < 0,
            "Av.Hoyer falls from (30,10) to (10,30)": falls,
            "Av.Hoyer": hoyer,
            "accuracy of C = 0 (1/14 by chance)": silent,
            "correlation of accuracy with R": related,
            "deviation of Av.Hoyer over epochs 5 to 15": {
                n: r["hoyer_std_over_epochs"] for n, r in own.items() if n.startswith(("HSVAE", "MAT"))
            },
            **equal(rows, units, when),
        }
    return found


def figure(results: list[dict[str, Any]], path: Path) -> None:
    """Av.Hoyer by epoch (figure 2), and accuracy against R for every run at its best and its last epoch.

    The former of models of one size: that with most runs, of two the larger.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = Counter(r["units"] for r in results if r["name"].startswith(("MAT", "HSVAE")))
    units = max(sizes, key=lambda n: (sizes[n], n), default=0)  # where most is to be seen
    fig, axes = plt.subplots(1, 4, figsize=(16, 4), layout="constrained")
    for ax, kind in zip(axes, ("MAT", "HSVAE"), strict=False):
        shown = [r for r in results if r["name"].startswith(kind) and r["units"] == units]
        for name in dict.fromkeys(r["name"] for r in shown):
            runs = [r for r in shown if r["name"] == name]
            lines = np.array([[e["average_draws"] for e in r["epochs"]] for r in runs])
            epoch = np.arange(1, lines.shape[1] + 1)
            ax.plot(epoch, lines.mean(0), label=name)
            ax.fill_between(epoch, lines.mean(0) - lines.std(0), lines.mean(0) + lines.std(0), alpha=0.3)
        ax.set(xlabel="epoch", ylabel="Av.Hoyer of draws, validation", ylim=(0, 1), title=f"{kind}, {units} units")
        if shown:
            ax.legend(frameon=False, fontsize=8)
    for ax, when in zip(axes[2:], ("best", "last"), strict=True):
        for kind, mark in (("HSVAE", "o"), ("VAE", "s"), ("MAT", "^")):
            runs = [r[when] for r in results if r["name"].startswith(kind)]
            R, accuracies = ([r[k] for r in runs] for k in ("nll", "accuracy"))
            ax.scatter(R, accuracies, marker=mark, s=24, label=kind, alpha=0.8)
        ax.set(xlabel="R, nats a sentence", ylabel="accuracy", title=f"every run, {when} epoch")
        ax.legend(frameon=False, fontsize=8)
    fig.savefig(path, dpi=140)
    plt.close(fig)


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[m for m in MODELS if m not in EXTRA])
    parser.add_argument("--units", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=4100)
    parser.add_argument("--train", default=None, help="the paper's train.txt, if you have it")
    parser.add_argument(
        "--known", type=Path, default=None, help="an earlier hsvae_dbpedia.json: continue from its runs"
    )
    parser.add_argument("--report", action="store_true", help="train nothing, report the finished runs")
    args = parser.parse_args()
    state = args.state or args.out / "state"
    if args.known is not None:
        jobs.recall(args.known, state)
    own = {} if args.train is None else {"train_file": args.train}
    todo = [
        {"name": name, "units": units, "seed": seed, "steps": args.steps, **own}
        for seed in args.seeds
        for units in args.units
        for name in args.models
    ]
    todo = jobs.finished(train, todo, state) if args.report else todo
    if not todo:
        parser.error(f"none of the runs asked for is finished in {state}; leave out --report to train them.")
    results = jobs.run(train, todo, state, device=args.device)
    rows = table(results)
    report: dict[str, Any] = {"steps": args.steps, "test_rows_in_training": overlap(_texts(args.train)), "table": rows}
    report |= {f"verdict, {when}": verdict(rows, results, when) for when in ("best", "last")}
    report["published, at equal R"] = {str(n): equal(rows, n, "published") for n in PUBLISHED}
    report["runs"] = results
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "hsvae_dbpedia.json").write_text(json.dumps(report, indent=1) + "\n")
    figure(results, args.out / "hsvae_dbpedia.png")
    print(markdown(rows))
    print(json.dumps({k: v for k, v in report.items() if k.startswith("verdict")}, indent=1))


if __name__ == "__main__":
    main()
