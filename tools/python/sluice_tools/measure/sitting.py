"""One call of a measuring command: measures the missing cells, in order."""

import contextlib
import datetime
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED
from sluice_tools.measure import summary
from sluice_tools.measure.rows import Cell

_FAILURES = (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError)


class CellError(RuntimeError):
    """This cell cannot be measured; the others of its group can."""


class Results(Protocol):
    """Where the rows of cells are kept: rows.Rows, or another form of file."""

    @property
    def rows(self) -> list: ...

    def has(self, cell: Cell) -> bool: ...

    def of(self, cell: Cell) -> list: ...

    def add(self, cell: Cell, measured: list) -> None: ...

    def fail(self, cell: Cell, why: str) -> None: ...


@dataclass
class Group:
    """Cells that share what `open` makes: an MPS daemon, or programs that stay loaded.

    `open()` gives a context manager; entering it gives a function that measures one cell and returns
    its rows, as dictionaries of figures. `more()` gives further cells once all before are measured; none ends the
    group.
    """

    cells: list[Cell]
    open: Callable[[], contextlib.AbstractContextManager]
    more: Callable[[], list[Cell]] = list


@dataclass
class Outcome:
    left: int = 0
    failed: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        return EXIT_INTERRUPTED if self.interrupted else EXIT_FAILED if self.failed else EXIT_FINE


class Sitting:
    """Measures groups of cells, with progress on standard error.

    `limit_s`: begins no cell that would end later. `machine`: columns that every row gets. `describe`: from the
    rows of a cell and all rows to what is said of the cell.
    """

    def __init__(
        self,
        command: str,
        rows: Results,
        groups: list[Group],
        limit_s: float | None = None,
        machine: dict | None = None,
        describe: Callable[[list, list], str] = summary.one_line,
    ):
        self._command = command
        self._rows = rows
        self._groups = groups
        self._machine = machine or {}
        self._describe = describe
        self._begin = time.monotonic()
        self._end = self._begin + limit_s if limit_s else None
        self._cells = [cell for group in groups for cell in group.cells]
        self._todo = [cell for cell in self._cells if not rows.has(cell)]
        self._spent = 0.0  # seconds, on cells that were to take self._planned
        self._planned = 0.0
        self._opening = 0.0  # seconds, of the slowest group so far
        self._failed = 0

    @property
    def missing(self) -> int:
        """How many cells are to be measured."""
        return len(self._todo)

    def run(self) -> Outcome:
        if len(self._todo) < len(self._cells):
            self._say(f"{len(self._cells) - len(self._todo)} of {len(self._cells)} cells are measured already")
        interrupted = False
        try:
            for group in self._groups:
                cells = [cell for cell in group.cells if not self._rows.has(cell)] or self._further(group)
                if cells and not self._measure_group(group, cells):
                    break
        except KeyboardInterrupt:
            interrupted = True
        return Outcome(len(self._todo), self._failed, interrupted)

    def _measure_group(self, group: Group, cells: list[Cell]) -> bool:
        """False once the time is up. A failure that is not the cell's own ends the group."""
        cell = cells[0]
        if self._too_late(cell, self._opening):
            return False
        began = time.monotonic()
        try:
            with group.open() as measure:
                self._opening = max(self._opening, time.monotonic() - began)
                while cells:
                    for cell in cells:
                        if self._too_late(cell):
                            return False
                        self._measure(measure, cell)
                    cells = self._further(group)
        except _FAILURES as error:
            self._fail(cell, error)
        return True

    def _further(self, group: Group) -> list[Cell]:
        """What a sitting has tried once is not tried again."""
        further = [cell for cell in group.more() if cell not in self._cells]
        self._cells += further
        self._todo += further
        return further

    def _measure(self, measure, cell: Cell) -> None:
        self._say(f"[{self._place(cell)}/{len(self._cells)}] {_title(cell)}{self._time_left()}")
        began = time.monotonic()
        try:
            measured = measure(cell)
        except CellError as error:
            return self._fail(cell, error)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self._rows.add(cell, [self._machine | figures | {"date": now} for figures in measured])
        self._spent += time.monotonic() - began
        self._planned += cell.seconds
        self._todo.remove(cell)
        self._say("    " + self._describe(self._rows.of(cell), self._rows.rows))

    def _fail(self, cell: Cell, error: Exception) -> None:
        self._failed += 1
        if cell in self._todo:  # else it is measured, and what failed came after it
            self._todo.remove(cell)
            self._rows.fail(cell, str(error) or type(error).__name__)
        self._say(f"{_title(cell)}: {error}")

    def _place(self, cell: Cell) -> int:
        return self._cells.index(cell) + 1

    def _pace(self) -> float:
        """Real seconds per planned second, loading included."""
        return self._spent / self._planned if self._planned else 1.0

    def _time_left(self) -> str:
        seconds = self._pace() * sum(cell.seconds for cell in self._todo)
        if seconds < 1:
            return ""
        text = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
        return f" (about {text} left)"

    def _too_late(self, cell: Cell, before: float = 0.0) -> bool:
        return self._end is not None and time.monotonic() + before + self._pace() * cell.seconds > self._end

    def _say(self, text: str) -> None:
        print(f"{self._command}: {text}", file=sys.stderr, flush=True)


def _title(cell: Cell) -> str:
    parts = [cell.subject, cell.mode, cell.name]
    if cell.repeat > 1:
        parts.append(f"repeat {cell.repeat}")
    return ", ".join(part for part in parts if part)
