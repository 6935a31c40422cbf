"""What `sluice bench programs` says: verdicts, tables and a page."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from sluice_tools.bench.programs.plan import BARE, BUSY, DEFAULT, program_of
from sluice_tools.bench.programs.results import Result, summarize
from sluice_tools.bench.programs.verdict import Verdict, counted, verdicts
from sluice_tools.measure import page, table
from sluice_tools.measure.rows import Rows
from sluice_tools.measure.summary import measured_on, middle

_HEAD = ("critical + others", "mode", BARE, DEFAULT, "with a target", "worse than bare?")
_LEGEND = (
    "A cell has the critical p50 and p99 (p90 where fewer than 100 requests were served), as × of the critical program "
    "alone in the same mode, and the best-effort speed, % of its speed alone (the sum, where there are several). "
    "bare: the same programs without Sluice. Differences within the spread of the repeats count as none."
)


def _figures(result: Result | None) -> str:
    """As 1.26 ×, 2.48 ×, 88 %."""
    if result is None:
        return "-"
    tail = result.in_all("p99", True) or result.in_all("p90", True)
    parts = [f"{value:.2f} ×" if (value := middle(values)) else "-" for values in (result.in_all("p50", True), tail)]
    return ", ".join([*parts, f"{100 * median:.0f} %" if (median := middle(result.share)) is not None else "-"])


def _line(verdict: Verdict, results: list[Result]) -> tuple[str, ...]:
    own = {one.cell: one for one in results if (one.subject, one.mode) == (verdict.subject, verdict.mode)}
    targets = [
        f"{judgment.cell.removeprefix('target ')}: {_figures(own[judgment.cell])}"
        + {True: ", kept", False: ", **not kept**", None: ""}[judgment.kept]
        for judgment in verdict.judgments
        if judgment.cell != DEFAULT
    ]
    words = [
        f"{judgment.cell}: **{judgment.word}**" if judgment.worse else f"{judgment.cell}: {judgment.word}"
        for judgment in verdict.judgments
    ]
    if verdict.other_outputs:
        words.append(f"**outputs differ** in {', '.join(verdict.other_outputs)}")
    return (
        verdict.subject,
        verdict.mode,
        _figures(own.get(BARE)),
        _figures(own.get(DEFAULT)),
        "; ".join(targets) or "-",
        "; ".join(words),
    )


def _verdict_table(found: list[Verdict], results: list[Result]) -> str:
    return table.as_markdown(_HEAD, [_line(verdict, results) for verdict in found])


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
    rate = "requests back to back" if program.arrivals == BUSY else f"requests every {program.every_ms:g} ms (Poisson)"
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
    if not page.can_write():
        print(f"sluice bench: {page.MISSING}; sluice bench programs --table {folder} makes it later", file=sys.stderr)
        return
    page.write(
        folder / "programs.html",
        "bench programs",
        "Programs that Sluice was not tuned on",
        [(text, False) for text in measured_on(rows.rows)],
        list(results),
        [counted(found), *(verdict.text() for verdict in found)] if found else [],
        closing=table.failures(rows.errors),
    )


def _as_json(rows: Rows, results: list[Result], found: list[Verdict]) -> str:
    cells = [{name: value for name, value in vars(result).items() if name != "rows"} for result in results]
    said = [asdict(verdict) | {"worse": verdict.worse, "text": verdict.text()} for verdict in found]
    return json.dumps({"cells": cells, "verdicts": said, "errors": rows.errors}, indent=2)


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
