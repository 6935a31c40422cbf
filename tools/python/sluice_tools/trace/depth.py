"""How many of many intervals hold each moment, of more than memory should hold."""

from collections.abc import Iterator

import numpy as np

from sluice_tools.trace.spill import Sorter

# Twice the time, and one more where an interval begins: at one moment ends come first, so that one
# kernel at a time is a depth of one.
_EVENT = np.dtype([("event", "<i8")])


class Depth:
    """`first` and `last`: the times between which intervals begin and end."""

    def __init__(self):
        self._events = Sorter(_EVENT, "event")
        self.first, self.last = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def __len__(self) -> int:
        """How many begins and ends there are."""
        return len(self._events)

    def add(self, begin: np.ndarray, end: np.ndarray) -> None:
        if not len(begin):
            return
        self._events.add(np.concatenate([begin * 2 + 1, end * 2]).view(_EVENT))
        self.first = min(self.first, int(begin.min()), int(end.min()))
        self.last = max(self.last, int(begin.max()), int(end.max()))

    def steps(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """In order, some at a time: the time of each event, the depth behind it, and whether it is a
        begin."""
        depth = 0
        for rows in self._events.chunks():
            begins = (rows["event"] & 1).astype(bool)
            depths = depth + np.cumsum(np.where(begins, 1, -1))
            depth = int(depths[-1])
            yield rows["event"] >> 1, depths, begins

    def busy(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Begins and ends of the times that some interval holds, joined where they touch, some at a
        time."""
        begin, times, depths = self.first, np.empty(0, np.int64), np.empty(0, np.int64)
        for more_times, more_depths, _ in self.steps():
            times, depths = np.r_[times[-1:], more_times], np.r_[depths[-1:], more_depths]
            idle = np.flatnonzero((depths[:-1] == 0) & (times[1:] > times[:-1]))
            begins = np.r_[begin, times[idle + 1]]
            yield begins[:-1], times[idle]
            begin = begins[-1]
        if len(self):
            yield np.array([begin]), np.array([self.last])
