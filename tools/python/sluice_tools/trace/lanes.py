"""Puts overlapping slices into lanes."""

import numpy as np


class Lanes:
    """Takes slices ordered by begin, some at a time. Each goes into the first lane where it overlaps no
    other: kernels of one graph, or jobs of several threads, may run at the same time."""

    def __init__(self):
        self._ends: list[int] = []

    def place(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The lane of each slice, the lowest that is free."""
        lane = np.zeros(len(begin), np.int64)
        until = np.maximum.accumulate(np.r_[self._ends[:1] or begin[:1], end])
        if (begin >= until[:-1]).all():
            self._ends[:1] = [int(until[-1])]
            return lane
        for index, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
            place = next((i for i, ended in enumerate(self._ends) if ended <= first), len(self._ends))
            self._ends[place : place + 1] = [last]
            lane[index] = place
        return lane
