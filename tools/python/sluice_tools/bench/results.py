"""The measurements of a bench: one CSV that grows, and the table made of it."""

import csv
import statistics
from pathlib import Path

FIELDS = (
    "part", "mode", "cell", "repeat", "model",
    "jobs", "mean_ms", "p50_ms", "p99_ms", "per_s", "collided_ms", "uncollided_ms", "bypassed",
)
_KEY = ("part", "mode", "cell", "repeat")


class Results:
    """Rows by (part, mode, cell, repeat); those already in the file are not measured again."""

    def __init__(self, file: Path):
        self.file = file
        self.rows = []
        if file.exists():
            with file.open(newline="") as text:
                self.rows = list(csv.DictReader(text))
        else:
            with file.open("w", newline="") as text:
                csv.DictWriter(text, FIELDS).writeheader()

    def has(self, part: str, mode: str, cell: str, repeat: int) -> bool:
        key = (part, mode, cell, str(repeat))
        return any(tuple(row[name] for name in _KEY) == key for row in self.rows)

    def add(self, rows: list):
        """All rows of one cell and repeat, at once: half a cell is never in the file."""
        with self.file.open("a", newline="") as text:
            csv.DictWriter(text, FIELDS, restval="").writerows(rows)
        self.rows += [{name: str(row.get(name, "")) for name in FIELDS} for row in rows]


def markdown(fields: tuple, rows: list) -> str:
    """A table of rows as they are."""
    lines = ["| " + " | ".join(fields) + " |", "| --- " * len(fields) + "|"]
    lines += ["| " + " | ".join(str(row[name]) for name in fields) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _range(rows: list, name: str) -> str:
    values = [float(row[name]) for row in rows if row[name] not in ("", "None")]
    if not values:
        return "-"
    middle = statistics.median(values)
    digits = 0 if name == "jobs" or middle >= 1000 else 1 if middle >= 100 else 2
    text = f"{middle:.{digits}f}"
    if len(values) > 1:
        text += f" [{min(values):.{digits}f}-{max(values):.{digits}f}]"
    return text


_COLUMNS = (
    ("jobs", "jobs"), ("mean ms", "mean_ms"), ("p50 ms", "p50_ms"), ("p99 ms", "p99_ms"),
    ("per s", "per_s"), ("collided ms", "collided_ms"), ("uncollided ms", "uncollided_ms"),
)


def table(rows: list) -> str:
    """Markdown: median over the repeats and, in brackets, their range; one table for each part."""
    text = ""
    for part, mode in dict.fromkeys((row["part"], row["mode"]) for row in rows):
        chosen = [row for row in rows if (row["part"], row["mode"]) == (part, mode)]
        repeats = len({row["repeat"] for row in chosen})
        text += f"\n### {part}, {mode}, {repeats} repeat{'s' if repeats != 1 else ''}\n"
        text += "| cell | model | " + " | ".join(title for title, _ in _COLUMNS) + " |\n"
        text += "| --- " * (2 + len(_COLUMNS)) + "|\n"
        for cell, model in dict.fromkeys((row["cell"], row["model"]) for row in chosen):
            same = [row for row in chosen if (row["cell"], row["model"]) == (cell, model)]
            figures = " | ".join(_range(same, name) for _, name in _COLUMNS)
            text += f"| {cell} | {model} | {figures} |\n"
    return text.lstrip("\n")
