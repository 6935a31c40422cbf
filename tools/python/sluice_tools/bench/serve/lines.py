"""The results of a part: a JSON line for each cell, on the disk as soon as it is known."""

import json
import os
import sys
import time
from pathlib import Path

from sluice_tools.bench.serve.setting import Setting
from sluice_tools.common.errors import usage_error
from sluice_tools.measure import table
from sluice_tools.measure.needs import ON_CPU, driver_and_slices, gpus, torch_version, version
from sluice_tools.measure.rows import KEY, Cell
from sluice_tools.measure.sitting import Group, Sitting


class Lines:
    """Cells by their key, each a list of rows. Results of a Sitting, as measure.rows.Rows, with nested values.

    A line is {subject, mode, cell, repeat, rows} or, for a cell that failed, {..., error}, which a later line replaces.
    """

    def __init__(self, file: Path):
        self.file = file
        self._cells: dict[tuple, dict] = {}
        if file.exists():
            self._read()

    def _read(self) -> None:
        lines = self.file.read_text(errors="replace").splitlines()
        for number, text in enumerate(lines, 1):
            try:
                line = json.loads(text)
            except ValueError:  # its write was cut off
                continue
            try:
                self._cells[tuple(line[name] for name in KEY)] = line
            except (KeyError, TypeError):
                raise usage_error(f"{self.file}:{number}: not a result; name another folder with --out") from None

    def has(self, cell: Cell) -> bool:
        return bool(self.of(cell))

    def of(self, cell: Cell) -> list[dict]:
        """The rows of a cell, with its key."""
        return _with_key(self._cells.get(cell.key, {}))

    @property
    def rows(self) -> list[dict]:
        """Of all cells."""
        return [row for line in self._cells.values() for row in _with_key(line)]

    @property
    def errors(self) -> list[dict]:
        return [line for line in self._cells.values() if "error" in line]

    def add(self, cell: Cell, measured: list[dict]) -> None:
        self._write(cell, {"rows": measured})

    def fail(self, cell: Cell, why: str) -> None:
        self._write(cell, {"rows": [], "error": " ".join(why.split()) or "failed"})

    def _write(self, cell: Cell, more: dict) -> None:
        line = dict(zip(KEY, cell.key)) | more
        cut = self.file.exists() and not self.file.read_bytes().endswith(b"\n") and self.file.stat().st_size > 0
        with self.file.open("a") as file:
            file.write(("\n" if cut else "") + json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())  # the machine may be taken away the next moment
        self._cells[cell.key] = line


def _with_key(line: dict) -> list[dict]:
    return [{name: line[name] for name in KEY} | row for row in line.get("rows", ())]


def machine_of(setting: Setting) -> dict:
    """Columns that every row gets. Raises CommandError without the GPU."""
    if setting.tiny:
        name = "CPU, tiny models"
    else:
        name = gpus(setting.sluice, "real", setting.device, ON_CPU)["devices"][setting.device]["name"]
    driver = "" if setting.tiny else driver_and_slices(setting.sluice, setting.device, ON_CPU)
    return {"gpu": name, "driver": driver, "torch": torch_version(), "sluice": version(setting.sluice)}


def failures(lines: Lines) -> list[str]:
    """A sentence per cell that failed."""
    return table.failures(lines.errors)


def measure(setting: Setting, lines: Lines, groups: list[Group], machine: dict, describe) -> int:
    """Measures the cells that `lines` lacks, and says how many are left. describe: as in Sitting."""
    limit_s = max(setting.deadline - time.monotonic(), 0.001) if setting.deadline else None
    result = Sitting("sluice bench", lines, groups, limit_s, machine, describe).run()
    if result.left:
        left = f"{result.left} cells of {lines.file.stem} are left"
        print(f"sluice bench: {left}; the same command goes on", file=sys.stderr, flush=True)
    return result.exit_code
