"""Draws the frontier of `sluice bench llm` from its rows: time per token against the speed of best effort.

python3 docs/images/frontier.py llm.csv docs/images/frontier.svg

A panel for each best-effort program and load. A point is the median over the rounds, and the lines across it are the
range. Conditions have numbers, time slicing and MPS have colours.
"""

import csv
import math
import sys
from html import escape
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
from sluice_tools.bench.llm.frontier import points_of
from sluice_tools.measure.summary import Entry, summarize

_COLOURS = {"time-sliced": "#bf8700", "MPS": "#8250df", "MPS + priority": "#0969da"}
_TEXT, _FAINT, _GRID = "#1f2328", "#59636e", "#d0d7de"
_LEFT, _TOP, _PLOT, _HEIGHT, _GAP = 62, 64, 250, 240, 56
_TICKS = (1, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3)
_LINE = 18


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = _TEXT, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {style}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"/>'


class _Scale:
    """From figures to places. top: the greatest time per token, times alone."""

    def __init__(self, top: float):
        self._low, self._high = math.log(0.97), math.log(top * 1.03)

    def y(self, times: float) -> float:
        part = (math.log(max(times, 0.97)) - self._low) / (self._high - self._low)
        return _TOP + _HEIGHT * (1 - min(part, 1.0))

    def ticks(self) -> list[float]:
        found: list[float] = []
        for tick in _TICKS:
            if math.log(tick) <= self._high and (not found or self.y(found[-1]) - self.y(tick) >= _LINE):
                found.append(tick)
        return found


def _x(left: float, share: float) -> float:
    return left + _PLOT * min(share, 1.0)


def _axes(left: float, title: str, scale: _Scale) -> list[str]:
    parts = [_text(left, _TOP - 14, title, style='font-weight="600"')]
    for tick in scale.ticks():
        y = scale.y(tick)
        parts.append(_line(left, y, left + _PLOT, y, _TEXT if tick == 1 else _GRID))
        if left == _LEFT:
            parts.append(_text(left - 8, y + 4, f"{tick:g} ×", "end", _FAINT))
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = _x(left, share)
        parts.append(_line(x, _TOP, x, _TOP + _HEIGHT, _GRID))
        parts.append(_text(x, _TOP + _HEIGHT + 18, f"{100 * share:g} %", "middle", _FAINT))
    return parts


def _point(entry: Entry, number: int, left: float, scale: _Scale) -> list[str]:
    colour, shares, times = _COLOURS[entry.mode], entry.share, entry.x["p50"]
    x, y = _x(left, median(shares)), scale.y(median(times))
    return [
        _line(_x(left, min(shares)), y, _x(left, max(shares)), y, colour),
        _line(x, scale.y(min(times)), x, scale.y(max(times)), colour),
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{colour}"/>',
        _text(x, y + 4, str(number), "middle", "#ffffff", 'font-size="11" font-weight="600"'),
    ]


def _key(cells: list[str], modes: list[str], top: float) -> list[str]:
    parts = []
    for place, mode in enumerate(modes):
        x = _LEFT + 150 * place
        parts += [f'<circle cx="{x + 6}" cy="22" r="6" fill="{_COLOURS[mode]}"/>', _text(x + 18, 26, mode)]
    for place, cell in enumerate(cells):
        parts.append(_text(_LEFT, top + _LINE * place, f"{place + 1}  {cell}"))
    return parts


def draw(entries: list[Entry]) -> str:
    points = points_of(entries)
    if not points:
        raise ValueError("no row has a time per token and a speed of best effort, each against its own alone")
    subjects, cells, modes = (
        list(dict.fromkeys(getattr(entry, name) for entry in points)) for name in ("subject", "cell", "mode")
    )
    scale = _Scale(max(1.2, *(value for entry in points for value in entry.x["p50"])))
    parts = []
    for place, subject in enumerate(subjects):
        left = _LEFT + place * (_PLOT + _GAP)
        parts += _axes(left, f"{subject} load", scale)
        for entry in points:
            if entry.subject == subject:
                parts += _point(entry, cells.index(entry.cell) + 1, left, scale)
    below = _TOP + _HEIGHT + 42
    parts.append(_text(_LEFT, below, "across: best-effort speed, of its own alone; up: time per token (p50), × alone"))
    width = max(_LEFT + len(subjects) * (_PLOT + _GAP), 620)
    height = below + 10 + _LINE * (len(cells) + 1)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        "<title>An LLM server next to best effort: time per token against best-effort speed</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        *parts, *_key(cells, modes, below + 10 + _LINE), "</svg>", "",
    ])  # fmt: skip


def main(rows: Path, target: Path) -> None:
    with rows.open(newline="") as file:
        target.write_text(draw(summarize([row for row in csv.DictReader(file) if not row["error"]])))
    print(f"{target}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
