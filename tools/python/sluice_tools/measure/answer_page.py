"""The page of `compare` and `demo`: the verdict, the table, one chart, and what to do next. Needs no package."""

import datetime
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median

from sluice_tools.measure import table
from sluice_tools.measure.summary import ALONE, Entry, Height, heights

_STYLE = Path(__file__).with_name("answer_page.css")
_WIDTH, _HEIGHT = 640, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 36, 16, 46
_COLOURS = ("#3b82f6", "#d97706", "#059669", "#d6476b", "#8b5cf6", "#64748b", "#0891b2", "#a16207")
_TICKS = (1, 1.2, 1.5, 2, 3, 4, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1000)


def render(
    command: str,
    title: str,
    kinds: list,
    answers: list,
    entries: list[Entry],
    notes: Sequence = (),
    following: Sequence = (),
    commands: Sequence = (),
    closing: Sequence = (),
) -> str:
    """kinds: (text, doubtful). answers: sentences, the first is the verdict. following: what to do next, with its
    commands."""
    kind = ", simulated" if any("imulated" in text for text, _ in kinds) else ""
    badges = "".join(f'<span class="kind{" doubt" if doubt else ""}">{escape(text)}</span>' for text, doubt in kinds)
    more = "".join(f"<p>{_code(text)}</p>" for text in answers[1:])
    said = f'<div class="answer"><p class="verdict">{_code(answers[0])}</p>{more}</div>' if answers else ""
    listed = "".join(f"<li>{_code(text)}</li>" for text in following)
    listed += f"<li><pre>{escape(chr(10).join(commands))}</pre></li>" if commands else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title>
<style>
{_STYLE.read_text()}</style>
</head>
<body data-drawn="1">
<h1>{escape(title)}</h1>
{badges}
{said}
<div class="scroll">{_table(entries)}</div>
{chart(entries, kind)}
{f"<h2>Next</h2><ul>{listed}</ul>" if listed else ""}
<h2>How to read it</h2>
{"".join(f'<p class="soft">{_code(text)}</p>' for text in [*notes, *closing])}
<p class="soft">Made by sluice {escape(command)}, {datetime.datetime.now():%Y-%m-%d %H:%M}.</p>
</body>
</html>
"""


def _code(text: str) -> str:
    """What is between two backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _table(entries: list[Entry]) -> str:
    rows = [cells for _, block in table.blocks(entries) for cells in map(table.cells, block)]
    kept = [column for column in range(len(table.HEAD)) if any(row[column] != "-" for row in rows)]

    def line(cells: tuple, kind: str) -> str:
        shown = (f"<{kind}{' class=left' if not column else ''}>{escape(cells[column])}</{kind}>" for column in kept)
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(table.HEAD, 'th')}</thead><tbody>{body}</tbody></table>"


class _Axes:
    """From share of speed and times alone to places in the picture; latency on a logarithmic axis that reaches from
    the least to the greatest value: nothing is cut."""

    def __init__(self, shares: list[float], times: list[float]):
        self.least = max(0.0, math.floor(10 * min(shares) - 0.5) / 10)
        self.most = max(1.0, math.ceil(10 * max(shares)) / 10)
        self.low, self.high = min(0.95, *times) / 1.05, max(1.5, *times) * 1.08

    def x(self, share: float) -> float:
        return _LEFT + (share - self.least) / (self.most - self.least) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, times: float) -> float:
        part = math.log(times / self.low) / math.log(self.high / self.low)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    def ticks_y(self) -> list[float]:
        """Not so many that their texts touch."""
        shown: list[float] = []
        for tick in (tick for tick in _TICKS if self.low <= tick <= self.high):
            if not shown or self.y(shown[-1]) - self.y(tick) > 22:
                shown.append(tick)
        return shown

    def ticks_x(self) -> list[float]:
        step = 0.1 if self.most - self.least <= 0.5 else 0.2
        count = round((self.most - self.least) / step)
        return [self.most - step * place for place in range(count + 1) if self.most - step * place >= self.least - 1e-9]


def chart(entries: list[Entry], kind: str = "") -> str:
    """A point per condition: x is best-effort speed, y is latency (summary.Height). Empty where no cell has both."""
    found = heights(entries)
    drawn = [entry for entry in entries if entry.together and entry.share and entry.cell in found]
    if not drawn:
        return ""
    seen = [value for height in found.values() for value in (height.p50, height.last)]
    axes = _Axes([value for entry in drawn for value in entry.share], seen)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{axes.y(tick):.1f}" y2="{axes.y(tick):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{axes.y(tick) + 4:.1f}" text-anchor="end">{tick:g} ×</text>'
        for tick in axes.ticks_y()
    ]
    parts += [
        f'<line class="grid" y1="{_TOP}" y2="{bottom}" x1="{axes.x(tick):.1f}" x2="{axes.x(tick):.1f}"/>'
        f'<text x="{axes.x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{100 * tick:.0f} %</text>'
        for tick in axes.ticks_x()
    ]
    parts += [
        f'<line class="alone" x1="{_LEFT}" x2="{right}" y1="{axes.y(value):.1f}" y2="{axes.y(value):.1f}"/>'
        for value in (found[ALONE].p50, found[ALONE].last)
    ]
    parts += [_point(axes, entry, found[entry.cell], place) for place, entry in enumerate(drawn)]
    key = "".join(
        f'<li><span style="background:{_COLOURS[place % len(_COLOURS)]}"></span>{escape(entry.cell)}: '
        f"p50 {found[entry.cell].p50:.2f} ×, best effort {100 * median(entry.share):.0f} %</li>"
        for place, entry in enumerate(drawn)
    )
    return f"""<h2>Latency against speed</h2>
<ul class="key">{key}</ul>
<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="critical latency against best-effort speed">
{"".join(parts)}
<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">best-effort speed, of its own alone{kind}</text>
</svg><figcaption>Best is bottom right. Up: latency of the critical client, times its p50 alone. The marker is
p50; the bar reaches to p99, or to the slowest job where fewer than 100 were measured. The dashed lines are the same of
alone. Median over the rounds; the line across is their range.</figcaption></figure>"""


def _point(axes: _Axes, entry: Entry, height: Height, place: int) -> str:
    colour, x = _COLOURS[place % len(_COLOURS)], axes.x(median(entry.share))
    y, end = axes.y(height.p50), axes.y(height.last)
    low, high = axes.x(min(entry.share)), axes.x(max(entry.share))
    text = (
        f"{entry.cell}: best effort {100 * median(entry.share):.1f} %, p50 {height.p50:.2f} ×, p99 {height.last:.2f} ×"
    )
    return (
        f'<g stroke="{colour}" fill="{colour}"><title>{escape(text)}</title>'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{end:.1f}"/>'
        f'<line x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{end:.1f}" y2="{end:.1f}"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/></g>'
    )
