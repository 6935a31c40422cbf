#!/usr/bin/env python3
"""Turns on a real GPU: how weights divide the time of two programs, and what they are worth below a critical one.

usage: turns.py [PAIR ...] [--rounds N] [--window S] [--out FILE]

ROOT/build must have a finished ./x build. The programs and conditions take turns as in slices.py. Prints each program's
rate as a part of its rate alone (in brackets the spread between rounds), the ratio of the first two best-effort
programs, their sum, and p50 and p99 of the critical jobs as a multiple of alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from interleaved import Pair, percentile, rate, run_pairs, times

PAIRS = {
    "equal": ["kernels of 1ms", "kernels of 1ms"],
    "long": ["kernels of 5ms", "kernels of 5ms"],
    "torch": ["MobileNetV2 training", "prefill"],
    "short2": ["4 kernels of 50us", "kernels of 5ms", "kernels of 1ms"],
    "vit2": ["ViT graph", "MobileNetV2 training", "prefill"],
}
DEVICE = "device:200us"
SETTLE_S = 3.0  # turns without weights begin after some time in which all are busy
# Of the two best-effort programs: the policy and the slice of both, and the weights.
CONDITIONS = {
    "no weights": (DEVICE, "auto", "none", "none"),
    "1 and 1": (DEVICE, "auto", "1", "1"),
    "3 and 1": (DEVICE, "auto", "3", "1"),
}
BELOW = {
    "no Sluice": ("none", "off", "none", "none"),
    "no slices": (DEVICE, "off", "none", "none"),
    "default": (DEVICE, "auto", "none", "none"),
    "1 and 1": (DEVICE, "auto", "1", "1"),
}


def measure(pair: str, options: argparse.Namespace) -> dict:
    rounds, seconds = options.rounds, options.window
    names = PAIRS[pair]
    critical = len(names) - 2
    conditions = BELOW if critical else CONDITIONS
    everyone = range(len(names))
    with tempfile.TemporaryDirectory() as folder:
        exec_options = [["--priority", "1"]] * critical + [["--priority", "0"]] * 2
        run = Pair(names, Path(folder), exec_options, settle_s=SETTLE_S)
        alone: list[list] = [[] for _ in names]
        windows: dict[str, list] = {condition: [] for condition in conditions}
        states = {}
        for _ in range(rounds):
            for i in everyone:
                alone[i].append(run.window([i], seconds))
            for condition, (policy, slice_, *weights) in conditions.items():
                for i, weight in enumerate(weights):
                    run.set(critical + i, "--weight", weight, "--slice", slice_, "--policy", policy)
                windows[condition].append(run.window(everyone, seconds))
                states[condition] = run.status()
        logs = run.end()

    rates = [sum(rate(logs[i], window) for window in alone[i]) / rounds for i in everyone]
    rows = []
    for condition, taken in windows.items():
        parts = [[rate(logs[i], window) / rates[i] for window in taken] for i in everyone[critical:]]
        row: dict = {"condition": condition, "parts": parts, "states": states[condition]}
        row["ratio"] = [a / b if b else None for a, b in zip(*parts)]
        row["sum"] = [a + b for a, b in zip(*parts)]
        if critical:
            reference = [took for window in alone[0] for took in times(logs[0], window)]
            jobs = [took for window in taken for took in times(logs[0], window)]
            row["p50"] = percentile(jobs, 0.5) / percentile(reference, 0.5)
            row["p99"] = percentile(jobs, 0.99) / percentile(reference, 0.99)
        rows.append(row)
    return {"pair": pair, "names": names, "rows": rows}


def spread(values: list[float], digits: int) -> str:
    mean = sum(values) / len(values)
    return f"{mean:.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def show(result: dict) -> None:
    print(f"\n{result['pair']}: {' + '.join(result['names'])}")
    for row in result["rows"]:
        parts = " + ".join(f"{spread([100 * part for part in parts], 0)} %" for parts in row["parts"])
        critical = f"p50 {row['p50']:.2f} p99 {row['p99']:.2f}  " if "p50" in row else ""
        ratio = "-" if None in row["ratio"] else spread(row["ratio"], 2)
        print(f"  {row['condition']:<26} {critical}{parts}  ratio {ratio}  sum {spread(row['sum'], 3)}")
        print(f"      {'; '.join(row['states'])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_pairs(parser, PAIRS, 5.0, measure, show)


if __name__ == "__main__":
    main()
