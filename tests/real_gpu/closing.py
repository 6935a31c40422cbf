#!/usr/bin/env python3
"""When gates close, on a real GPU: the law of docs/reference/closing.md against closing at first and no Sluice.

usage: closing.py [PAIR ...] [--rounds N] [--window S] [--learn S] [--out FILE]

ROOT/build must have a finished ./x build. A pair has four processes of its critical program, two that close at the
first launch and two under the law, and its best-effort program. They take turns as in slices.py: each critical process
runs alone, then with best effort, and those that close at first also with best effort under policy none (no Sluice).
Before that, each process under the law runs next to best effort for --learn seconds. Each process is compared with
itself alone in the same round. Prints added latency and rates, with 95 % intervals over processes and rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from interleaved import Pair, percentile, rate, run_pairs, times

PAIRS = {
    "token": ["eager token", "matrix products"],
    "token-pauses": ["eager token, now and then", "matrix products"],
    "decode": ["eager decoding", "prefill"],
    "resnet": ["eager ResNet-50", "MobileNetV2 training"],
    "vit": ["ViT graph", "MobileNetV2 training"],
    "spin": ["4 kernels of 50us", "kernels of 1ms"],
}
FIRST, LAW, BEST = (0, 1), (2, 3), 4


def measure(pair: str, options: argparse.Namespace) -> dict:
    rounds, seconds, learn = options.rounds, options.window, options.learn
    critical, best = PAIRS[pair]
    # The settings of a process are read once, so each process has its own.
    with tempfile.TemporaryDirectory() as folder:
        how = ["--priority", "1"]
        priorities = [how] * 4 + [["--priority", "0"]]
        closes = ["first", "first", "law", "law", "first"]
        run = Pair([critical] * 4 + [best], Path(folder), priorities, [{"SLUICE_CLOSE": close} for close in closes])
        learned = []
        for i in LAW:
            for _ in range(max(1, round(learn / 5))):
                run.window([i, BEST], min(learn, 5))
                learned.append(run.clients()[i]["closing"])
        windows: list[tuple] = []
        best_alone = []
        for _ in range(rounds):
            best_alone.append(run.window([BEST], seconds))
            for i in (*FIRST, *LAW):
                conditions = ["first", "bare"] if i in FIRST else ["law"]
                alone = run.window([i], seconds)
                for condition in conditions:
                    run.set(BEST, "--policy", "none" if condition == "bare" else "device:200us")
                    before = run.clients()
                    window = run.window([i, BEST], seconds)
                    windows.append((condition, i, alone, window, before, run.clients()))
                run.set(BEST, "--policy", "device:200us")
        states = run.status()
        logs = run.end()

    best_rate = statistics.mean(rate(logs[BEST], window) for window in best_alone)
    rows: dict[str, list[dict]] = {}
    for condition, i, alone, window, before, after in windows:
        reference, jobs = times(logs[i], alone), times(logs[i], window)
        if not reference or not jobs:
            continue
        rows.setdefault(condition, []).append(
            {
                "process": i,
                "alone_p50_ms": percentile(reference, 0.5) * 1000,
                "added_p50_ms": (percentile(jobs, 0.5) - percentile(reference, 0.5)) * 1000,
                "added_p99_ms": (percentile(jobs, 0.99) - percentile(reference, 0.99)) * 1000,
                "p50": percentile(jobs, 0.5) / percentile(reference, 0.5),
                "p99": percentile(jobs, 0.99) / percentile(reference, 0.99),
                "best_effort": rate(logs[BEST], window) / best_rate,
                # Of the whole window, from its begin on.
                "jobs": after[i]["jobs"] - before[i]["jobs"],
                "launches": after[i]["launches"] - before[i]["launches"],
                "best_launches": after[BEST]["launches"] - before[BEST]["launches"],
                "best_waits": after[BEST]["waits"] - before[BEST]["waits"],
                "best_held_ms": (after[BEST]["held_total_ns"] - before[BEST]["held_total_ns"]) / 1e6,
                "closing": after[i]["closing"],
                "gpu_share": after[i]["gpu_share"],
                "best_slice": after[BEST]["slice"],
            }
        )
    return {"pair": pair, "names": PAIRS[pair], "rows": rows, "states": states, "learned": learned}


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and its bootstrapped 95 % interval."""
    draw = random.Random(1)
    means = sorted(statistics.mean(draw.choices(values, k=len(values))) for _ in range(2000))
    return statistics.mean(values), means[50], means[-51]


def show(result: dict) -> None:
    print(f"\n{result['pair']}: {' + '.join(result['names'])}")
    for condition, rows in sorted(result["rows"].items()):
        cells = []
        for key, scale, digits in (
            ("alone_p50_ms", 1, 2),
            ("added_p50_ms", 1, 3),
            ("added_p99_ms", 1, 2),
            ("p50", 1, 3),
            ("p99", 1, 3),
            ("best_effort", 100, 1),
        ):
            mean, low, high = interval([scale * row[key] for row in rows])
            cells.append(f"{key} {mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")
        print(f"  {condition:<8} {'; '.join(cells)}")
    for condition, rows in sorted(result["rows"].items()):
        closings = [row["closing"] and f"{row['closing']['state']}:{row['closing']['level']}" for row in rows]
        keys = ("jobs", "launches", "best_launches", "best_waits", "best_held_ms")
        means = [f"{key} {statistics.mean(row[key] for row in rows):.0f}" for key in keys]
        print(f"  {condition:<8} {'; '.join(means)}; {closings}")
    print("  learned", [f"{one['state']}:{one['level']} {one['waits_longer_us']}" for one in result["learned"] if one])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn", type=float, default=40.0, metavar="S")
    run_pairs(parser, PAIRS, 2.0, measure, show)


if __name__ == "__main__":
    main()
