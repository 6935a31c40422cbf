#!/usr/bin/env python3
"""The tables of docs/results/opbench.md from runs of tests/real_gpu/predict.sh: means over seeds, as Markdown.

usage: predict_summary.py PACK... -- FOLDER...      needs the standard library only
"""

import csv
import json
import lzma
import math
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path


def networks_of(packs: list[str]) -> dict[str, dict[int, Counter[str]]]:
    """The calls of each task, by network and batch size."""
    found = defaultdict(dict)
    for pack in packs:
        with lzma.open(pack, "rt") as lines:
            for line in lines:
                if line.startswith('{"kind":"network"'):
                    row = json.loads(line)
                    found[row["name"]][row["batch"]] = Counter(call["task"] for call in row["calls"])
    return found


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n### {title}\n| {' | '.join(head)} |\n| {' | '.join('---' for _ in head)} |")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def span(values: list[float], scale: float = 100, digits: int = 1) -> str:
    """The mean, and the least and the most if there are several."""
    if not values:
        return ""
    low, high = min(values) * scale, max(values) * scale
    text = f"{statistics.mean(values) * scale:.{digits}f}"
    return text if f"{low:.{digits}f}" == f"{high:.{digits}f}" else f"{text} ({low:.{digits}f} to {high:.{digits}f})"


class Run:
    """A line of metrics.csv, with the predictions behind it."""

    def __init__(self, row: dict[str, str], folder: Path) -> None:
        self.row = row
        self.model = row["model"]
        self.mode = row["mode"]
        self.settings = row["settings"]
        inner = folder / self.model
        self.predictions = (inner if inner.is_dir() else folder) / "predictions.csv"

    def value(self, name: str) -> float:
        return float(self.row[name])

    def rows(self) -> list[tuple[str, float, float]]:
        """Task, measured and predicted seconds of each program."""
        with open(self.predictions) as file:
            return [(row["task"], float(row["measured_s"]), float(row["predicted_s"])) for row in csv.DictReader(file)]


def end_to_end(run: Run, calls: Counter[str]) -> float:
    """Predicted over measured sum of the fastest measured programs of all calls."""
    best = {}
    for task, measured, predicted in run.rows():
        if task in calls and (task not in best or measured < best[task][0]):
            best[task] = (measured, predicted)
    return sum(best[t][1] * calls[t] for t in best) / sum(best[t][0] * calls[t] for t in best)


def decades(runs: list[Run]) -> dict[int, list[float]]:
    errors = defaultdict(list)
    for run in runs:
        for _, measured, predicted in run.rows():
            errors[math.floor(math.log10(measured * 1e6))].append(abs(predicted / measured - 1))
    return errors


def across_networks(runs: list[Run], networks: dict[str, dict[int, Counter[str]]]) -> None:
    by_model = defaultdict(lambda: defaultdict(list))
    for run in runs:
        name = run.mode.split("test-")[1]
        by_model[run.model][next(net for net in networks if net.replace("-", "_") == name)].append(run)
    nets = sorted({net for of in by_model.values() for net in of})
    everything = {model: [run for of in by_net.values() for run in of] for model, by_net in by_model.items()}
    table(
        "MAPE, %",
        ["model", *nets, "mean", "training, s"],
        [
            [
                model,
                *(span([run.value("mape") for run in by_net[net]]) for net in nets),
                f"{statistics.mean(run.value('mape') for run in everything[model]) * 100:.1f}",
                f"{statistics.mean(run.value('train_s') for run in everything[model]):.1f}",
            ]
            for model, by_net in by_model.items()
        ],
    )
    names = ["pairs", "top1", "top5", "peak1", "peak5", "within5", "within10", "within20"]
    table(
        "Ranking, mean of networks and seeds",
        ["model", *names],
        [
            [model, *(f"{statistics.mean(run.value(name) for run in of):.2f}" for name in names)]
            for model, of in everything.items()
        ],
    )
    by_decade = {model: decades(of) for model, of in everything.items()}
    found = sorted({decade for errors in by_decade.values() for decade in errors})
    table(
        "MAPE by time, % (programs)",
        ["model", *(f"from 1e{decade} us" for decade in found)],
        [
            [model, *(f"{statistics.mean(errors[d]) * 100:.0f} ({len(errors[d])})" for d in found)]
            for model, errors in by_decade.items()
        ],
    )
    columns = [(net, batch) for net in nets for batch in sorted(networks[net])]
    table(
        "Sum of a network, predicted over measured",
        ["model", *(f"{net}, batch {batch}" for net, batch in columns)],
        [
            [model, *(span([end_to_end(run, networks[net][n]) for run in by_net[net]], 1, 2) for net, n in columns)]
            for model, by_net in by_model.items()
        ],
    )


def across_devices(runs: list[Run]) -> None:
    groups = defaultdict(list)
    for run in runs:
        sampling = run.row["sampling"].strip()
        kind = "scratch" if "scratch" in sampling else sampling
        groups[run.mode.split("test-")[1], run.model, int(run.row["finetune_tasks"]), kind].append(run)
    names = ["pairs", "top1", "within20"]
    table(
        "Shares",
        ["device", "model", "tasks", "chosen", "MAPE, %", *names],
        [
            [device, model, str(tasks), kind, span([run.value("mape") for run in of])]
            + [f"{statistics.mean(run.value(name) for run in of):.2f}" for name in names]
            for (device, model, tasks, kind), of in sorted(groups.items())
        ],
    )


def ablations(runs: list[Run]) -> None:
    groups = defaultdict(list)
    for run in runs:
        groups[run.row["config"], run.settings].append(run.value("mape"))
    rows = [
        [config, settings or "as it is", span(values), str(len(values))]
        for (config, settings), values in groups.items()
    ]
    table("Parts", ["config", "setting", "MAPE, %", "seeds"], rows)


def main() -> int:
    at = sys.argv.index("--")
    networks = networks_of(sys.argv[1:at])
    runs = []
    for metrics in sorted(file for folder in sys.argv[at + 1 :] for file in Path(folder).glob("*/metrics.csv")):
        with open(metrics) as lines:
            runs += [Run(row, metrics.parent) for row in csv.DictReader(lines)]
    held_out = [run for run in runs if "by_net" in run.mode]
    plain = [run for run in held_out if not run.settings and run.row["config"] != "search_trial_1575"]
    across_networks(plain, networks)
    across_devices([run for run in runs if "by_device" in run.mode])
    changed = {run.mode for run in held_out if run.settings}
    ablations([run for run in held_out if run.model == "transformer" and run.mode in changed])
    return 0


if __name__ == "__main__":
    sys.exit(main())
