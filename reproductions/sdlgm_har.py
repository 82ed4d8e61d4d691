"""Bits against error and against what a probe can read: SDLGM's codes of motion windows, beside PCA at equal bits.

    python -m reproductions.sdlgm_har --out results/

The paper's motive is codes small enough to send from a sensor, and it prints no figure for it. Here SDLGM with distinct
features (K = 200, at most 40) codes the raw windows of UCI-HAR (nine signals of 128 values); codes are cut to fewer
features, packed, and measured on the test people's windows: bits per window, squared error per value, and the accuracy
of a linear probe for the six activities, beside PCA whose components are quantised to the same number of bits.
"""

from __future__ import annotations

import json
import time
from typing import Any

import sparsevae as sv
from reproductions import jobs

CAPS = (1, 2, 5, 10, 20, 40)


def train(steps: int, seed: int, samples: int = 4, device: str = "auto") -> dict[str, Any]:
    data = sv.data.load("uci-har")
    assert data.X_test is not None
    training = sv.Training(steps=steps, learning_rate=1e-3, kl_warmup=0.3, seed=seed, device=device, verbose=1)
    est = sv.SDLGM(
        200,
        cap=40,
        features="distinct",
        hidden=(400,),
        likelihood="fixed-gaussian",
        variance=0.05,
        samples=samples,
        training=training,
    )
    began = time.perf_counter()
    est.fit(data.X)
    seconds = time.perf_counter() - began
    found = sv.rate_distortion(est, data.X_test, data.y_test, caps=CAPS)
    report = est.evaluate(data.X_test)
    kept = ("score", "relaxed_objective", "importance_bound", "nonzeros_mode", "nonzeros_drawn", "mse")
    return {"training_seconds": seconds, "curve": found.to_dict(), "report": {k: report[k] for k in kept}}


def figure(curve: dict[str, Any], path: Any) -> None:
    from sparsevae.analysis.rates import RateDistortion
    from sparsevae.report.results import rate_distortion

    rate_distortion(RateDistortion.from_dict(curve)).savefig(path, dpi=130)


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    job = {"steps": args.steps, "seed": args.seed}
    found = jobs.run(train, [job], args.state or args.out / "state", device=args.device)[0]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "sdlgm_har.json").write_text(json.dumps(found, indent=1) + "\n")
    figure(found["curve"], args.out / "sdlgm_har.png")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
