"""The CSV of `sluice bench pairs`, which a later call goes on with, and the samples beside it."""

import csv
import io
import os
import re
from pathlib import Path

from sluice_tools.errors import usage_error

KEY = ("pair", "mode", "cell", "arrivals", "load", "repeat")
FIELDS = (
    *KEY, "policy", "notice_ms", "n", "window_s", "period_ms", "p50_ms", "p99_ms", "p99_is_max",
    "max_ms", "mean_ms", "late_p99_ms", "dropped", "active_share", "be_jobs_per_s",
    "be_launches_per_s", "be_launches", "be_gated", "be_captured", "be_waited", "be_held_ms",
    "be_failed_open", "be_unattached", "be_foreign_capture", "be_max_hold_opened",
    "be_unknown_launches", "be_longest_us", "be_bare_graph_us", "gpu", "driver", "torch", "sluice",
    "date", "error",
)


def key_of(group, cell) -> dict:
    values = (group.pair, group.mode, cell.name, cell.arrivals, cell.load, group.repeat)
    return {name: str(value) for name, value in zip(KEY, values)}


def number(row: dict, name: str):
    """None where the row has none."""
    return float(row[name]) if row.get(name) not in (None, "") else None


class Records:
    """Rows by KEY. A row with an error does not count as measured; a later one replaces it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = folder / "pairs.csv"
        self._rows = {}
        if self.file.exists():
            self._read()

    def _read(self):
        with self.file.open(newline="") as text:
            reader = csv.DictReader(text)
            if tuple(reader.fieldnames or ()) != FIELDS:
                raise usage_error(f"{self.file} has other columns than this version writes; "
                                  "name another folder with --out")
            for row in reader:
                if None not in row.values() and None not in row:  # the write was cut off
                    self._keep(row)

    def _keep(self, row: dict):
        key = tuple(row[name] for name in KEY)
        if row["error"] == "" or key not in self._rows or self._rows[key]["error"]:
            self._rows[key] = row

    @property
    def rows(self) -> list:
        return [row for row in self._rows.values() if not row["error"]]

    @property
    def errors(self) -> list:
        return [row for row in self._rows.values() if row["error"]]

    def has(self, group, cell) -> bool:
        row = self._rows.get(tuple(key_of(group, cell).values()))
        return row is not None and not row["error"]

    def base_ms(self, pair: str):
        """The p50 that the periods of a pair were made of, where it has been measured."""
        for row in self.rows:
            if row["pair"] == pair and row["period_ms"]:
                return float(row["period_ms"]) * float(row["load"])
        return None

    def add(self, group, cell, figures: dict, samples=()) -> dict:
        """On the disk when it returns: the machine may be taken away the next moment."""
        row = {name: str(figures.get(name, "")) for name in FIELDS} | key_of(group, cell)
        row |= {"policy": cell.policy, "notice_ms": str(cell.notice_ms)}
        row["error"] = " ".join(row["error"].split())
        if samples:
            self._write_samples(row, samples)
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS)
        if not self.file.exists() or self.file.stat().st_size == 0:
            writer.writeheader()
        elif not self.file.read_bytes().endswith(b"\n"):
            text.write("\r\n")
        writer.writerow(row)
        with self.file.open("a", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        self._keep(row)
        return row

    def _write_samples(self, row: dict, samples):
        folder = self.folder / "samples"
        folder.mkdir(exist_ok=True)
        name = re.sub(r"[^A-Za-z0-9.-]", "_", "-".join(row[name] for name in KEY))
        (folder / f"{name}.txt").write_text("".join(f"{ms}\n" for ms in samples))
