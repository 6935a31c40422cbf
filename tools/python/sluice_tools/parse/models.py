"""What is gathered of each model while the kernels go by."""

import functools
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv

from sluice_tools.common.progress import counted
from sluice_tools.parse.ranks import Ranks
from sluice_tools.trace.depth import Depth
from sluice_tools.trace.spill import Spill, columns

HEADS = b"IssueStart,IssueEnd,ExecutionStart,ExecutionEnd,KernelDur\n"
DELAY_HEADS = b"IssueStart,QueueDelay\n"
_ROW = np.dtype([(name, "<i8") for name in ("issue", "end", "duration", "delay")])


def csv_rows(columns: list[np.ndarray]) -> bytes:
    """A line for each row of the columns, which are int64. pandas takes several times as long."""
    text = io.BytesIO()
    table = pyarrow.table(columns, names=[str(place) for place in range(len(columns))])
    pyarrow.csv.write_csv(table, text, pyarrow.csv.WriteOptions(include_header=False, batch_size=1 << 16))
    return text.getvalue()


class Model:
    """The files of one process, written row by row, and its kernels for what needs all of them."""

    def __init__(self, name: str, pid: int, folder: Path):
        self.name, self.pid = name, pid
        # A model's name is a path in some experiments.
        self.stem = f"{name}_{pid}".replace("/", "_")
        self._kernels = (folder / f"{self.stem}.csv").open("wb")
        self._delays = (folder / f"{self.stem}_queue_delay.csv").open("wb")
        self._kernels.write(HEADS)
        self._delays.write(DELAY_HEADS)
        self._rows = Spill(_ROW)
        self.begin, self.end = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    @property
    def label(self) -> str:
        return f"{self.name}_{self.pid}"

    def add(self, rows: pd.DataFrame) -> None:
        issue, api, start, duration = (
            rows[name].to_numpy() for name in ("API Start", "API Dur", "Kernel Start", "Kernel Dur")
        )
        issued, end = issue + api, start + duration
        # The GPU may begin before the call has returned.
        delay = np.maximum(start - issued, 0)
        self._kernels.write(csv_rows([issue, issued, start, end, duration]))
        self._delays.write(csv_rows([issue, delay]))
        self._rows.add(columns(_ROW, len(rows), issue=issue, end=end, duration=duration, delay=delay))
        self.begin, self.end = min(self.begin, int(issue.min())), max(self.end, int(end.max()))

    def rows(self) -> Iterator[np.ndarray]:
        """issue, end, duration and delay of all kernels, some at a time."""
        return counted(f"counting {self.label}", self.count, self._rows.chunks())

    @functools.cached_property
    def durations(self) -> Ranks:
        return Ranks(rows["duration"] for rows in self.rows())

    @functools.cached_property
    def delays(self) -> Ranks:
        return Ranks(rows["delay"] for rows in self.rows())

    def outstanding(self) -> Depth:
        found = Depth()
        for rows in self.rows():
            found.add(rows["issue"], rows["end"])
        return found

    @property
    def count(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        self._kernels.close()
        self._delays.close()


class Models:
    """All models, in the order in which their first kernels come."""

    def __init__(self, names: list[tuple[str, int]], folder: Path):
        self._names = {pid: name for name, pid in names}
        self._folder = folder
        self._models: dict[int, Model] = {}

    def __iter__(self):
        return iter(self._models.values())

    def add(self, rows: pd.DataFrame) -> None:
        for pid in rows["PID"].unique().tolist():
            if pid not in self._models:
                name = self._names.get(pid, "unknown")
                self._models[pid] = Model(name, pid, self._folder)
            self._models[pid].add(rows[rows["PID"] == pid])

    def unknown(self) -> dict[int, int]:
        """How many kernels of pids that no model has."""
        return {m.pid: m.count for m in self if m.pid not in self._names}

    def close(self) -> None:
        for model in self:
            model.close()
