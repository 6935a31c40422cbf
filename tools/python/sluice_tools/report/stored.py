"""The intervals of a long trace, of which some are looked at."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sluice_tools.trace.records import Names
from sluice_tools.trace.spill import Spill, columns

_NONE = np.zeros(0, dtype=np.int64)
PIECE_ROWS = 200_000


@dataclass
class Spans:
    """Intervals in real CLOCK_MONOTONIC ns, sorted by begin."""

    begin: np.ndarray = field(default_factory=lambda: _NONE)
    end: np.ndarray = field(default_factory=lambda: _NONE)
    extra: dict = field(default_factory=dict)  # further columns by name, of the same length

    def __post_init__(self):
        order = np.argsort(self.begin, kind="stable")
        self.begin, self.end = np.asarray(self.begin)[order], np.asarray(self.end)[order]
        self.extra = {name: np.asarray(column)[order] for name, column in self.extra.items()}

    def __len__(self) -> int:
        return len(self.begin)

    def chosen(self, rows: np.ndarray) -> "Spans":
        """By a mask."""
        return Spans(self.begin[rows], self.end[rows], {name: column[rows] for name, column in self.extra.items()})

    def within(self, begin: int, end: int) -> "Spans":
        """Those that overlap the window, whole."""
        return self.chosen((self.end > begin) & (self.begin < end))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.extra[name]


class Stored:
    """Any number of intervals, about by begin: those of a window are found without reading all."""

    def __init__(self, *extra: str, names: Names | None = None):
        """`extra`: further columns of numbers; `names` makes texts of the one called name."""
        self._extra, self._names = extra, names
        self._rows = Spill([(name, "<i8") for name in ("begin", "end", *extra)])
        self._blocks: list = []  # (number of rows, first begin, last end)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, begin: np.ndarray, end: np.ndarray, **extra: np.ndarray) -> None:
        if len(begin):
            self._rows.add(columns(self._rows.dtype, len(begin), begin=begin, end=end, **extra))
            self._blocks.append((len(begin), int(np.min(begin)), int(np.max(end))))

    def chunks(self) -> Iterator[np.ndarray]:
        """All rows, some at a time, with the numbers of names."""
        return self._rows.chunks()

    def begins(self) -> list:
        """Times between which there are not too many."""
        return [begin for _, begin, _ in self._blocks]

    def within(self, begin: int, end: int) -> Spans:
        """Those that overlap the window, whole."""
        return self._spans(list(self._overlapping(begin, end)))

    def pieces(self, begin: int, end: int) -> Iterator[Spans]:
        """within(), in one piece where they are not too many."""
        parts, count = [], 0
        for rows in self._overlapping(begin, end):
            parts.append(rows)
            count += len(rows)
            if count > PIECE_ROWS:
                yield self._spans(parts)
                parts, count = [], 0
        yield self._spans(parts)

    def _overlapping(self, begin: int, end: int) -> Iterator[np.ndarray]:
        at = 0
        for count, first, last in self._blocks:
            if first < end and last > begin:
                rows = self._rows.read(at, at + count)
                yield rows[(rows["end"] > begin) & (rows["begin"] < end)]
            at += count

    def _spans(self, parts: list) -> Spans:
        rows: Any = np.concatenate([np.empty(0, self._rows.dtype), *parts])
        extra = {name: rows[name] for name in self._extra}
        if self._names is not None:
            texts = self._names.categorical(rows["name"].astype(np.uint64), "?")
            extra["name"] = np.asarray(texts, dtype=object)
        return Spans(rows["begin"], rows["end"], extra)
