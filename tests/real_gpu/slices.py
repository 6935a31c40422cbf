#!/usr/bin/env python3
"""Time slices on a real GPU: what a critical program and best-effort programs get under each setting.

usage: slices.py [PAIR ...] [--rounds N] [--window S] [--out FILE] [--list]

ROOT/build must have a finished ./x build. Each pair's programs run once, and the conditions take turns in the same
processes (sluice set), a window each, so that the host's noise is in all of them. A window's first 0.9 s do not count:
a setting takes up to 0.5 s. Prints p50 and p99 of the critical jobs as a multiple of alone, and each best-effort
program's rate as a part of alone; the interval is the spread between rounds. A pair takes rounds x conditions x window.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from interleaved import Pair, percentile, rate, run_pairs, times

# Of the best-effort programs: policy and slice. None: nobody else runs.
CONDITIONS = {
    "critical alone": None,
    "best effort alone": None,
    "no Sluice": ("none", "off"),
    "slice 100us, no gate": ("none", "100us"),
    "device:200us": ("device:200us", "off"),
    "device:200us, slice 100us": ("device:200us", "100us"),
    "default": ("device:200us", "auto"),
}
PAIRS = {
    "short": ["4 kernels of 50us", "kernels of 5ms"],
    "job": ["20 kernels of 250us", "kernels of 5ms"],
    "vit": ["ViT graph", "MobileNetV2 training"],
    "vit2": ["ViT graph", "MobileNetV2 training", "prefill"],
    "decode": ["eager decoding", "prefill"],
    "resnet": ["ResNet-50 graph", "ResNet-152, batch 256"],
}


def measure(pair: str, options: argparse.Namespace) -> dict:
    rounds, seconds = options.rounds, options.window
    with tempfile.TemporaryDirectory() as folder:
        run = Pair(PAIRS[pair], Path(folder))
        everyone = range(len(run.names))
        windows: dict[str, list] = {condition: [] for condition in CONDITIONS}
        second: list = []
        states: dict[str, list[str]] = {}
        for _ in range(rounds):
            for condition, settings in CONDITIONS.items():
                if settings:
                    for i in everyone[1:]:
                        run.set(i, "--policy", settings[0], "--slice", settings[1])
                running = {"critical alone": [0], "best effort alone": [1]}.get(condition, everyone)
                windows[condition].append(run.window(running, seconds))
                if settings:
                    states[condition] = run.status()
            if len(run.names) > 2:
                second.append(run.window([2], seconds))
        logs = run.end()

    alone = [took for window in windows["critical alone"] for took in times(logs[0], window)]
    rates = [None] + [
        sum(rate(logs[i], w) for w in (windows["best effort alone"] if i == 1 else second)) / rounds
        for i in everyone[1:]
    ]
    rows = []
    for condition, taken in windows.items():
        jobs = [took for window in taken for took in times(logs[0], window)]
        row: dict = {"condition": condition}
        if condition != "best effort alone":
            row["p50"] = percentile(jobs, 0.5) / percentile(alone, 0.5)
            row["p99"] = percentile(jobs, 0.99) / percentile(alone, 0.99)
            row["p50_rounds"] = [round(percentile(times(logs[0], w), 0.5) / percentile(alone, 0.5), 3) for w in taken]
            row["jobs"] = len(jobs)
        if condition != "critical alone":
            row["best_effort"] = [
                [round(rate(logs[i], w) / rates[i], 3) for w in taken] for i in everyone[1:] if CONDITIONS[condition]
            ]
        row["states"] = states.get(condition)
        rows.append(row)
    return {"pair": pair, "names": run.names, "alone_ms": percentile(alone, 0.5) * 1000, "rows": rows}


def show(result: dict) -> None:
    print(f"\n{result['pair']}: {' + '.join(result['names'])}; alone p50 {result['alone_ms']:.3f} ms")
    for row in result["rows"]:
        critical = f"p50 {row['p50']:.2f} p99 {row['p99']:.2f} ({row['jobs']} jobs)" if "p50" in row else ""
        best = [
            f"{100 * sum(r) / len(r):.0f} % ({100 * min(r):.0f}-{100 * max(r):.0f})"
            for r in row.get("best_effort") or []
        ]
        print(f"  {row['condition']:<28} {critical:<34} {' + '.join(best):<34} {'; '.join(row['states'] or [])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_pairs(parser, PAIRS, 2.0, measure, show)


if __name__ == "__main__":
    main()
