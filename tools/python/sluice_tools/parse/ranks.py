"""Values by their rank, of more than memory should hold."""

from collections.abc import Iterable

import numpy as np

from sluice_tools.trace.spill import Sorter, columns

_COUNTED = np.dtype([("value", "<i8"), ("count", "<i8")])


class Ranks:
    def __init__(self, values: Iterable[np.ndarray]):
        self._sorted = Sorter(_COUNTED, "value")
        self._count = 0
        for some in values:
            value, count = np.unique(some, return_counts=True)
            self._sorted.add(columns(_COUNTED, len(value), value=value, count=count))
            self._count += len(some)

    def at(self, ranks: np.ndarray) -> np.ndarray:
        """The values of these ranks, which are in order, from 0."""
        found, before = np.empty(len(ranks), np.int64), 0
        for rows in self._sorted.chunks():
            ends = before + np.cumsum(rows["count"])
            first, last = np.searchsorted(ranks, [before, ends[-1]])
            found[first:last] = rows["value"][np.searchsorted(ends, ranks[first:last], "right")]
            before = ends[-1]
        return found

    def percentile(self, percentile: float) -> float:
        """Between two values in proportion, as numpy has it."""
        place = (self._count - 1) * percentile / 100
        low, high = self.at(np.minimum([int(place), int(place) + 1], self._count - 1)).tolist()
        share = place % 1
        return float(high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share)

    def curve(self, points: int) -> tuple[np.ndarray, np.ndarray]:
        """The values at even places, both ends included, and the share of all that is not larger."""
        places = np.arange(self._count)
        if self._count > points:
            places = np.unique(np.linspace(0, self._count - 1, points).astype(int))
        return self.at(places), (places + 1) / self._count
