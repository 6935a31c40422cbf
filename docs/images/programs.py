"""Draws docs/images/programs.svg from the rows of `sluice bench programs`: every mix, without Sluice and with it.

python3 docs/images/programs.py docs/data/programs-h100.csv.xz docs/images/programs.svg
"""

import csv
import lzma
import math
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
from sluice_tools.bench.programs.conditions import BARE
from sluice_tools.bench.programs.results import Result, summarize
from sluice_tools.measure.summary import middle

_BARE, _SLUICE, _TEXT, _FAINT, _GRID = "#bf8700", "#0969da", "#1f2328", "#59636e", "#d0d7de"
_LEFT, _LATENCY, _GAP, _SPEED, _RIGHT = 356, 300, 34, 170, 24
_WIDTH = _LEFT + _LATENCY + _GAP + _SPEED + _RIGHT
_ROW, _TOP, _LOWEST, _HIGHEST = 19, 76, 0.6, 14.0
_TICKS = (0.7, 1, 2, 4, 8)
# Critical programs whose requests wait for the GPU; the others are limited by their host.
_ON_GPU = ("vit-graph", "vit-graph-busy", "resnet50-graph", "jax-mlp")


def _latency_x(times: float) -> float:
    share = (math.log(times) - math.log(_LOWEST)) / (math.log(_HIGHEST) - math.log(_LOWEST))
    return _LEFT + _LATENCY * min(max(share, 0), 1)


def _speed_x(percent: float) -> float:
    return _LEFT + _LATENCY + _GAP + _SPEED * percent / 100


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = _TEXT, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {style}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _condition(result: Result, y: float, colour: str) -> list[str]:
    """A dot at the p50, a bar to the tail; a bar of the speed of best effort."""
    p50 = middle(result.in_all("p50", True))
    tail = middle(result.in_all("p99", True) or result.in_all("p90", True))
    if p50 is None or tail is None:
        raise ValueError(f"{result.subject}, {result.cell}: no latency")
    speed = 100 * sum(result.shares.values())
    return [
        _line(_latency_x(p50), y, _latency_x(tail), y, colour, 2),
        f'<circle cx="{_latency_x(p50):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        _line(_speed_x(0), y, _speed_x(speed), y, colour, 4),
    ]


def _mix(name: str, cells: dict[str, Result], y: float) -> list[str]:
    critical, *others = name.split("+")
    label = f"{critical} + {' + '.join(others)}"
    style = 'textLength="330" lengthAdjust="spacingAndGlyphs"' if len(label) > 50 else ""
    return [
        _text(_LEFT - 14, y + 4, label, "end", style=style),
        *_condition(cells[BARE], y - 3.5, _BARE),
        *_condition(cells["default"], y + 3.5, _SLUICE),
    ]


def _axes(bottom: float) -> list[str]:
    parts = []
    for tick in _TICKS:
        x = _latency_x(tick)
        parts += [
            _line(x, _TOP - 14, x, bottom, _TEXT if tick == 1 else _GRID),
            _text(x, _TOP - 20, f"{tick:g}", "middle", _FAINT),
        ]
    for tick in (0, 50, 100):
        x = _speed_x(tick)
        parts += [_line(x, _TOP - 14, x, bottom, _GRID), _text(x, _TOP - 20, f"{tick} %", "middle", _FAINT)]
    bold = 'font-weight="600"'
    return [
        *parts,
        _text(_LEFT, 18, "critical latency, × alone", style=bold),
        _text(_LEFT, 36, "dot: p50, end of the bar: p99 or p90", colour=_FAINT),
        _text(_speed_x(0), 18, "best effort, % of alone", style=bold),
        _text(_speed_x(0), 36, "sum of its programs", colour=_FAINT),
        f'<circle cx="20" cy="14" r="4" fill="{_BARE}"/>',
        _text(32, 18, "without Sluice"),
        f'<circle cx="20" cy="32" r="4" fill="{_SLUICE}"/>',
        _text(32, 36, "with Sluice, no settings"),
    ]


def draw(results: list[Result]) -> str:
    mixes: dict[str, dict[str, Result]] = {}
    for result in results:
        mixes.setdefault(result.subject, {})[result.cell] = result
    groups = (
        ("The GPU limits the critical program", [name for name in mixes if name.split("+")[0] in _ON_GPU]),
        ("Its host limits it", [name for name in mixes if name.split("+")[0] not in _ON_GPU]),
    )
    rows, y = [], _TOP
    for title, names in groups:
        rows.append(_text(14, y + 4, title, style='font-weight="600"'))
        y += _ROW
        for name in sorted(names):
            rows += _mix(name, mixes[name], y)
            y += _ROW
        y += 6
    bottom = y - 10
    height = bottom + 16
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{len(mixes)} mixes of programs on one GPU: latency and best effort, with Sluice and without</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        *_axes(bottom), *rows, "</svg>", "",
    ])  # fmt: skip


def main(rows: Path, target: Path) -> None:
    with lzma.open(rows, "rt", newline="") as file:
        target.write_text(draw(summarize([row for row in csv.DictReader(file) if not row["error"]])))
    print(f"{target}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
