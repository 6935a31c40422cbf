"""Rows that need not fit into memory: kept, and sorted, a chunk at a time.

What is more than a buffer goes to a file without a name, in TMPDIR or /var/tmp (in many systems /tmp
is memory), which is gone when nobody reads it any more, whatever ends the process.
"""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from sluice_tools.common.errors import run_error

Rows = np.ndarray[Any, np.dtype[np.void]]  # of a type with named columns
BUFFER_BYTES = 32 << 20  # what one Sorter holds
CHUNK_BYTES = 4 << 20  # what a Spill holds, and gives at a time
_LEAST_ROWS = 1024


def _folder() -> str | None:
    wanted = os.environ.get("TMPDIR") or "/var/tmp"
    return wanted if os.access(wanted, os.W_OK) else None


def columns(dtype, count: int, /, **values) -> Rows:
    """Rows of these columns, each an array or one value for all; 0 where one is not named."""
    rows: Rows = np.zeros(count, dtype)
    for name, column in values.items():
        rows[name] = column
    return rows


class Spill:
    """Rows of one type in the order in which they are added."""

    def __init__(self, dtype):
        self.dtype: Any = np.dtype(dtype)
        self._held: list[np.ndarray] = []
        self._count = self._written = 0
        self._file = None

    def __len__(self) -> int:
        return self._count

    def add(self, rows: np.ndarray) -> None:
        self._held.append(rows)
        self._count += len(rows)
        if (self._count - self._written) * self.dtype.itemsize > CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        try:
            if not self._file:
                self._file = tempfile.TemporaryFile(dir=_folder())  # noqa: SIM115  open as long as this object
            self._file.seek(0, os.SEEK_END)
            for rows in self._held:
                self._file.write(np.ascontiguousarray(rows).data.cast("B"))
            self._file.flush()
        except OSError as error:
            raise run_error(
                f"cannot keep rows in {_folder() or tempfile.gettempdir()}: "
                f"{error.strerror or error}; let TMPDIR name a folder with more room"
            ) from error
        self._written, self._held = self._count, []

    def read(self, first: int, last: int) -> np.ndarray:
        """The rows from `first` to before `last`."""
        parts, at = [], self._written
        if first < at and self._file:
            self._file.seek(first * self.dtype.itemsize)
            parts.append(np.fromfile(self._file, self.dtype, min(last, at) - first))
        for rows in self._held:
            parts.append(rows[max(first - at, 0) : max(last - at, 0)])
            at += len(rows)
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def chunks(self, first: int = 0, last: int | None = None, rows: int | None = None) -> Iterator[np.ndarray]:
        step = rows or max(int(CHUNK_BYTES // self.dtype.itemsize), 1)
        last = len(self) if last is None else last
        for at in range(first, last, step):
            yield self.read(at, min(at + step, last))


class Sorter:
    """Rows by `keys`. Equal ones stay in the order in which they were added."""

    def __init__(self, dtype, *keys: str):
        self._keys = keys
        self._runs = Spill(dtype)
        self._ends = [0]
        self._held: list[np.ndarray] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: np.ndarray) -> None:
        self._held.append(rows)
        self._count += len(rows)
        if (self._count - self._ends[-1]) * self._runs.dtype.itemsize > BUFFER_BYTES:
            self._runs.add(self._sorted(self._held))
            self._runs.flush()
            self._ends.append(len(self._runs))
            self._held = []

    def _sorted(self, parts: list[Rows]) -> Rows:
        rows: Any = np.concatenate([np.empty(0, self._runs.dtype), *parts])
        return rows[np.lexsort([rows[key] for key in reversed(self._keys)])]

    def chunks(self) -> Iterator[np.ndarray]:
        """All that was added. Rows alike in the first key come in one chunk, so let them be few."""
        self._held = [self._sorted(self._held)]
        (rest,) = self._held
        share = min(BUFFER_BYTES // len(self._ends), CHUNK_BYTES)
        size = max(share // rest.itemsize, _LEAST_ROWS)
        runs = [self._runs.chunks(first, last, size) for first, last in zip(self._ends, self._ends[1:])]
        runs.append(rest[at : at + size] for at in range(0, max(len(rest), 1), size))
        batch: list[np.ndarray] = []
        for rows in self._merge([_Head(run, self._keys[0]) for run in runs]):
            batch.append(rows)
            if sum(map(len, batch)) * rows.itemsize > CHUNK_BYTES:
                yield np.concatenate(batch)
                batch = []
        if batch:
            yield np.concatenate(batch)

    def _merge(self, heads: list["_Head"]) -> Iterator[np.ndarray]:
        while True:
            # Of the last row known of a run, and of what is alike, more may follow.
            growing = [head for head in heads if not head.ended]
            bound = min((head.last for head in growing), default=None)
            taken = [rows for head in heads if len(rows := head.take_before(bound))]
            if taken:
                yield self._sorted(taken) if len(taken) > 1 else taken[0]
            for head in growing:
                if head.last == bound:
                    head.extend()
            if not growing:
                return


class _Head:
    """The first rows of a sorted run."""

    def __init__(self, chunks: Iterator[np.ndarray], key: str):
        self._chunks, self._key = chunks, key
        self._rows = next(chunks)
        self.ended = len(self._rows) == 0

    @property
    def last(self):
        return self._rows[self._key][-1]

    def extend(self) -> None:
        following = next(self._chunks, None)
        if following is None:
            self.ended = True
        else:
            self._rows = np.concatenate([self._rows, following])

    def take_before(self, bound) -> np.ndarray:
        """Of these rows; all where there is no bound."""
        count = len(self._rows)
        if bound is not None:
            count = int(np.searchsorted(self._rows[self._key], bound))
        taken, self._rows = self._rows[:count], self._rows[count:]
        return taken
