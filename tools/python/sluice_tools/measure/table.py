"""The table of a measurement: for a terminal (at most 100 columns) and as Markdown."""

import math
import os
import re
import sys
import textwrap
from statistics import median

from sluice_tools.measure.statistics import ENOUGH_FOR_P99
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, middle

HEAD = (
    "condition", "jobs", "p50 ms", "× alone", "p99 ms", "× alone", "waits ms", "best effort", "of ideal", "in time",
)  # fmt: skip
_MOST_COLUMNS = 100
_RANGE = re.compile(r" \[[^\]]*\]")
_RANGES = (9, 8, 2, 7, 6, 4)  # the columns that have ranges; the first loses its own first
_LEFT = 1  # columns that are aligned to the left
LATENCY_OF = {
    "jobs": "Latency is that of the critical client's jobs.",
    "steps": "Latency is that of the critical client's steps (from one return of its waits to the next), because its "
    "jobs do not end, or are not alike.",
    "requests": "Latency is the load generator's own (--latency).",
}
_SPEED = (
    "best effort: speed of the best-effort client, "
    "against its own alone; of ideal: against the share of time that critical jobs leave it (more than "
    "100 %: it also ran during critical jobs)."
)
_SPREAD = "Median over the repeats [least-greatest]."
_FEW = f"max: fewer than {ENOUGH_FOR_P99} jobs are too few for a p99, so the slowest job is shown instead."
_WAITS = (
    "waits: time in calls that wait for the GPU, for each job, and as a part of the latency alone (p50). The noise of "
    "the host is not in it."
)
_IN_TIME = "in time: share of the critical jobs that kept the target of their row."
_DROPPED = "†: the critical client did not keep up, and so many of its jobs were dropped."


def _width() -> int:
    """Of the terminal, if it is narrow."""
    try:
        return min(_MOST_COLUMNS, max(40, os.get_terminal_size(sys.stdout.fileno()).columns))
    except (OSError, ValueError):  # no terminal
        return _MOST_COLUMNS


def digits(ms: float) -> int:
    return 3 if ms < 10 else 2 if ms < 100 else 1 if ms < 1000 else 0


def spread(values: list, form) -> str:
    """The median, and the range behind it where there are several values. form: value -> text."""
    if not values:
        return "-"
    text = form(median(values))
    if len(values) > 1:
        text += f" [{form(min(values))}-{form(max(values))}]"
    return text


def _ms(values: list) -> str:
    places = digits(median(values)) if values else 0
    return spread(values, lambda value: f"{value:.{places}f}")


def _x(values: list) -> str:
    value = middle(values)
    return "-" if value is None else f"{value:.2f}"


def _percent(values: list) -> str:
    return spread(values, lambda value: f"{100 * value:.0f}") + (" %" if values else "")


def _jobs(entry: Entry) -> str:
    if not entry.known_jobs:
        return "-"
    fewest, most = min(entry.known_jobs), max(entry.known_jobs)
    return str(fewest) if fewest == most else f"{fewest}-{most}"


def head(entries: list[Entry]) -> tuple:
    """Of the columns of cells(): the second one says what is counted."""
    counted = {entry.counted for entry in entries} or {"jobs"}
    return HEAD[0], counted.pop() if len(counted) == 1 else "jobs", *HEAD[2:]


def cells(entry: Entry) -> tuple:
    """The texts of one line of the table."""
    few = bool(entry.ms["max"]) and len(entry.ms["p99"]) < len(entry.ms["max"])
    last = "max" if few else "p99"
    tail = _ms(entry.ms[last]) + (" max" if few else "")
    together = entry.together
    name = entry.cell + (f" † {entry.dropped}" if entry.dropped else "")
    share = _percent(entry.share) if together else "100 %" if entry.cell == BEST_EFFORT_ALONE else "-"
    return (
        name,
        _jobs(entry),
        _ms(entry.ms["p50"]),
        _x(entry.x["p50"]),
        tail,
        _x(entry.x[last]),
        waits(entry),
        share,
        _percent(entry.of_ideal) if together else "-",
        _in_time(entry.in_time),
    )


def waits(entry: Entry) -> str:
    """In ms, and as a part of the latency alone."""
    share = middle(entry.wait_share)
    return _ms(entry.wait_ms) + (f" = {100 * share:.1f} %" if share is not None else "")


def _in_time(values: list) -> str:
    """Cut, so that 100 % means all."""
    return spread(values, lambda value: f"{math.floor(1000 * value) / 10:g}") + (" %" if values else "")


def shown(rows: list[tuple]) -> list[tuple]:
    """Lines of cells; without the columns of waits and of targets where no line has one."""
    left_out = {
        column for column in (HEAD.index("waits ms"), len(HEAD) - 1) if all(row[column] == "-" for row in rows[1:])
    }
    return [tuple(text for column, text in enumerate(row) if column not in left_out) for row in rows]


def blocks(entries: list[Entry]) -> list:
    """((subject, mode), the entries of one table), the conditions that are compared with first."""
    order = {ALONE: 0, BEST_EFFORT_ALONE: 1}
    blocks: dict[tuple, list] = {}
    for entry in entries:
        blocks.setdefault((entry.subject, entry.mode), []).append(entry)
    return [(key, sorted(block, key=lambda entry: order.get(entry.cell, 2))) for key, block in blocks.items()]


def notes(entries: list[Entry]) -> list[str]:
    """The sentences below a table, as far as they concern it."""
    found = [f"{LATENCY_OF[counted]} {_SPEED}" for counted in {entry.counted: None for entry in entries} or ["jobs"]]
    if any(entry.repeats > 1 for entry in entries):
        found.append(_SPREAD)
    if any(entry.ms["max"] and not entry.ms["p99"] for entry in entries):
        found.append(_FEW)
    if any(entry.wait_ms for entry in entries):
        found.append(_WAITS)
    if any(entry.in_time for entry in entries):
        found.append(_IN_TIME)
    if any(entry.dropped for entry in entries):
        found.append(_DROPPED)
    return found + list(dict.fromkeys(note for entry in entries for note in entry.notes))


def failures(errors: list) -> list[str]:
    """A sentence per cell that failed; errors: its rows."""
    return [
        f"Not measured: {row['cell']}"
        + (f" ({_title((row['subject'], row['mode']))})" if row["subject"] else "")
        + f": {row['error']}"
        for row in errors
    ]


def _title(key: tuple) -> str:
    return ", ".join(part for part in key if part)


def text(entries: list[Entry]) -> str:
    """For a terminal: columns that say nothing are left out, and ranges where there is no room."""
    lines = []
    for key, block in blocks(entries):
        rows = [head(block), *map(cells, block)]
        drawn = _columns(rows)
        for column in _RANGES:
            if max(map(len, drawn)) > _width():
                rows = [(*row[:column], _RANGE.sub("", row[column]), *row[column + 1 :]) for row in rows]
                drawn = _columns(rows)
        lines += [*filter(None, [_title(key)]), *drawn, ""]
    return "\n".join(lines)


def _columns(rows: list[tuple]) -> list[str]:
    kept = [column for column in range(len(HEAD)) if any(row[column] != "-" for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in kept]
    return [
        "  ".join(
            row[column].ljust(width) if column < _LEFT else row[column].rjust(width)
            for column, width in zip(kept, widths)
        ).rstrip()
        for row in rows
    ]


def wrapped(lines: list[str]) -> str:
    """Lines for a terminal: sentences are broken at its width, tables are left as they are."""
    width = _width()
    return "\n".join(_wrap(line, width) if len(line) > width and "\n" not in line else line for line in lines)


def _wrap(line: str, width: int) -> str:
    """A number keeps its unit; what goes on is indented as the line."""
    kept = re.sub(r"(?<=\d) (?=[%×])", "\u00a0", line)
    indent = " " * (len(line) - len(line.lstrip()))
    return "\n".join(textwrap.wrap(kept, width, subsequent_indent=indent)).replace("\u00a0", " ")


def as_markdown(head: tuple, lines: list[tuple]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *lines))


def markdown(entries: list[Entry]) -> str:
    parts = []
    for key, block in blocks(entries):
        lines = [f"### {_title(key)}\n"] if _title(key) else []
        top, *rows = shown([head(block), *map(cells, block)])
        parts.append("\n".join([*lines, as_markdown(top, rows)]) + "\n")
    return "\n".join(parts)
