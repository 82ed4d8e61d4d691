"""The table of scores: every number that `evaluate` returns, with its label and its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sparsevae.estimator.evaluation import with_error
from sparsevae.latent.pareto import remark


class Number(NamedTuple):
    """A printed number; `key` is its key in the result of `evaluate`."""

    key: str
    label: str
    value: str
    note: str


_MEANINGS = {
    "bound": "a lower bound on log p(x): hard draws, unit weights",
    "cross-entropy": "a cross-entropy of grey values, not a bound on log p(x)",
    "normalised-row density": "a density of the normalised row, not a bound on log p(x)",
    "joint density at the code": "log p(x, z) at the code of an autoencoder without noise, not a bound on log p(x)",
}
_IMPORTANCE = "nats per {item}: {samples:,} hard samples, {effective_samples:.3g} effective{remark}"
_IMPORTANCE_OF_SOME = "nats per {item}: 1,000 hard samples, on {importance_rows:,} {item}s{remark_of_some}"
_COUNTS = (
    "of {n_components}, in the code; {nonzeros_drawn:.2f} in a draw, {nonzeros_expected:.2f} expected (sum of P(on))"
)
_NUMBERS = {  # by key, in the order in which they are printed: label, format of the value, note
    "rows": ("{item}s", ",", "evaluated"),
    "score": ("score", "", "nats per {item}: {meaning}"),
    "importance": ("importance bound", "", _IMPORTANCE),
    "importance_bound": ("importance bound", ".2f", _IMPORTANCE_OF_SOME),
    "relaxed_objective": ("relaxed objective", ".2f", "nats per {item}: with the draws of training, not a bound"),
    "kl": ("KL", ".2f", "nats per {item}: of q(z|x) to the prior, included in the score"),
    "variance_floor": ("variance floor", "g", "in scaled units; the score depends on it"),
    "variance": ("variance", "g", "of p(x|z), in scaled units; the score depends on it"),
    "nonzeros_mode": ("non-zeros per {item}", ".2f", _COUNTS),
    "used": ("used units", "", "of {n_components}: on in .5 % (or a quarter of the mean share) to 90 % of the {item}s"),
    "always_on": ("always on", "", "of {n_components}: on in more than 90 % of the {item}s"),
    "dead": ("dead units", "", "of {n_components}: on in fewer {item}s than a used unit"),
    "empty": ("empty codes", ".4g", "share of {item}s whose code has no unit on"),
    "usage_entropy": (
        "usage entropy",
        ".3f",
        "of the shares of units in all non-zeros; 1: all units are on equally often",
    ),
    "active_units": ("active units", "", "of {n_components}: their mean varies over {item}s by more than 0.01"),
    "hoyer_draws": (
        "Hoyer of draws",
        ".3f",
        "Av.Hoyer, 0 (dense) to 1 (one unit), of one draw per {item}; Agg.Hoyer {size_draws:.3f}",
    ),
    "hoyer_slab": ("Hoyer of slab", ".3f", "the same of means given on; Agg.Hoyer {size_slab:.3f}"),
    "hoyer_gated": ("Hoyer of gated", ".3f", "the same of P(on) times these means; Agg.Hoyer {size_gated:.3f}"),
    "hoyer_mean": ("Hoyer of mean", ".3f", "the same of means of q(z|x); Agg.Hoyer {size_mean:.3f}"),
    "mse": ("squared error", ".6g", "per value, {units}"),
    "r2": ("R2", ".4f", "share of the variance of columns that the decoded code keeps"),
    "mean_mse": ("error of the mean row", ".6g", "squared error per value with the mean row in place of each"),
    "words": ("words per text", ".4g", "with the end of the text; {unknown:.1%} of them unknown"),
    "nll": (
        "reconstruction",
        ".2f",
        "nats per text: -log p(x|z) of a draw of its code; {nll_code:.2f} of the code itself",
    ),
    "perplexity": (
        "perplexity",
        ".4g",
        "per word, by the score; {perplexity_reconstruction:.4g} by the reconstruction",
    ),
    "constant_mse": ("error of a constant", ".6g", "squared error with the mean of each count in its place"),
    "counts_right": ("counts right", ".4g", "share of all counts"),
    "rows_right": ("rows right", ".4g", "share of rows whose counts are all right"),
    "accuracy": ("accuracy", ".4g", "share of rows whose labels are all right"),
    "micro_f1": ("micro F1", ".4g", "of the labels of all rows together"),
    "macro_f1_mean": ("macro F1 mean", ".4g", "mean of the F1 of each label"),
    "macro_f1_harmonic": ("macro F1 harmonic", ".4g", "harmonic mean of the mean precision and the mean recall"),
    "exact": ("exact", ".4g", "share of rows whose labels are all right"),
    "labels_true": ("labels true", ".4g", "per row, in y"),
    "labels_predicted": ("labels predicted", ".4g", "per row"),
    "threshold": ("threshold", ".4g", "least probability of a label that is predicted"),
}


_OF_GATES = ("nonzeros_mode", "used", "always_on", "dead", "empty", "usage_entropy")


def numbers(r: Mapping[str, Any]) -> list[Number]:
    """The numbers in a result of `evaluate`, always in the same order.

    `r` may have one more key, `importance` (samples, bound, standard_error, effective_samples, heavy_tails).
    """
    found = {**r, "item": "text" if "words" in r else "row", "remark_of_some": remark(r.get("heavy_tails", 0.0))}
    if "score" in r:
        found["score"] = with_error(r["score"], r["score_standard_error"])
        found["meaning"] = _MEANINGS.get(r["score_meaning"], r["score_meaning"])
    if bound := r.get("importance"):
        found |= {**bound, "remark": remark(bound["heavy_tails"])}
        found["importance"] = with_error(bound["bound"], bound["standard_error"])
    for kind, hoyer in r.get("hoyer", {}).items():
        found |= {f"hoyer_{kind}": hoyer["average"], f"size_{kind}": hoyer["aggregate"]}
    normalised = r.get("score_meaning") == "normalised-row density"
    found["units"] = "of normalised rows" if normalised else "in the units of the data"
    if r.get("nonzeros_expected") == r.get("n_components"):  # a dense code: no unit is ever off
        found = {k: v for k, v in found.items() if k not in _OF_GATES}
    return [
        Number(key, label.format(**found), format(found[key], style), note.format(**found))
        for key, (label, style, note) in _NUMBERS.items()
        if key in found
    ]


def cost_of_caps(r: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of text: the error of codes with at most so many units on, and its increase over no cap."""
    name, free = ("squared error", r["mse"]) if "mse" in r else ("nats per text given the code", r["nll_code"])
    lines = [[str(k), f"{error:.6g}", f"{error / free - 1:+.1%}" if free else ""] for k, error in r["caps"].items()]
    return ["at most", name, "cost"], [*lines, ["no cap", f"{free:.6g}", ""]]
