"""Queue depth over time: launches issued minus kernels ended."""

import numpy as np
import pandas as pd

BINS = 2000


def _integral(times: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """At each edge, the time for which each of the (sorted) times is past, summed."""
    sums = np.r_[0.0, np.cumsum(times, dtype=float)]
    before = np.searchsorted(times, edges, "right")
    return before * edges - sums[before]


def queue_depth(issue: np.ndarray, end: np.ndarray, begin_ns: int, end_ns: int,
                bins: int = BINS) -> pd.DataFrame:
    """BinStart, BinEnd, MeanDepth (over the time of the bin), MaxDepth. Between begin_ns and end_ns
    in bins of one width."""
    edges = np.unique(np.linspace(begin_ns, max(end_ns, begin_ns + 1), bins + 1).astype(np.int64))
    issue, end = np.sort(issue), np.sort(end)
    zero = float(begin_ns)
    area = _integral(issue - zero, edges - zero) - _integral(end - zero, edges - zero)
    mean = np.diff(area) / np.diff(edges)

    # The depth is highest behind a launch, or where a bin begins. At one instant ends count before
    # launches: one kernel at a time is a depth of one.
    behind = np.arange(1, len(issue) + 1) - np.searchsorted(end, issue, "right")
    highest = (np.searchsorted(issue, edges[:-1], "right")
               - np.searchsorted(end, edges[:-1], "right"))
    first = np.searchsorted(issue, edges[:-1], "left")
    last = np.searchsorted(issue, edges[1:], "left")
    inside = first < last
    if inside.any():
        # Every second piece is the stretch between two bins.
        pieces = np.column_stack([first[inside], last[inside]]).ravel()
        within = np.maximum.reduceat(np.r_[behind, 0], pieces)[::2]
        highest[inside] = np.maximum(highest[inside], within)
    return pd.DataFrame({"BinStart": edges[:-1], "BinEnd": edges[1:],
                         "MeanDepth": np.maximum(mean, 0).round(6), "MaxDepth": highest})
