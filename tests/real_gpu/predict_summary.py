#!/usr/bin/env python3
"""The tables of docs/results/opbench.md from runs of tests/real_gpu/predict.sh: means over seeds, as Markdown.

Runs of the same network and seed are compared with those of xgboost, so give the folders of both.

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
        self.seed = int(row["seed"])
        inner = folder / self.model
        self.folder = inner if inner.is_dir() else folder

    def value(self, name: str) -> float:
        return float(self.row[name])

    def rows(self) -> list[tuple[str, float, float]]:
        """Task, measured and predicted seconds of each program."""
        with open(self.folder / "predictions.csv") as file:
            return [(row["task"], float(row["measured_s"]), float(row["predicted_s"])) for row in csv.DictReader(file)]

    def seconds_until(self, mape: float) -> float | None:
        """Seconds of training until the first test on the way with this MAPE or less; None if there was none."""
        with open(self.folder / "loss.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["test_mape"]]
        return next((float(row["seconds"]) for row in rows if float(row["test_mape"]) <= mape), None)


def over_networks(by_net: dict[str, list[Run]], name: str) -> float:
    """The mean over networks of the mean over seeds: a network with more seeds counts no more than others."""
    return statistics.mean(statistics.mean(run.value(name) for run in runs) for runs in by_net.values() if runs)


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
                f"{over_networks(by_net, 'mape') * 100:.1f}",
                f"{over_networks(by_net, 'train_s'):.1f}",
            ]
            for model, by_net in by_model.items()
        ],
    )
    names = ["pairs", "top1", "top5", "peak1", "peak5", "within5", "within10", "within20"]
    table(
        "Ranking, mean over networks of the mean over seeds",
        ["model", *names],
        [[model, *(f"{over_networks(by_net, name):.2f}" for name in names)] for model, by_net in by_model.items()],
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
    if "xgboost" in by_model:
        until_xgboost(by_model, nets)
        if "transformer" in by_model:
            paired(by_model, nets, "transformer", "xgboost")


def until_xgboost(by_model: dict[str, dict[str, list[Run]]], nets: list[str]) -> None:
    """How long each network trains until it is as good as xgboost with the same seed."""
    goals = {(run.mode, run.seed): run.value("mape") for runs in by_model["xgboost"].values() for run in runs}

    def cell(runs: list[Run]) -> str:
        pairs = [(run, goals[run.mode, run.seed]) for run in runs if (run.mode, run.seed) in goals]
        found = [run.seconds_until(goal) for run, goal in pairs]
        reached = [seconds for seconds in found if seconds is not None]
        return f"{span(reached, 1)}; {len(reached)} of {len(found)}" if reached else f"0 of {len(found)}"

    learned = [model for model in by_model if model in ("transformer", "mlp", "lstm")]
    spent = ["xgboost", *(span([run.value("train_s") for run in by_model["xgboost"].get(net, [])], 1) for net in nets)]
    table(
        "Seconds of training until the MAPE of xgboost; seeds that reach it (xgboost: its whole training)",
        ["model", *nets],
        [*([model, *(cell(by_model[model].get(net, [])) for net in nets)] for model in learned), spent],
    )


def errors_by_task(runs: list[Run]) -> dict[str, float]:
    """The MAPE of each task, mean over the runs."""
    errors = defaultdict(list)
    for run in runs:
        for task, measured, predicted in run.rows():
            errors[task].append(abs(predicted / measured - 1))
    return {task: statistics.mean(of) for task, of in errors.items()}


def sign_p(differences: list[float]) -> float:
    """Two-sided p of the sign test: as many of one sign by chance. Zeros do not count."""
    signs = [difference > 0 for difference in differences if difference != 0]
    few, count = min(sum(signs), len(signs) - sum(signs)), len(signs)
    return min(1.0, 2 * sum(math.comb(count, i) for i in range(few + 1)) / 2**count)


def wilcoxon_p(differences: list[float]) -> float:
    """Two-sided p of the signed-rank test, by the normal distribution, with equal ranks for equal sizes."""
    left = sorted((difference for difference in differences if difference != 0), key=abs)
    count, begin, positive, variance = len(left), 0, 0.0, 0.0
    while begin < count:
        end = begin
        while end < count and abs(left[end]) == abs(left[begin]):
            end += 1
        rank = (begin + 1 + end) / 2
        positive += rank * sum(difference > 0 for difference in left[begin:end])
        variance += (end - begin) * rank**2 / 4
        begin = end
    if not variance:
        return 1.0
    return math.erfc(abs(positive - count * (count + 1) / 4) / math.sqrt(2 * variance))


def paired(by_model: dict[str, dict[str, list[Run]]], nets: list[str], first: str, second: str) -> None:
    """Each task is one pair, so tasks with many programs count no more than others."""
    rows, everything = [], []
    for net in [*nets, "all"]:
        if net == "all":
            differences = everything
        else:
            runs = {model: by_model[model].get(net, []) for model in (first, second)}
            seeds = {run.seed for run in runs[first]} & {run.seed for run in runs[second]}
            errors = [errors_by_task([run for run in runs[m] if run.seed in seeds]) for m in (first, second)]
            differences = [errors[0][task] - errors[1][task] for task in sorted(errors[0].keys() & errors[1].keys())]
            everything = everything + differences
        if differences:
            better = sum(difference < 0 for difference in differences)
            middle = f"{100 * statistics.median(differences):+.1f}"
            p_values = f"{sign_p(differences):.2g}", f"{wilcoxon_p(differences):.2g}"
            rows.append([net, str(len(differences)), str(better), middle, *p_values])
    head = ["network", "tasks", f"{first} better", "median difference, points", "sign test p", "Wilcoxon p"]
    table(f"MAPE of {first} minus {second}, paired over tasks (means over seeds)", head, rows)


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
    asked = bool({"-h", "--help"} & set(sys.argv))
    if asked or "--" not in sys.argv:
        print(__doc__)
        return 0 if asked else 2
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
