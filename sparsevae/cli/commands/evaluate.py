"""`sparsevae evaluate`: the numbers to judge a model by, with what each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsevae.cli.options import Data, DataOptions, Folder, Json, Part, Split, reader
from sparsevae.cli.printing import print_json, print_table
from sparsevae.cli.sources import as_labelled, dataset, labels, load_model, part_of, rows
from sparsevae.messages import show

if TYPE_CHECKING:
    from sparsevae.data import Dataset
    from sparsevae.estimator.supervised import FromLabels


def evaluate(
    folder: Folder,
    data: Data,
    caps: Annotated[
        Any,
        typer.Option(
            metavar="K,...",
            parser=reader(tuple[int, ...]),
            help="Also the error with at most K non-zeros per row.",
        ),
    ] = None,
    importance: Annotated[
        int | None,
        typer.Option(metavar="K", parser=reader(int), help="Also the tighter bound of K samples an item (slow)."),
    ] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Score, sparsity, reconstruction error, cost of caps."""
    from sparsevae.estimator.evaluation import standard_error
    from sparsevae.latent.pareto import heavy_tails

    limits: tuple[int, ...] = caps or ()
    est = load_model(folder)
    if labelled := as_labelled(est):
        if limits or importance is not None:
            raise ValueError(f"--caps and --importance judge codes of X; {type(est).__name__} is judged by its labels.")
        return _evaluate_labels(labelled, data, *dataset(data, split, data_option), as_json)
    X, part = rows(est, data, split, data_option)
    result: dict[str, Any] = {"model": type(est).__name__, "data": data, "split": part}
    if importance is not None:  # first, since it may be refused
        b = est.importance_bound(X, n_samples=importance)
        result["importance"] = {
            "samples": importance,
            "bound": float(b.bound.mean()),
            "standard_error": standard_error(b.bound),
            "effective_samples": float(b.effective_samples.mean()),
            "heavy_tails": heavy_tails(b.pareto_k, b.effective_samples, importance),
        }
    result |= est.evaluate(X, caps=limits)
    if as_json:
        return print_json(result)
    show(f"{result['model']} on {data} ({part}), {result['rows']:,} rows\n")
    print_table(_report(result))
    if limits:
        show()
        loss = "mse" if "mse" in result else "nll_code"
        free = result[loss]
        costs = {cap: (error, error / free - 1 if free else 0.0) for cap, error in result["caps"].items()}
        lines = [(str(cap), f"{error:.6g}", f"{cost:+.1%}") for cap, (error, cost) in costs.items()]
        print_table([*lines, ("no cap", f"{free:.6g}", "")], "at most", loss, "cost", right=f"{loss} cost")


def _evaluate_labels(est: FromLabels, data: str, found: Dataset, part: Part, as_json: bool) -> None:
    y, _ = labels(est, data, found, part)
    result = est.evaluate(part_of(found, part), y)
    name = type(est).__name__
    if as_json:
        return print_json({"model": name, "data": data, "split": part.value, **result})
    show(f"{name} on {data} ({part.value}), {result['rows']:,} rows\n")
    print_table([(k.replace("_", " "), f"{v:.4g}") for k, v in result.items() if k != "rows"])


_OWN_UNITS = "in the units of the data"
_MEANINGS = {
    "bound": "a lower bound on log p(x)",
    "cross-entropy": "a cross-entropy of grey values, no bound",
    "normalised-row density": "a density of normalised rows, no bound",
    "joint density at the code": "log p(x, z) at the code, no bound: the codes have no noise",
}


def _report(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Evaluated numbers as lines of (name, value, what it is)."""
    from sparsevae.estimator.evaluation import with_error
    from sparsevae.latent.pareto import remark

    meaning = _MEANINGS.get(r["score_meaning"], r["score_meaning"])
    lines = [("score", with_error(r["score"], r["score_standard_error"]), f"nats; {meaning}")]
    if b := r.get("importance"):
        note = f"nats; {b['samples']} samples, {b['effective_samples']:.3g} effective{remark(b['heavy_tails'])}"
        lines.append(("importance bound", with_error(b["bound"], b["standard_error"]), note))
    elif "importance_bound" in r:
        note = f"nats; 1,000 hard samples, on {r['importance_rows']:,} rows{remark(r['heavy_tails'])}"
        lines.append(("importance bound", f"{r['importance_bound']:.2f}", note))
    if "relaxed_objective" in r:
        note = "nats; with the draws of training: no bound"
        lines.append(("relaxed objective", f"{r['relaxed_objective']:.2f}", note))
    lines += [(k.replace("_", " "), f"{r[k]:g}", "in scaled units") for k in ("variance_floor", "variance") if k in r]
    drawn = f"{r['nonzeros_drawn']:.4g} when drawn, {r['nonzeros_expected']:.4g} expected"
    return [
        *lines,
        ("KL", f"{r['kl']:.2f}", "nats"),
        ("active units", str(r["active_units"]), f"of {r['n_components']}"),
        ("non-zeros per row", f"{r['nonzeros_mode']:.4g}", drawn),
        *_hoyer(r),
        *_reconstruction(r),
    ]


def _hoyer(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """How sparse codes are by Hoyer's measure, where that is told."""
    names = {
        "draws": "one draw a row",
        "slab": "means of units that are on",
        "gated": "P(on) times them",
        "mean": "means of codes",
    }
    return [
        (f"Hoyer of {kind}", f"{h['average']:.3f}", f"{names[kind]}; {h['aggregate']:.3f} of their mean size")
        for kind, h in r.get("hoyer", {}).items()
    ]


def _reconstruction(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is left of rows, or of texts, after their code."""
    if "mse" in r:
        normalised = r["score_meaning"] == "normalised-row density"
        return [("mse", f"{r['mse']:.6g}", f"per value {'of normalised rows' if normalised else _OWN_UNITS}")]
    return [
        ("words per text", f"{r['words']:.4g}", f"its end counted; {r['unknown']:.1%} unknown"),
        ("nll", f"{r['nll']:.2f}", f"nats per text given a draw of its code, {r['nll_code']:.2f} given the code"),
        (
            "perplexity",
            f"{r['perplexity']:.4g}",
            f"per word, by the score; {r['perplexity_reconstruction']:.4g} by nll",
        ),
    ]
