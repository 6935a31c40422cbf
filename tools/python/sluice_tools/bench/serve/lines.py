"""The results of a part: a JSON line for each cell, on the disk as soon as it is known."""

import json
import os
import time
from pathlib import Path

from sluice_tools.bench.serve.setting import Setting
from sluice_tools.errors import usage_error
from sluice_tools.measure.rows import KEY, Cell
from sluice_tools.measure.sitting import Group, Sitting


class Lines:
    """Cells by their key, each a list of rows; what Sitting needs of measure.rows.Rows, with nested values.

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
                self._cells[tuple(line[name] for name in KEY)] = line
            except (ValueError, KeyError, TypeError):
                if number < len(lines):  # the last one may have been cut off
                    raise usage_error(f"{self.file}:{number}: not a result; name another folder with --out") from None

    def has(self, cell: Cell) -> bool:
        return bool(self.of(cell))

    def of(self, cell: Cell) -> list[dict]:
        return self._cells.get(cell.key, {}).get("rows", [])

    @property
    def rows(self) -> list[dict]:
        """All rows, with the key of their cell."""
        return [{**{name: line[name] for name in KEY}, **row} for line in self._cells.values() for row in line["rows"]]

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


def measure(setting: Setting, lines: Lines, groups: list[Group], machine: dict, describe) -> int:
    """Measures the cells that `lines` lacks, and says how many are left. describe: as in Sitting."""
    limit_s = max(setting.deadline - time.monotonic(), 0.001) if setting.deadline else None
    result = Sitting("sluice bench", lines, groups, limit_s, machine, describe).run()
    if result.left:
        print(f"sluice bench: {lines.file.stem}: {result.left} cells are left; the same command goes on", flush=True)
    return result.exit_code
