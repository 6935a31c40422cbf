"""What `sluice bench programs` says: verdicts, tables and a page."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

from sluice_tools.bench.programs.conditions import BARE
from sluice_tools.bench.programs.plan import BUSY, PERIODIC, program_of
from sluice_tools.bench.programs.results import Result, summarize
from sluice_tools.bench.programs.verdict import WAITS, Axis, Judgment, Verdict, counted, verdicts
from sluice_tools.measure import answer_page, table
from sluice_tools.measure.rows import Rows
from sluice_tools.measure.summary import measured_on, middle

_HEAD = (
    "mix, mode", "condition", "p50, × alone", "tail, × alone", "waits, ms = of alone", "best effort, % of alone",
    "p50 against bare", "tail against bare", "waits against bare", "best effort against bare",
    "price, points for 1 %", "worse than bare?",
)  # fmt: skip
_LEGEND = """\
Conditions take turns in the same processes, a window each in every round. × alone: latency of the critical program
against itself alone in the same round, median over the rounds; the tail is the p99, or the p90 where a window has
fewer than 100 requests. Waits: mean time in calls that wait for the GPU, for each request, and as a part of the mean
p50 alone. The noise of the host is in how long a request takes, and not in its waits. Best effort: speed against the
mean speed alone, mean over the rounds. bare: as without Sluice (policy `none`, no short slices, equal priorities).
Against bare: mean of the paired differences of the rounds, their 95 % interval (Student's t over the rounds), and
the p-value of the paired t-test, two-sided, after Holm's correction over all tests of this table. WORSE: p < 0.05,
and worse by more than the least difference (p50 3 %, tail 5 %, waits 0.5 % of the latency alone, best effort 2
points). not worse: the interval excludes that. Less best effort is not counted as worse where the interval of a
latency or of the waits is below zero: that is what it pays for. A higher latency or longer waits are not counted as
worse where best effort has more. by its waits: latencies are undecided, and the waits are shown not to be worse.
Waits count from 1 % of the latency alone on; of a program without (it polls) only the durations do. Price: points of
best effort for each 1 % of the latency alone that is saved, by waits where they count, else by the p50.\
""".replace("\n", " ")


def _against(judgment: Judgment | None, names: tuple) -> str:
    """The changes of the axes whose names begin or end so."""
    axes: list[Axis] = judgment.axes if judgment else []
    return "; ".join(axis.text() for axis in axes if axis.name in names) or "-"


def _tail(result: Result) -> str:
    values = result.in_all("p99", True) or result.in_all("p90", True)
    return f"{middle(values):.2f}" if values else "-"


def _share(result: Result) -> str:
    if not result.share:
        return "-"
    parts = " + ".join(f"{100 * value:.0f}" for value in result.shares.values())
    return f"{parts} %"


def _price(judgment: Judgment | None) -> str:
    text = judgment.price_text() if judgment else "-"
    return f"**{text}**" if judgment and judgment.dear else text


def _lines(verdict: Verdict, results: list[Result]) -> list[tuple[str, ...]]:
    own = {one.cell: one for one in results if (one.subject, one.mode) == (verdict.subject, verdict.mode)}
    found = []
    for judgment in (None, *verdict.judgments):
        result = own[judgment.cell if judgment else BARE]
        words = "" if judgment is None else f"**{judgment.word}**" if judgment.worse else judgment.word
        if judgment and not verdict.outputs_vary and result.cell in (verdict.other_outputs or ()):
            words += "; **outputs differ**"
        p50 = middle(result.in_all("p50", True))
        found.append((
            f"{verdict.subject}, {verdict.mode}" if judgment is None else "",
            result.cell,
            "-" if p50 is None else f"{p50:.2f}",
            _tail(result),
            table.waits(result),
            _share(result),
            _against(judgment, ("critical p50",)),
            _against(judgment, ("critical p99", "critical p90")),
            _against(judgment, (WAITS,)),
            _against(judgment, ("best effort",)),
            _price(judgment),
            words,
        ))  # fmt: skip
    return found


def _verdict_table(found: list[Verdict], results: list[Result]) -> str:
    return table.as_markdown(_HEAD, [line for verdict in found for line in _lines(verdict, results)])


def _programs(results: list[Result]) -> list[str]:
    names = dict.fromkeys(name for result in results for name in result.subject.split("+"))
    return [f"- `{name}`: {_text(name)}" for name in names]


def _text(name: str) -> str:
    try:
        program = program_of(name)
    except ValueError:
        return "not a program of this version"
    if not program.serves:
        return program.text
    how = "regular" if program.arrivals == PERIODIC else "Poisson"
    rate = "requests back to back" if program.arrivals == BUSY else f"requests every {program.every_ms:g} ms ({how})"
    return f"{program.text}; {rate}"


def markdown(rows: Rows, results: list[Result], found: list[Verdict]) -> str:
    parts = ["## Measured", "\n".join(measured_on(rows.rows))]
    if found:
        parts += [f"**{counted(found)}**", _LEGEND, _verdict_table(found, results)]
        parts += ["### Why", "\n".join(f"- {verdict.text()}" for verdict in found)]
    parts += ["### Programs", "\n".join(_programs(results)), "### Cells", " ".join(table.notes(list(results)))]
    parts.append(table.markdown(list(results)).replace("\n### ", "\n#### ").replace("### ", "#### ", 1))
    return "\n\n".join([*parts, *table.failures(rows.errors)]) + "\n"


def _write_page(folder: Path, rows: Rows, results: list[Result], found: list[Verdict]) -> None:
    text = answer_page.render(
        "bench programs",
        "Programs that Sluice was not tuned on",
        [(text, False) for text in measured_on(rows.rows)],
        [counted(found), *(verdict.text() for verdict in found)] if found else [],
        list(results),
        notes=table.notes(list(results)),
        following=[answer_page.OWN_PROGRAMS],
        closing=table.failures(rows.errors),
    )
    answer_page.write(folder / "programs.html", text)


def _as_json(rows: Rows, results: list[Result], found: list[Verdict]) -> str:
    cells = [
        {name: value for name, value in vars(result).items() if name not in ("rows", "by_round")}
        | {"shares": result.shares, "rounds": [asdict(one) for one in result.by_round.values()]}
        for result in results
    ]
    return json.dumps({"cells": cells, "verdicts": [_said(one) for one in found], "errors": rows.errors}, indent=2)


def _said(verdict: Verdict) -> dict:
    judgments = [
        asdict(one)
        | {"word": one.word, "worse": one.worse, "undecided": one.open, "waits_count": one.counts_waits}
        # JSON has no infinity.
        | {"price": one.price if one.price != math.inf else None, "price_text": one.price_text(), "dear": one.dear}
        for one in verdict.judgments
    ]
    return asdict(verdict) | {"judgments": judgments, "worse": verdict.worse, "text": verdict.text()}


def show(rows: Rows, folder: Path, as_json: bool) -> None:
    """Writes programs.md and programs.html into `folder`, and prints the tables or JSON."""
    results = summarize(rows.rows)
    found = verdicts(results)
    (folder / "programs.md").write_text(text := markdown(rows, results, found))
    _write_page(folder, rows, results, found)
    if as_json:
        print(_as_json(rows, results, found))
    elif sys.stdout.isatty():
        lines = [table.text(list(results)), *table.notes(list(results)), *table.failures(rows.errors), ""]
        print(table.wrapped([*lines, *([counted(found)] if found else []), *(one.text() for one in found)]))
    else:
        print(text, end="")
    print(f"rows: {rows.file}", file=sys.stderr)
