"""`python -m benchmarks` (or `make bench`): every benchmark in one run, a table with verdicts, and a JSON file.

`--only codes` is not part of it: it trains for half an hour.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import sparsevae as sv
from benchmarks.report import machine


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="auto", help="auto (CUDA where there is one), cpu, cuda or cuda:N")
    names = ["speed", "text", "coding", "defaults", "codes"]
    parser.add_argument("--only", choices=names, help="run one of the benchmarks")
    parser.add_argument("--all", action="store_true", help="batches of 500 too, not only of 100")
    parser.add_argument("--rounds", type=int, default=5, help="of speed: how often each contender is measured")
    parser.add_argument("--quick", action="store_true", help="a smoke run: seconds, and numbers without meaning")
    parser.add_argument("--out", default="runs/benchmarks.json", help="where the numbers go, as JSON")
    args = parser.parse_args(argv)
    device = sv.Training(device=args.device).torch_device()
    here = machine(device)
    print(
        f"{here['device']} ({here['name']}), torch {here['torch']}, Python {here['python']}, {here['cpus']} CPUs, "
        f"load average {here['load_average']:.1f} before the start"
    )
    if args.quick:
        print("A quick run: it shows that everything works; its numbers mean nothing.")
    result: dict[str, Any] = {"machine": here, "quick": args.quick}
    if args.only in (None, "speed"):
        from benchmarks import speed

        batches = [100, 500] if args.all else [100]
        result["speed"] = speed.run(device, quick=args.quick, batches=batches, rounds=args.rounds)
        print()
    if args.only in (None, "text"):
        from benchmarks import text

        result["text"] = text.run(device, quick=args.quick)
        print()
    if args.only in (None, "coding"):
        from benchmarks import coding

        result["coding"] = coding.run(device, quick=args.quick)
        print()
    if args.only in (None, "defaults"):
        from benchmarks import defaults

        result["defaults"] = defaults.run(device, quick=args.quick)
    if args.only == "codes":  # half an hour, so only if asked for
        from benchmarks import codes

        result["codes"] = codes.run(Path(args.out).parent / "state", quick=args.quick)
    result["load_average_after"] = machine(device)["load_average"]
    print(f"Load average {result['load_average_after']:.1f} at the end.")
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Written to {out}.")
    return result


if __name__ == "__main__":
    main()
