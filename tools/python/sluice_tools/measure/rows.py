"""The CSV of a measurement: one row per client, cell and repeat, on the disk as soon as it is known."""

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.errors import run_error, usage_error

CRITICAL, BEST_EFFORT = "critical", "best effort"
LOCK = ".lock"  # in every folder of a measurement
KEY = ("subject", "mode", "cell", "repeat")
FIELDS = (
    *KEY, "client", "role", "policy",
    # Latency of the jobs that ended in the window. p99_ms is empty where there are too few jobs.
    "jobs", "window_s", "mean_ms", "p50_ms", "p99_ms", "max_ms",
    # Speed; its unit is "jobs" or "launches".
    "per_s", "unit",
    # Share of the window in which a job of the client was active.
    "active_share", "dropped", "collided_ms", "uncollided_ms",
    # What the interposer counted in the window.
    "launches", "gated", "captured", "waited", "bypassed", "held_ms", "max_hold_opened", "unknown_launches",
    "longest_us", "ungated_graph_us", "gpu", "driver", "torch", "sluice", "date", "note", "error",
)  # fmt: skip

# Of a critical client with a target, by the board, in the window: jobs that ended, and those that were in time.
TARGET_FIELDS = ("target", "target_state", "limit_ms", "target_jobs", "target_kept")


@dataclass(frozen=True)
class Cell:
    """One condition of one repeat. `seconds`: about how long it takes to measure."""

    subject: str
    mode: str
    name: str
    repeat: int = 1
    seconds: float = 0.0

    @property
    def key(self) -> tuple:
        return self.subject, self.mode, self.name, str(self.repeat)


def number(row: dict, name: str) -> float | None:
    """None where the row has no such figure."""
    return float(row[name]) if row.get(name) not in (None, "") else None


class Rows:
    """The rows of one CSV with the columns `fields`. A cell that failed has one row with an error, which a later
    row replaces."""

    def __init__(self, file: Path, fields: tuple = FIELDS, older: bool = False):
        """older: to read only, so that columns which an older version did not write may be missing."""
        self.file = file
        self._older = older
        self._fields = fields
        self._cells: dict[tuple, list] = {}
        if file.exists():
            self._read()

    def _read(self) -> None:
        try:
            with self.file.open(newline="") as text:
                reader = csv.DictReader(text)
                heads, rows = tuple(reader.fieldnames or ()), list(reader)
        except (ValueError, csv.Error) as error:
            raise usage_error(f"{self.file} is not a CSV ({error}); name another folder with --out") from error
        if self._older and set(heads) < set(self._fields):
            rows = [dict.fromkeys(self._fields, "") | row for row in rows]
        elif heads != self._fields:
            raise usage_error(f"{self.file} has other columns than this version writes; name another folder with --out")
        for row in rows:
            if None not in row.values() and None not in row:  # else the write was cut off
                self._keep(row)

    def _keep(self, row: dict) -> None:
        key = tuple(row[name] for name in KEY)
        kept = self._cells.get(key, [])
        if row["error"]:
            if all(one["error"] for one in kept):
                self._cells[key] = [row]
        else:
            self._cells[key] = [one for one in kept if not one["error"]] + [row]

    def has(self, cell: Cell) -> bool:
        return any(not row["error"] for row in self._cells.get(cell.key, ()))

    def of(self, cell: Cell) -> list:
        return [row for row in self._cells.get(cell.key, ()) if not row["error"]]

    @property
    def rows(self) -> list:
        return [row for rows in self._cells.values() for row in rows if not row["error"]]

    @property
    def errors(self) -> list:
        return [row for rows in self._cells.values() for row in rows if row["error"]]

    def add(self, cell: Cell, measured: list) -> None:
        """Writes all rows of a cell at once, so that the file never has half a cell.

        The rows are on the disk when this returns: the machine may be taken away the next moment.
        """
        rows = []
        for figures in measured:
            unknown = set(figures) - set(self._fields)
            assert not unknown, f"no such column: {', '.join(sorted(unknown))}"
            row = {name: _text(figures.get(name)) for name in self._fields} | dict(zip(KEY, cell.key))
            rows.append(row)
        text = io.StringIO()
        writer = csv.DictWriter(text, self._fields, lineterminator="\n")
        if self._is_empty():
            writer.writeheader()
        elif not self.file.read_bytes().endswith(b"\n"):
            text.write("\n")
        writer.writerows(rows)
        with self.file.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                _write_all(file, text.getvalue().encode())
                os.fsync(file.fileno())
            except OSError:  # a full disk: one row of two would count as the whole cell
                file.truncate(before)
                raise
        for row in rows:
            self._keep(row)

    def _is_empty(self) -> bool:
        return not self.file.exists() or self.file.stat().st_size == 0

    def begin(self) -> None:
        """Writes the head, so that several processes can add rows."""
        if self._is_empty():
            self.file.write_text(",".join(self._fields) + "\n")

    def fail(self, cell: Cell, why: str) -> None:
        self.add(cell, [{"error": " ".join(why.split()) or "failed"}])


def _write_all(file: io.RawIOBase, data: bytes) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def _text(value) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Makes the folder and locks it: two measurements in one folder would mix their rows.

    The kernel releases the lock with the process, so a killed measurement blocks nothing.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise usage_error(f"--out: {folder} is in use by another measurement") from None
        except OSError as error:
            raise run_error(f"--out: cannot write {error.filename or folder}: {error.strerror}") from error
        yield folder


def claim(file: Path, settings: dict, what: str) -> None:
    """Raises CommandError if the folder of `file` holds rows of other settings: in one CSV they would be
    compared as if they were alike. what: the rows that it holds then, for the message."""
    text = json.dumps(settings, indent=2) + "\n"
    held = file.read_text(errors="replace") if file.exists() else ""
    if held and held != text:
        raise usage_error(f"{file.parent} holds {what}; give another --out")
    file.write_text(text)
