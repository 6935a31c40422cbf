"""Curves with fewer points that still show what matters."""

import numpy as np

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
    return np.array([a + int(np.argmax(values[a:b])) for a, b in zip(edges[:-1], edges[1:])])


def depth(begin: np.ndarray, end: np.ndarray, limit: int = DEPTH_POINTS):
    """Times and how many intervals hold each: a step curve, the largest of each stretch kept."""
    times = np.concatenate((begin, end))
    order = np.lexsort((np.concatenate((np.ones(len(begin)), -np.ones(len(end)))), times))
    level = np.cumsum(np.concatenate((np.ones(len(begin)), -np.ones(len(end))))[order]).astype(int)
    times = times[order]
    if len(times) <= limit:
        return times, level
    edges = np.linspace(times[0], times[-1], limit + 1)
    at = np.unique(np.searchsorted(times, edges[:-1]))
    return times[at], np.maximum.reduceat(level, at)


def joined(begin: np.ndarray, end: np.ndarray, window_ns: float, parts: int = 3000):
    """Groups of neighbours that could not be told apart on a screen: first and last index of each."""
    if not len(begin):
        return np.zeros(0, int), np.zeros(0, int)
    least = window_ns / parts
    first, reach = [0], end[0]
    for i in range(1, len(begin)):
        small = end[i] - begin[i] < least and end[i - 1] - begin[i - 1] < least
        if not (small and begin[i] - reach < least):
            first.append(i)
        reach = max(reach, end[i])
    first = np.array(first)
    return first, np.concatenate((first[1:] - 1, [len(begin) - 1]))
