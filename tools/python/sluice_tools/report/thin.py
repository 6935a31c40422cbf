"""Curves with fewer points that still show what matters."""

import itertools

import numpy as np

from sluice_tools.trace.depth import Depth

CDF_POINTS, JOB_POINTS, DEPTH_POINTS = 400, 2000, 1500


def cdf(values: np.ndarray):
    """Sorted values and the share of values up to each, both ends kept."""
    ordered = np.sort(values)
    share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    if len(ordered) <= CDF_POINTS:
        return ordered, share
    # Denser towards the upper end, where the tail is.
    chosen = 1 - np.geomspace(1, 1 / len(ordered), CDF_POINTS // 2)
    chosen = np.unique(np.concatenate((chosen, np.linspace(0, 1, CDF_POINTS // 2))))
    index = np.unique(np.round(chosen * (len(ordered) - 1)).astype(int))
    return ordered[index], share[index]


def slowest(values: np.ndarray, limit: int = JOB_POINTS) -> np.ndarray:
    """Indexes of the largest of each of `limit` stretches: all where there are no more values."""
    if len(values) <= limit:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), limit + 1).astype(int)
    return np.array([a + int(np.argmax(values[a:b])) for a, b in itertools.pairwise(edges)])


def depth(intervals: Depth, limit: int = DEPTH_POINTS):
    """Times and how many intervals hold each: a step curve, the largest of each stretch kept."""
    if len(intervals) <= limit:
        parts = [(times, level) for times, level, _ in intervals.steps()]
        return tuple(np.concatenate(column) for column in zip(*parts))
    edges = np.linspace(intervals.first, intervals.last, limit + 1)[:-1]
    at, highest = np.full((2, limit), np.iinfo(np.int64).min)
    for times, level, _ in intervals.steps():
        stretch = np.maximum(np.searchsorted(edges, times, "right") - 1, 0)
        np.maximum.at(highest, stretch, level)
        begun, first = np.unique(stretch, return_index=True)
        at[begun] = np.where(at[begun] < 0, times[first], at[begun])
    return at[at >= 0], highest[at >= 0]


def joined(begin: np.ndarray, end: np.ndarray, window_ns: float, parts: int = 3000):
    """Groups of neighbours that could not be told apart on a screen: first and last index of each."""
    if not len(begin):
        return np.zeros(0, int), np.zeros(0, int)
    least = window_ns / parts
    small = end - begin < least
    near = begin[1:] - np.maximum.accumulate(end)[:-1] < least
    first = np.flatnonzero(np.r_[True, ~(small[1:] & small[:-1] & near)])
    return first, np.concatenate((first[1:] - 1, [len(begin) - 1]))
