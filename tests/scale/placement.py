#!/usr/bin/env python3
"""Simulates which best-effort job goes to which GPU, over many nodes, by recorded pairs.

Every GPU has one critical service. Best-effort jobs come one after the other, and each GPU takes at most one. What a
pair costs was recorded with Sluice 0.1.0 on an H200 (docs/results/waits.md).

usage: placement.py [--gpus 10,1000,100000] [--jobs-per-gpu 0.75] [--mode MODE] [--goal 1.25] [--repeats N] [--json]

  random    any free GPU
  spread    a GPU of the node with the fewest best-effort jobs: what a scheduler does that only counts
  recorded  of the free GPUs on which the critical service keeps its goal, one that suits the fewest kinds of jobs;
            of those, one on which the job keeps most of its speed; without such a GPU the job waits
  oracle    knows all jobs in advance; the most best-effort work for which every service keeps its goal

columns:
  in goal   share of critical services whose p99 is at most --goal times that alone
  placed    share of best-effort jobs that run
  work      speed of all best-effort jobs together, in GPUs of their own, per 100 GPUs

examples:
  placement.py
  placement.py --gpus 1000 --mode "MPS + priority" --goal 1.1
"""

import argparse
import csv
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROWS = Path(__file__).resolve().parents[2] / "docs" / "data" / "pairs-h200.csv"
GPUS_PER_NODE = 8
CONDITIONS = {"none": "without Sluice", "device:200us": "Sluice", "device:200us, announced": "Sluice, announced"}
POLICIES = ("random", "spread", "recorded", "oracle")


@dataclass(frozen=True)
class Pair:
    slowdown: float  # of the critical p99; of the slowest job where there is no p99, because jobs were fewer than 300
    kept: float  # speed of the best-effort program, 1 alone


Pairs = dict[tuple[str, str], Pair]


def read_pairs(rows: list[dict[str, str]], mode: str, condition: str) -> Pairs:
    """(critical, best effort) -> what was recorded of the two."""
    return {
        (row["critical"], row["best_effort"]): Pair(float(row["slowdown"]), float(row["kept"]))
        for row in rows
        if (row["mode"], row["condition"]) == (mode, condition)
    }


@dataclass
class Fleet:
    services: list[str]  # of each GPU
    jobs: list[str]  # in the order in which they come


def make_fleet(pairs: Pairs, gpus: int, jobs_per_gpu: float, chance: random.Random) -> Fleet:
    services = sorted({critical for critical, _ in pairs})
    jobs = sorted({best_effort for _, best_effort in pairs})
    return Fleet(chance.choices(services, k=gpus), chance.choices(jobs, k=round(gpus * jobs_per_gpu)))


def place_randomly(fleet: Fleet, chance: random.Random) -> Counter:
    free = chance.sample(fleet.services, k=len(fleet.services))
    return Counter(zip(free, fleet.jobs))


def place_spread(fleet: Fleet, chance: random.Random) -> Counter:
    """One job to every node, then the second to every node, and so on, on any free GPU of the node."""
    nodes = []
    for first in range(0, len(fleet.services), GPUS_PER_NODE):
        node = fleet.services[first : first + GPUS_PER_NODE]
        nodes.append(chance.sample(node, k=len(node)))
    turns = [node[turn] for turn in range(GPUS_PER_NODE) for node in nodes if turn < len(node)]
    return Counter(zip(turns, fleet.jobs))


def place_recorded(fleet: Fleet, pairs: Pairs, goal: float) -> Counter:
    free = Counter(fleet.services)
    placed: Counter = Counter()
    fits = {key for key, pair in pairs.items() if pair.slowdown <= goal}
    suits = Counter(service for service, _ in fits)
    for job in fleet.jobs:
        fit = [service for service in free if free[service] and (service, job) in fits]
        if fit:
            best = max(fit, key=lambda service: (-suits[service], pairs[service, job].kept))
            free[best] -= 1
            placed[best, job] += 1
    return placed


def place_best(fleet: Fleet, pairs: Pairs, goal: float) -> Counter:
    """The most work: a transport from kinds of jobs to kinds of services, by paths of most gain.

    A path takes a waiting job to a free GPU, and may move placed jobs on its way. Paths are taken as long as one
    gains, the best first, so that what is placed is the optimum for its number of jobs, and in the end for any.
    """
    free, waiting = Counter(fleet.services), Counter(fleet.jobs)
    placed: Counter = Counter()
    while path := _best_path(free, waiting, placed, pairs, goal):
        service, job = path[-1][0], path[0][1]
        moved = [placed[step] for step in path[1::2]]  # every second step takes a placed job away
        amount = min(waiting[job], free[service], *moved)
        for number, step in enumerate(path):
            placed[step] += -amount if number % 2 else amount
        waiting[job] -= amount
        free[service] -= amount
    return +placed


def _best_path(free: Counter, waiting: Counter, placed: Counter, pairs: Pairs, goal: float) -> list | None:
    """(service, job) to add, to take away, to add and so on; Bellman-Ford, because steps back cost."""
    fit = {key: pair.kept for key, pair in pairs.items() if pair.slowdown <= goal}
    at_job: dict[str, tuple[float, list]] = {job: (0.0, []) for job in waiting if waiting[job]}
    at_service: dict[str, tuple[float, list]] = {}
    changed = True
    while changed:
        changed = False
        for (service, job), kept in fit.items():
            if job in at_job and at_job[job][0] + kept > at_service.get(service, (-1e9,))[0] + 1e-12:
                at_service[service] = (at_job[job][0] + kept, [*at_job[job][1], (service, job)])
                changed = True
            if placed[service, job] and service in at_service:
                back = at_service[service][0] - kept
                if back > at_job.get(job, (-1e9,))[0] + 1e-12:
                    at_job[job] = (back, [*at_service[service][1], (service, job)])
                    changed = True
    ends = [reached for service, reached in at_service.items() if free[service] and reached[0] > 0]
    return max(ends)[1] if ends else None


def place(policy: str, fleet: Fleet, pairs: Pairs, goal: float, chance: random.Random) -> Counter:
    """(service, job) -> on how many GPUs they are together."""
    if policy == "random":
        return place_randomly(fleet, chance)
    if policy == "spread":
        return place_spread(fleet, chance)
    return (place_recorded if policy == "recorded" else place_best)(fleet, pairs, goal)


def outcome(placed: Counter, fleet: Fleet, pairs: Pairs, goal: float) -> dict[str, float]:
    harmed = sum(count for key, count in placed.items() if pairs[key].slowdown > goal)
    return {
        "in_goal": 1 - harmed / len(fleet.services),
        "placed": placed.total() / len(fleet.jobs),
        "work": 100 * sum(count * pairs[key].kept for key, count in placed.items()) / len(fleet.services),
    }


def simulate(rows, gpus: int, jobs_per_gpu: float, mode: str, goal: float, repeats: int) -> Iterator[dict]:
    for condition, title in CONDITIONS.items():
        pairs = read_pairs(rows, mode, condition)
        for policy in POLICIES:
            results = []
            for seed in range(repeats):  # the same fleets for every policy and condition
                chance = random.Random(seed)
                fleet = make_fleet(pairs, gpus, jobs_per_gpu, chance)
                results.append(outcome(place(policy, fleet, pairs, goal, chance), fleet, pairs, goal))
            means = {key: statistics.fmean(result[key] for result in results) for key in results[0]}
            yield {"gpus": gpus, "condition": title, "policy": policy, "repeats": repeats, **means}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="10,1000,100000", help="sizes of the fleet (default: %(default)s)")
    parser.add_argument("--jobs-per-gpu", type=float, default=0.75, help="best-effort jobs (default: %(default)s)")
    parser.add_argument(
        "--mode", default="time-sliced", help="'time-sliced' or 'MPS + priority' (default: %(default)s)"
    )
    parser.add_argument("--goal", type=float, default=1.25, help="p99, in times alone (default: %(default)s)")
    parser.add_argument("--repeats", type=int, help="fleets of each size (default: 20000 GPUs in all, 200 at most)")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    options = parser.parse_args()
    try:
        sizes = [int(size) for size in options.gpus.split(",")]
    except ValueError:
        parser.error(f"--gpus takes whole numbers, not '{options.gpus}'")
    if min(sizes) < 1 or not 0 < options.jobs_per_gpu <= 1 or options.goal < 1 or (options.repeats or 1) < 1:
        parser.error("--gpus and --repeats must be at least 1, --jobs-per-gpu above 0 and at most 1, --goal at least 1")
    with ROWS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if options.mode not in {row["mode"] for row in rows}:
        parser.error(f"no pairs were recorded in the mode '{options.mode}' (time-sliced or MPS + priority)")
    if not options.json:
        print(f"{'GPUs':>7} {'how it is shared':<18} {'placement':<9} {'in goal':>8} {'placed':>7} {'work':>6}")
    for size in sizes:
        repeats = options.repeats or min(200, max(1, 20000 // size))
        for row in simulate(rows, size, options.jobs_per_gpu, options.mode, options.goal, repeats):
            if options.json:
                print(json.dumps({**row, "mode": options.mode, "goal": options.goal}))
            else:
                shares = f"{row['in_goal']:>8.1%} {row['placed']:>7.1%} {row['work']:>6.1f}"
                print(f"{row['gpus']:>7} {row['condition']:<18} {row['policy']:<9} {shares}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
