"""Reads the pairs of `sluice opbench pairs`, and says what is in them."""

import json
import lzma
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.opbench.records import content, opened, whole_lines
from sluice_tools.predict.reader import kind_of

MOST_NAMES = 40  # in a table, each of a program


@dataclass(frozen=True)
class Pair:
    kind: str
    device: str
    programs: tuple[str, str]
    tasks: tuple[str, str]
    speedup: float | None  # None: the pair failed
    slowdown: tuple[float | None, float | None]  # of each program; None: it got nothing while the other ran
    disturbed: bool
    alone_s: tuple[float, float] = (math.nan, math.nan)

    @property
    def good(self) -> bool:
        return self.speedup is not None and not self.disturbed


def _pair(line: str) -> Pair:
    found = json.loads(line)
    if found["error"]:
        return Pair(found["kind"], found["device"], *_sides(found), None, (None, None), False)
    slowdown = (found["slowdown"][0], found["slowdown"][1])
    alone_s = found.get("alone_s", (math.nan, math.nan))
    common = (found["kind"], found["device"], *_sides(found), found["speedup"], slowdown, found["disturbed"])
    return Pair(*common, (alone_s[0], alone_s[1]))


def _sides(found: dict) -> tuple[tuple[str, str], tuple[str, str]]:
    return (found["programs"][0], found["programs"][1]), (found["tasks"][0], found["tasks"][1])


def is_pairs(path: Path) -> bool:
    """Whether the file begins with a pair, and not with a record of one program."""
    try:
        with opened(path) as file:
            return "programs" in json.loads(file.readline())
    except (OSError, EOFError, lzma.LZMAError, ValueError, TypeError):
        return False


def read(path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(whole_lines(path, content(path)), 1):
        try:
            pairs.append(_pair(line))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise usage_error(f"{path}: line {number}: not a record of a pair: {error!r}") from None
    return pairs


def latest(pairs: list[Pair]) -> list[Pair]:
    """The good pairs; of two of the same programs the later."""
    return list({(one.kind, one.device, one.programs): one for one in pairs if one.good}.values())


def rows(pairs: list[Pair]) -> list[dict]:
    """A row for each kind and device."""
    found = []
    for kind, device in sorted({(one.kind, one.device) for one in pairs}):
        group = [one for one in pairs if (one.kind, one.device) == (kind, device)]
        good = latest(group)
        slowdowns = [value for one in good for value in one.slowdown]
        known = [value for value in slowdowns if value is not None]
        found.append(
            {
                "kind": kind,
                "device": device,
                "pairs": len(good),
                "failed": sum(one.speedup is None for one in group),
                "disturbed": sum(one.disturbed for one in group),
                "median_speedup": statistics.median(one.speedup or 0.0 for one in good) if good else None,
                "median_slowdown": statistics.median(known) if known else None,
                "got_nothing": len(slowdowns) - len(known),
            }
        )
    return found


def grid(pairs: list[Pair]) -> tuple[list[str], list[list[float | None]]]:
    """Names of operators, and how much slower the one of the row runs next to that of the column. None: not
    measured. Of more than MOST_NAMES operators, those of one kind share a name, and the cells are medians."""
    tasks: dict[str, str] = {}
    for one in pairs:
        tasks.update(zip(one.programs, one.tasks))
    names = {program: f"{task} {program[:6]}" for program, task in tasks.items()}
    if len(names) > MOST_NAMES:
        names = {program: kind_of(task) for program, task in tasks.items()}
    order = sorted(set(names.values()))
    found: dict[tuple[str, str], list[float]] = {}
    for one in latest(pairs):
        first, second = (names[program] for program in one.programs)
        for cell, slowdown in (((first, second), one.slowdown[0]), ((second, first), one.slowdown[1])):
            if slowdown is not None:
                found.setdefault(cell, []).append(slowdown)
    medians = {cell: statistics.median(slowdowns) for cell, slowdowns in found.items()}
    return order, [[medians.get((row, column)) for column in order] for row in order]
