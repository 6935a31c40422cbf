"""The page of every measurement: the verdict, the table, a chart, and what to do next. Needs no package."""

import contextlib
import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

from sluice_tools.measure import table
from sluice_tools.measure.plot import Axis, Chart, Point, Series, colour_of
from sluice_tools.measure.summary import ALONE, Entry, Height, heights

# What a reader of any page may do next.
OWN_PROGRAMS = "your own two programs: `sluice compare -- CRITICAL COMMAND -- BEST-EFFORT COMMAND`"
_STYLE = Path(__file__).with_name("answer_page.css")


@dataclass
class Group:
    """Charts under a heading; nothing is shown where there is none."""

    heading: str
    charts: list[Chart]
    text: str = ""
    pair: bool = False  # next to each other, where there is room


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
    more: Sequence[Group] = (),
) -> str:
    """kinds: (text, doubtful). answers: sentences, the first is the verdict. following: what to do next, with its
    commands. more: behind the first chart."""
    kind = ", simulated" if any("imulated" in text for text, _ in kinds) else ""
    body = [
        answer(answers) if answers else "",
        _table(entries),
        group(Group("Latency against speed", _charts(entries, kind))),
        *map(group, more),
        next_steps(following, commands),
        "<h2>How to read it</h2>",
        *(soft(text) for text in [*notes, *closing]),
    ]
    return page(command, title, kinds, body)


def page(command: str, title: str, kinds: list, body: Sequence[str]) -> str:
    badges = "".join(f'<span class="kind{" doubt" if doubt else ""}">{escape(text)}</span>' for text, doubt in kinds)
    lines = "\n".join(filter(None, body))
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
{lines}
<p class="soft">Made by sluice {escape(command)}, {datetime.datetime.now():%Y-%m-%d %H:%M}.</p>
</body>
</html>
"""


def answer(sentences: Sequence[str]) -> str:
    """The first is the verdict."""
    rest = "".join(f"<p>{_code(text)}</p>" for text in sentences[1:])
    return f'<div class="answer"><p class="verdict">{_code(sentences[0])}</p>{rest}</div>'


def group(one: Group) -> str:
    if not one.charts:
        return ""
    text = f"<p>{_code(one.text)}</p>" if one.text else ""
    charts = "".join(f"<section>{chart.html()}</section>" for chart in one.charts)
    return f'<h2>{escape(one.heading)}</h2>{text}<div class="{"pair" if one.pair else ""}">{charts}</div>'


def next_steps(following: Sequence[str], commands: Sequence[str] = ()) -> str:
    listed = "".join(f"<li>{_code(text)}</li>" for text in following)
    listed += f"<li><pre>{escape(chr(10).join(commands))}</pre></li>" if commands else ""
    return f"<h2>Next</h2><ul>{listed}</ul>" if listed else ""


def soft(text: str, kind: str = "soft") -> str:
    return f'<p class="{kind}">{_code(text)}</p>'


def _code(text: str) -> str:
    """What is between two backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def tabular(head: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    """The first `left` columns are texts. "-" is no figure: a column without any is left out. Rows with the same first
    cell, or with an empty one, belong together."""
    kept = [place for place in range(len(head)) if any(row[place] != "-" for row in rows)]
    joined = len({row[0] for row in rows if row[0]}) < len(rows)

    def line(cells: Sequence[str], kind: str, first: bool) -> str:
        shown = (
            f"<{kind}{' class=left' if place < left else ' class=none' if cells[place] == '-' else ''}>"
            f"{escape(cells[place])}</{kind}>"
            for place in kept
        )
        return f"<tr{' class=first' if first else ''}>{''.join(shown)}</tr>"

    body, before = "", ""
    for row in rows:
        body += line(row, "td", joined and row[0] not in ("", before))
        before = row[0] or before
    head_line = line(head, "th", False)
    return f'<div class="scroll"><table><thead>{head_line}</thead><tbody>{body}</tbody></table></div>'


def _table(entries: list[Entry]) -> str:
    blocks = table.blocks(entries)
    several = len(blocks) > 1
    rows = [
        (", ".join(filter(None, key)) if not place else "", *table.cells(entry))[not several :]
        for key, block in blocks
        for place, entry in enumerate(block)
    ]
    return tabular(("what", *table.head(entries))[not several :], rows, 1 + several)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _charts(entries: list[Entry], kind: str) -> list[Chart]:
    """One for each subject and mode, in the same colours."""
    blocks = table.blocks(entries)
    names = list(dict.fromkeys(entry.cell for entry in entries if entry.together))
    drawn: list[Chart] = []
    for key, block in blocks:
        if one := chart(block, names, kind):
            one.title = ", ".join(filter(None, key)) if len(blocks) > 1 else ""
            one.caption = "" if drawn else one.caption
            drawn.append(one)
    return drawn


def chart(entries: list[Entry], names: list[str], kind: str = "") -> Chart | None:
    """A point per condition: x is best-effort speed, y is latency (summary.Height). None where no cell has both.
    names: of the conditions, in an order that is the same in all charts of a page: it gives them their colours."""
    found = heights(entries)
    drawn = [entry for entry in entries if entry.together and entry.share and entry.cell in found]
    if not drawn:
        return None
    times = [value for height in found.values() for value in (height.p50, height.last)]
    return Chart(
        _share_axis([value for entry in drawn for value in entry.share], kind),
        Axis("critical latency", min(0.95, *times) / 1.05, max(1.5, *times) * 1.08, log=True, form="{:g} ×".format),
        [Series(entry.cell, [_point(entry, found[entry.cell])], colour_of(names.index(entry.cell))) for entry in drawn],
        "Best is bottom right. Up: latency of the critical client, times its p50 alone. The marker is p50; the bar "
        "reaches to p99, or to the slowest job where fewer than 100 were measured. The dashed lines are the same of "
        "alone. Median over the rounds; the line across is their range.",
        across=[(found[ALONE].p50, ""), (found[ALONE].last, "")],
        key=[
            f"{entry.cell}: p50 {found[entry.cell].p50:.2f} ×, best effort {_percent(median(entry.share))}"
            for entry in drawn
        ],
    )


def _share_axis(shares: list[float], kind: str) -> Axis:
    least = max(0.0, math.floor(10 * min(shares) - 0.5) / 10)
    most = max(1.0, math.ceil(10 * max(shares)) / 10)
    step = 0.1 if most - least <= 0.5 else 0.2
    ticks = [most - step * place for place in range(round((most - least) / step) + 1)]
    return Axis(f"best-effort speed, of its own alone{kind}", least, most, form=_percent, ticks=ticks)


def _point(entry: Entry, height: Height) -> Point:
    x = median(entry.share)
    text = f"{entry.cell}: best effort {100 * x:.1f} %, p50 {height.p50:.2f} ×, p99 {height.last:.2f} ×"
    return Point(x, height.p50, text, (height.p50, height.last), (min(entry.share), max(entry.share)))


def write(file: Path, text: str) -> None:
    """Renamed into place, so that a browser never opens half a page."""
    part = file.with_name(file.name + ".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        error.filename = str(file)  # which the user named
        raise
