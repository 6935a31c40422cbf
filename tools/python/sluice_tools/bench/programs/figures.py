"""From what the programs answered to the rows of the CSV."""

import itertools
from dataclasses import dataclass
from statistics import fmean

from sluice_tools.bench.common.numbers import best_effort_row, counted
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, KEY
from sluice_tools.measure.statistics import latency_figures, percentile

MIDDLE = "middle"  # the role of a program that serves requests below the critical one
FIELDS = (
    *KEY, "loaded", "client", "role", "priority", "policy",
    # Latency of requests from their arrival. p99_ms is empty where there are too few requests.
    "jobs", "window_s", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms",
    # Mean time in calls that wait for the GPU, for each request; empty where nobody counts it.
    "wait_ms",
    # The same from the moment at which the program begins with a request.
    "work_p50_ms", "work_p90_ms", "work_p99_ms", "active_share", "dropped", "announced", "outputs",
    # Speed; its unit is "requests" or "steps".
    "per_s", "unit", "step_p50_ms", "step_max_ms",
    # What the interposer counted in counted_s, which is longer than the window by up to 0.2 s and a look.
    "counted_s",
    "launches", "gated", "captured", "waited", "bypassed", "held_ms", "max_hold_opened", "unknown_launches",
    "longest_us", "ungated_graph_us", "closes", "slice",
    # Of a client with a target: learning, kept or missed; jobs of the window that ended in time, of how many.
    "target_state", "target_jobs", "target_kept", "target_limit_ms", "target_open_ms",
    "gpu", "driver", "torch", "sluice", "commit", "date", "note", "error",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """A program in a window. before, after: its client in `sluice status --json` at both ends."""

    name: str
    priority: int
    before: dict | None = None
    after: dict | None = None
    seconds: float = 0.0  # between the two


def serving_row(seen: Seen, answer: dict, begin_ns: int, end_ns: int, critical: bool) -> dict:
    """answer: of the program to `idle`. The requests that arrived in the window count, whenever they ended."""
    window_s = (end_ns - begin_ns) / 1e9
    served = [times for times in answer["served_ns"] if begin_ns <= times[0] < end_ns]
    latency_ms = [(end - due) / 1e6 for due, _, end in served]
    work_ms = [(end - began) / 1e6 for _, began, end in served]
    row = {
        "client": seen.name,
        "role": CRITICAL if critical else MIDDLE,
        "priority": seen.priority,
        "window_s": window_s,
        "per_s": len(served) / window_s,
        "unit": "requests",
        "dropped": sum(begin_ns <= due < end_ns for due in answer["dropped_ns"]),
        "outputs": answer["outputs"],
        "active_share": sum(work_ms) / 1e3 / window_s,
        "p90_ms": percentile(latency_ms, 0.9),
    }
    if "waited_ns" in answer:
        own = [ns / 1e6 for times, ns in zip(answer["served_ns"], answer["waited_ns"]) if begin_ns <= times[0] < end_ns]
        row["wait_ms"] = fmean(own) if own else None
    if "announced_ns" in answer:
        row["announced"] = sum(begin_ns <= due < end_ns for due in answer["announced_ns"])
    row |= {f"work_p{share}_ms": percentile(work_ms, share / 100) for share in (50, 90, 99)}
    return row | latency_figures(latency_ms) | _counted(seen) | _target(seen)


def _counted(seen: Seen) -> dict:
    """closes: when a critical client closes gates, by docs/reference/closing.md. slice: its state at the end."""
    row = counted(seen.before, seen.after)
    if row:
        row["counted_s"] = seen.seconds
    if row and seen.after and (closing := seen.after.get("closing")):
        row["closes"] = f"{closing['state']}:{closing['level']}"
    if row and seen.after and (slice_ := seen.after.get("slice")):
        row["slice"] = slice_["state"]
    return row


def _target(seen: Seen) -> dict:
    before, after = ((client or {}).get("target") or {} for client in (seen.before, seen.after))
    if not after:
        return {}
    more = {name: after[name] - before.get(name, 0) for name in ("jobs", "kept", "open_ns")}
    return {
        "target_state": after["state"],
        "target_jobs": more["jobs"],
        "target_kept": more["kept"],
        "target_limit_ms": (after["limit_ns"] or 0) / 1e6,
        "target_open_ms": more["open_ns"] / 1e6,
    }


def stepping_row(seen: Seen, ends_ns: list, begin_ns: int, end_ns: int) -> dict:
    """ends_ns: the begin of the first step, then the end of each. The window is from begin_ns to end_ns."""
    policy = seen.after["policy"] if seen.after else ""
    row = best_effort_row(ends_ns, begin_ns, end_ns, seen.name, policy, None, None)
    steps_ms = [
        (end - begin) / 1e6 for begin, end in itertools.pairwise(ends_ns) if end >= begin_ns and begin <= end_ns
    ]
    return (
        row
        | _counted(seen)
        | {
            "role": BEST_EFFORT,
            "priority": seen.priority,
            "unit": "steps",
            "step_p50_ms": percentile(steps_ms, 0.5),
            "step_max_ms": max(steps_ms, default=None),
        }
    )
