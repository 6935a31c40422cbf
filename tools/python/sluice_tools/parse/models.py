"""What is gathered of each model while the kernels go by."""

from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.parse.digits import csv_rows

HEADS = b"IssueStart,IssueEnd,ExecutionStart,ExecutionEnd,KernelDur\n"
DELAY_HEADS = b"IssueStart,QueueDelay\n"
_SMALL = np.iinfo(np.uint32).max


def _compact(values: np.ndarray) -> np.ndarray:
    """Half the memory, for what is under 4.3 s."""
    small = len(values) == 0 or (values.min() >= 0 and values.max() <= _SMALL)
    return values.astype(np.uint32) if small else values


class Model:
    """The files of one process, written row by row, and of each kernel 24 bytes for later."""

    def __init__(self, name: str, pid: int, folder: Path):
        self.name, self.pid = name, pid
        # A model's name is a path in some experiments.
        self.stem = f"{name}_{pid}".replace("/", "_")
        self._kernels = (folder / f"{self.stem}.csv").open("wb")
        self._delays = (folder / f"{self.stem}_queue_delay.csv").open("wb")
        self._kernels.write(HEADS)
        self._delays.write(DELAY_HEADS)
        self._parts: dict[str, list[np.ndarray]] = {
            name: [] for name in ("issue", "end", "duration", "delay")}

    @property
    def label(self) -> str:
        return f"{self.name}_{self.pid}"

    def add(self, rows: pd.DataFrame) -> None:
        issue, api, start, duration = (
            rows[name].to_numpy() for name in ("API Start", "API Dur", "Kernel Start", "Kernel Dur"))
        issued, end = issue + api, start + duration
        # The GPU may begin before the call has returned.
        delay = np.maximum(start - issued, 0)
        self._kernels.write(csv_rows([issue, issued, start, end, duration]))
        self._delays.write(csv_rows([issue, delay]))
        for name, values in (("issue", issue), ("end", end), ("duration", _compact(duration)),
                             ("delay", _compact(delay))):
            self._parts[name].append(values)

    def values(self, name: str) -> np.ndarray:
        """issue, end, duration or delay, of all kernels."""
        parts = self._parts[name]
        if len(parts) > 1:
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0]

    @property
    def count(self) -> int:
        return sum(len(part) for part in self._parts["issue"])

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
