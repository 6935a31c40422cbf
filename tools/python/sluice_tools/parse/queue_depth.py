"""Queue depth over time: launches issued minus kernels ended."""

import numpy as np
import pandas as pd

from sluice_tools.trace.depth import Depth

BINS = 2000


def queue_depth(kernels: Depth, begin_ns: int, end_ns: int, bins: int = BINS) -> pd.DataFrame:
    """BinStart, BinEnd, MeanDepth (over the time of the bin), MaxDepth. Between begin_ns and end_ns
    in bins of one width. `kernels`: from issue to end."""
    edges = np.unique(np.linspace(begin_ns, max(end_ns, begin_ns + 1), bins + 1).astype(np.int64))
    # At each edge: the depth, and its integral up to there.
    level, area = np.zeros((2, len(edges)), np.int64)
    behind_launch = np.zeros(len(edges), np.int64)
    time, depth, integral = min(begin_ns, kernels.first), 0, 0
    for times, depths, launches in kernels.steps():
        since, held = np.r_[time, times], np.r_[depth, depths]
        integrals = integral + np.r_[0, np.cumsum(held[:-1] * np.diff(since))]
        later = edges >= since[0]
        place = np.searchsorted(since, edges[later], "right") - 1
        level[later] = held[place]
        area[later] = integrals[place] + held[place] * (edges[later] - since[place])
        bin_of = np.searchsorted(edges, times[launches], "right") - 1
        np.maximum.at(behind_launch, bin_of, depths[launches])
        time, depth, integral = since[-1], held[-1], integrals[-1]
    # The depth is highest behind a launch, or where a bin begins.
    return pd.DataFrame(
        {
            "BinStart": edges[:-1],
            "BinEnd": edges[1:],
            "MeanDepth": np.maximum(np.diff(area) / np.diff(edges), 0).round(6),
            "MaxDepth": np.maximum(level, behind_launch)[:-1],
        }
    )
