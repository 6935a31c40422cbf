#!/usr/bin/env python3
"""How far `sluice predict job_time` is off: PyTorch models, measured at some batch sizes and predicted from three.

The rounds go through all models and batch sizes, so a slow minute does not hit one of them only. Of each, the round
with the least sum of operator times counts. Every three of the sizes predict the others. `two` are the sizes that
`sluice serve` measures when it loads a model: the least and the largest.

usage: job_time.py OUT MODEL...      needs a build with LibTorch, and the models in the store (sluice models export)
"""

import argparse
import csv
import itertools
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def measured(sluice: Path, model: str, batch: int, options: argparse.Namespace) -> float:
    """Milliseconds: the sum over the operators, as `sluice predict job_time op.csv` takes it."""
    command = [sluice, "opbench", "run", "--executor", "torch", "--modelname", model, "--target", options.target]
    command += ["--batchsize", str(batch), "--threads", str(options.threads), "--out", options.out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with (options.out / f"{model}-b{batch}" / "op.csv").open(newline="") as lines:
        return sum(float(row["ms"]) for row in csv.DictReader(lines))


def errors(sluice: Path, times: dict[int, float], known: tuple[int, ...]) -> list[tuple[str, int, float]]:
    """(between, beyond or that, batch, predicted over measured minus 1) for each size that is not known."""
    command = [sluice, "predict", "job_time", *(f"{batch}:{times[batch]}" for batch in known), "--json"]
    command += ["--batch", *(str(batch) for batch in times if batch not in known)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found = json.loads(answer.stdout)["predicted"]
    return [(one["from"].split()[0], one["batch"], one["ms"] / times[one["batch"]] - 1) for one in found]


def mape(values: list[float]) -> str:
    worst = max(values, key=abs)
    return f"{100 * statistics.mean(map(abs, values)):.1f} ({100 * worst:+.1f})"


def report(sluice: Path, times: dict[str, dict[int, float]]) -> None:
    sizes = sorted(next(iter(times.values())))
    kinds = {"between": "between", "beyond": "above the largest", "that": "below the least"}
    by_model = {}
    for model, of in times.items():
        found = by_model[model] = defaultdict(list)
        for known in itertools.combinations(sizes, 3):
            for kind, _, error in errors(sluice, of, known):
                found[kind].append(error)
        found["two"] = [error for _, _, error in errors(sluice, of, (sizes[0], sizes[-1]))]
    by_model["all"] = {kind: [e for of in by_model.values() for e in of[kind]] for kind in (*kinds, "two")}
    head = ["model", *(f"batch {size}, ms" for size in sizes), *kinds.values(), f"from {sizes[0]} and {sizes[-1]}"]
    print(f"| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |")
    for model, found in by_model.items():
        cells = [f"{times[model][size]:.2f}" if model in times else "" for size in sizes]
        print(f"| {model} | {' | '.join(cells + [mape(found[kind]) for kind in (*kinds, 'two')])} |")
    print("MAPE in %, in brackets the largest error.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the op.csv files")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="at least four")
    parser.add_argument("--rounds", type=int, default=3, help="the least of so many counts (default: %(default)s)")
    parser.add_argument("--target", default="llvm", help="llvm: the CPU; cuda (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU (default: %(default)s)")
    parser.add_argument("--build", type=Path, default=Path(__file__).parents[2] / "build")
    options = parser.parse_args()
    sluice = options.build / "bin" / "sluice"
    rounds: dict[str, dict[int, list[float]]] = {m: {b: [] for b in options.batches} for m in options.models}
    for number in range(options.rounds):
        for model, batch in itertools.product(options.models, options.batches):
            rounds[model][batch].append(measured(sluice, model, batch, options))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    (options.out / "rounds.json").write_text(json.dumps(rounds) + "\n")
    spread = sorted(max(of) / min(of) for by_batch in rounds.values() for of in by_batch.values())
    print(f"{options.rounds} rounds; the longest over the shortest: {statistics.median(spread):.2f} (median)", end="")
    print(f", {spread[-1]:.2f} (largest)\n")
    report(sluice, {model: {b: min(of) for b, of in by_batch.items()} for model, by_batch in rounds.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
