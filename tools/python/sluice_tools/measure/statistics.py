"""The one percentile of all tools, and how many jobs it takes to state one.

base/statistics.hpp is the same in C++.
"""

import math

# With fewer jobs, none is expected to lie above the 99th percentile: it would only be an
# interpolation towards the slowest job.
ENOUGH_FOR_P99 = 100
# With fewer jobs, no cell is called better than another.
ENOUGH_TO_JUDGE = 20


def percentile(values: list, share: float) -> float | None:
    """The value below which the part `share` (0 to 1) of the sample is.

    Interpolates linearly between the two nearest ranks, as numpy does by default. None for an empty
    sample.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def latency_figures(latency_ms: list) -> dict:
    """jobs, mean_ms, p50_ms, p99_ms and max_ms of jobs; None where there are too few for a figure."""
    jobs = len(latency_ms)
    return {
        "jobs": jobs,
        "mean_ms": sum(latency_ms) / jobs if jobs else None,
        "p50_ms": percentile(latency_ms, 0.5),
        "p99_ms": percentile(latency_ms, 0.99) if jobs >= ENOUGH_FOR_P99 else None,
        "max_ms": max(latency_ms, default=None),
    }
