"""Curves with fewer points that still show what matters."""

import itertools
from collections.abc import Sequence

CDF_POINTS, JOB_POINTS, DEPTH_POINTS = 400, 700, 700
_PARTS = 1000  # of a window: what is shorter cannot be told apart


def cdf(values: Sequence[float]) -> list[tuple[float, float]]:
    """Sorted values with the share of values up to each, both ends kept."""
    ordered = sorted(values)
    last, half = len(ordered) - 1, CDF_POINTS // 2
    if last < CDF_POINTS:
        chosen = set(range(len(ordered)))
    else:  # denser towards the upper end, where the tail is
        chosen = {round(last * place / (half - 1)) for place in range(half)}
        chosen |= {round(last * (1 - len(ordered) ** (-place / (half - 1)))) for place in range(half)}
    return [(ordered[place], (place + 1) / len(ordered)) for place in sorted(chosen)]


def slowest(values: Sequence[float], limit: int = JOB_POINTS) -> list[int]:
    """Indexes of the largest of each of `limit` stretches: all where there are no more values."""
    edges = [len(values) * place // limit for place in range(limit + 1)] if len(values) > limit else []
    if not edges:
        return list(range(len(values)))
    return [max(range(first, end), key=values.__getitem__) for first, end in itertools.pairwise(edges)]


def joined(intervals: Sequence[tuple[int, int]], window: float) -> list[tuple[int, int]]:
    """Groups of neighbours that could not be told apart on a screen: first and last index of each. Sorted by begin."""
    least, groups, reached, before = window / _PARTS, [], 0, False
    for place, (begin, end) in enumerate(intervals):
        small = end - begin < least
        if groups and small and before and begin - reached < least:
            groups[-1] = groups[-1][0], place
        else:
            groups.append((place, place))
        reached, before = max(reached, end), small
    return groups
