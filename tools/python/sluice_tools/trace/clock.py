"""Converts between CLOCK_MONOTONIC and CLOCK_REALTIME, which may step."""

from typing import Any

import numpy as np

# A larger change between two readings is a step. The slow correction of a clock is at most 0.5 ms a second.
STEP_NS = 5_000_000


class Clock:
    """Pairs (monotonic ns, real ns) of one machine; between two pairs the first one holds."""

    def __init__(self, pairs):
        ordered = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
        self.monotonic = ordered[:, 0]
        self.offset = ordered[:, 1] - ordered[:, 0]

    def __len__(self) -> int:
        return len(self.monotonic)

    def __iter__(self):
        """The pairs."""
        return iter(zip(self.monotonic.tolist(), (self.monotonic + self.offset).tolist()))

    def to_real(self, monotonic_ns):
        """Of a number or an array."""
        times = np.asarray(monotonic_ns, np.int64)
        if not len(self):
            return times
        place = np.searchsorted(self.monotonic, times, "right") - 1
        return times + self.offset[np.maximum(place, 0)]

    def to_monotonic(self, real_ns) -> Any:
        """Of a time that passed twice, because of a step back, the first. A time that a step forward left
        out counts from before the step."""
        times = np.asarray(real_ns, np.int64)
        if not len(self):
            return times
        begin_real = self.monotonic + self.offset
        first = np.r_[0, np.flatnonzero(np.abs(np.diff(self.offset)) > STEP_NS) + 1]
        last = np.r_[first[1:], len(self)]
        result = np.empty(times.shape, np.int64)
        found = np.zeros(times.shape, bool)
        # Where no stretch between two steps has the time: the last one that began before it.
        begun = np.full(times.shape, np.iinfo(np.int64).min)
        for a, b in zip(first, last):
            # Within a stretch the offset moves by the slow correction only.
            place = np.searchsorted(begin_real[a:b], times, "right") - 1
            monotonic = times - self.offset[a:b][np.maximum(place, 0)]
            end = self.monotonic[b] if b < len(self) else np.iinfo(np.int64).max
            better = ~found & (((place >= 0) & (begin_real[a] >= begun)) | (a == 0))
            result[better] = monotonic[better]
            begun[better] = np.where(place >= 0, begin_real[a], begun)[better]
            found |= (place >= 0) & (monotonic < end)
        return result if result.shape else int(result)

    def steps(self) -> list[tuple[int, int]]:
        """(monotonic ns, by how many ns the real clock had stepped since the look before)."""
        jumps = np.diff(self.offset)
        return [(int(self.monotonic[i + 1]), int(jumps[i])) for i in np.flatnonzero(np.abs(jumps) > STEP_NS)]
