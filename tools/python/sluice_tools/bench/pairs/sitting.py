"""One call of `sluice bench pairs`: the cells that are not measured yet, in order, until the time is
up."""

import datetime
import subprocess
import sys
import time

from sluice_tools.bench.pairs import summary
from sluice_tools.bench.pairs.plan import LOAD
from sluice_tools.bench.pairs.stage import CellError, Stage

_STARTING_S = 15  # two programs, on a machine that has read the libraries before
# p50 alone in ms, about: only for what a cell will last, until it is measured.
_ABOUT_MS = {"resnet50": 0.9, "bert": 1.0, "fasterrcnn": 10.0}
_FAILURES = (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError)


class TimeUp(Exception):
    """The next cell would not end before the limit."""


def _first_of(*commands) -> str:
    """The first line that the first command that runs prints."""
    for command in commands:
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
            return said.stdout.splitlines()[0].strip()
        except (OSError, IndexError, subprocess.SubprocessError):
            continue
    return ""


class Sitting:
    def __init__(self, options, records, groups: list):
        self._options = options
        self._records = records
        self._groups = groups
        self._end = time.monotonic() + options.limit_s if options.limit_s else None
        self._total = sum(len(group.cells) for group in groups)
        self._machine = {
            "driver": _first_of(["nvidia-smi", "--query-gpu=driver_version",
                                 "--format=csv,noheader"]) if options.gpu == "real" else "",
            "sluice": _first_of([options.sluice, "--version"]).removeprefix("sluice "),
        }
        self.failed = 0

    def _missing(self) -> list:
        """(group, its cells with their numbers) where something is to be measured."""
        found, number = [], 0
        for group in self._groups:
            cells = [(number + index, cell) for index, cell in enumerate(group.cells, 1)
                     if not self._records.has(group, cell)]
            number += len(group.cells)
            if cells:
                found.append((group, cells))
        return found

    def run(self) -> int:
        """Returns how many cells are left. Stages end with it, whatever ends it."""
        missing = self._missing()
        wanted = sum(len(cells) for _, cells in missing)
        print(f"sluice bench: {wanted} cells to measure, {self._total - wanted} are there",
              file=sys.stderr, flush=True)
        stage = None
        try:
            for index, (group, cells) in enumerate(missing):
                self._need_time(cells[0][1], group, _STARTING_S if stage is None else 5)
                stage = stage or self._stage(group, index)
                after = missing[index + 1] if index + 1 < len(missing) else None
                stage = self._measure_group(stage, group, cells, after, index + 1)
        except TimeUp:
            pass
        finally:
            if stage is not None:
                stage.close()
        return sum(len(cells) for _, cells in self._missing())

    def _stage(self, group, index: int):
        """None if it cannot be started: the error is in the CSV then."""
        try:
            return Stage(self._options, group, f"-{index}")
        except _FAILURES as error:
            self._fail(group, group.cells[0], error)
            return None

    def _measure_group(self, stage, group, cells: list, after, index: int):
        """Returns the stage of the group `after`, if it could be begun already."""
        coming = None
        cell = cells[0][1]
        try:
            if stage is None:
                return None
            stage.load()
            base_ms = self._records.base_ms(group.pair) or stage.base_ms()
            for number, cell in cells:
                self._need_time(cell, group, 0)
                self._measure(stage, group, cell, number, base_ms)
            if after:  # it imports while the programs here end, and beside nothing that is measured
                coming = self._stage(after[0], index)
        except _FAILURES as error:
            self._fail(group, cell, error)
        finally:
            if stage is not None:
                stage.close()
        return coming

    def _need_time(self, cell, group, more_s: float):
        if self._end is None:
            return
        base_ms = self._records.base_ms(group.pair) or _ABOUT_MS[group.critical]
        lasting = 6.0
        if cell.critical:
            lasting = 1 + min(self._options.cell_s, self._options.jobs * base_ms / cell.load / 1e3)
        if time.monotonic() + lasting + more_s > self._end:
            raise TimeUp

    def _measure(self, stage, group, cell, number: int, base_ms: float):
        try:
            figures, samples = stage.measure(cell, base_ms / cell.load)
        except CellError as error:
            return self._fail(group, cell, error)
        now = datetime.datetime.now(datetime.timezone.utc)
        figures |= stage.machine | self._machine | {"date": now.isoformat(timespec="seconds")}
        row = self._records.add(group, cell, figures, samples)
        self._say(number, row, summary.one_line(row, self._records.rows))

    def _fail(self, group, cell, error: Exception):
        self.failed += 1
        self._records.add(group, cell, {"error": str(error) or type(error).__name__})
        print(f"sluice bench: {group.pair}, {group.mode}, {cell.name}: {error}", file=sys.stderr,
              flush=True)

    def _say(self, number: int, row: dict, text: str):
        what = [row["pair"], row["mode"], row["cell"]]
        if row["arrivals"] != "periodic" or float(row["load"]) != LOAD:
            what.append(f"{row['arrivals']} at {float(row['load']):.0%}")
        if row["repeat"] != "1":
            what.append(f"repeat {row['repeat']}")
        print(f"[{number}/{self._total}] {', '.join(what)}: {text}", file=sys.stderr, flush=True)
