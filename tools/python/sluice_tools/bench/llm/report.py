"""What `sluice bench llm` says: a table, and a page with the curves."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

from sluice_tools.bench.llm.figures import instead
from sluice_tools.bench.llm.frontier import figures
from sluice_tools.bench.llm.kept import kept
from sluice_tools.measure import answer_page, table
from sluice_tools.measure.paired import compare, compare_ratios
from sluice_tools.measure.rows import Rows
from sluice_tools.measure.summary import ALONE, Entry, measured_on, middle, summarize

_HEAD = (
    "next to", "load", "mode", "condition", "rounds", "requests", "TPOT p50", "p99", "TTFT p50", "p99", "gap p99",
    "best effort", "target kept", "by the client",
)  # fmt: skip
_LEGEND = (
    "TPOT: mean time between the tokens of a request; TTFT: time from the arrival of a request to its first token; "
    "gap: between two tokens. All by the client, as × of the server alone in the same round (alone: in ms). p99 of "
    "fewer than 100 requests: the slowest (max). best effort: % of its speed alone, with all SMs, in the same round. "
    "target kept: share of the steps, by the count of Sluice; by the client: share of the gaps, of which a multiple is "
    "of the gaps of the server alone. Mean over the rounds [95 % interval, Student's t of the differences by round]. "
    "†: so many requests did not end within six seconds after their window; they count as far as they came."
)


def of_their_condition(rows: list[dict]) -> tuple[list[dict], str]:
    """Without the windows in which a target was not known yet: they are those of the default. And a note on these."""

    def window(row: dict) -> tuple:
        return tuple(row[name] for name in ("subject", "mode", "cell", "repeat"))

    learning = dict.fromkeys(window(row) for row in rows if row["target_state"] == "learning")
    kept_rows = [row for row in rows if window(row) not in learning]
    if not learning:
        return kept_rows, ""
    named = "; ".join(f"{subject}, {cell}, round {repeat}" for subject, _, cell, repeat in learning)
    return kept_rows, f"Left out, because the target was still being learned: {named}."


def entries(rows: list[dict]) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """The same cells three times: with TPOT, TTFT and gaps as latency."""
    rows, _ = of_their_condition(rows)
    return summarize(rows), summarize(instead(rows, "ttft")), summarize(instead(rows, "gap"))


def _x(entry: Entry, figure: str) -> str:
    if entry.cell == ALONE:
        value = middle(entry.ms[figure])
        return "-" if value is None else f"{value:.{table.digits(value)}f} ms"
    return _mean(entry.x[figure], compare_ratios, lambda value: f"{value:.2f}")


def _mean(values: list, compared, form) -> str:
    """With its interval, where there is one. compared: of measure/paired.py."""
    if not values:
        return "-"
    found = compared(values)
    return f"{form(found.mean)} [{form(found.low)}-{form(found.high)}]" if found else form(values[0])


def _tail(entry: Entry) -> str:
    if entry.in_all("p99"):
        return _x(entry, "p99")
    return "-" if not entry.ms["max"] else f"{_x(entry, 'max')} max"


def _percent(values: list, most: float = math.inf) -> str:
    """An interval of shares may not leave them."""
    return _mean(values, compare, lambda value: f"{100 * min(max(value, 0.0), most):.3g}") + (" %" if values else "")


def lines(rows: list[dict], tpot: list[Entry], ttft: list[Entry], gaps: list[Entry]) -> list[tuple]:
    """Without the lines of best effort alone, which is 100 % by definition."""
    found = []
    for one, other, gap in zip(tpot, ttft, gaps):
        if not one.jobs:
            continue
        best_effort, _, load = one.subject.rpartition(", ")
        found.append(
            (
                best_effort,
                load,
                one.mode,
                one.cell + (f" † {one.dropped}" if one.dropped else ""),
                str(one.repeats),
                str(min(one.jobs)),
                _x(one, "p50"),
                _tail(one),
                _x(other, "p50"),
                _tail(other),
                _x(gap, "p99"),
                _percent(one.share),
                *(_percent(of, 1.0) for of in (one.in_time, kept(rows, one.subject, one.mode, one.cell))),
            )
        )
    return found


def markdown(rows: Rows) -> str:
    found = entries(rows.rows)
    of_condition, left_out = of_their_condition(rows.rows)
    parts = ["\n".join(measured_on(rows.rows)), _LEGEND, table.as_markdown(_HEAD, lines(of_condition, *found))]
    notes = dict.fromkeys(note for entry in found[0] for note in entry.notes)
    if left_out:
        parts.append(left_out)
    return "\n\n".join([*parts, *notes, *table.failures(rows.errors)]) + "\n"


def _named(entries: list[Entry], what: str) -> list[Entry]:
    return [replace(entry, subject=f"{what}, {entry.subject}") for entry in entries]


def _write_page(folder: Path, rows: Rows) -> None:
    tpot, ttft, _ = entries(rows.rows)
    both = _named(tpot, "TPOT") + _named(ttft, "TTFT")
    text = answer_page.render(
        "bench llm",
        "An LLM server next to training",
        [(text, False) for text in measured_on(rows.rows)],
        [],
        both,
        notes=table.notes(both),
        following=[
            answer_page.OWN_PROGRAMS,
            "a server that is never idle: `sluice exec --priority 1 --target 'step p99=25ms' -- vllm serve MODEL`",
        ],
        closing=table.failures(rows.errors),
        more=[answer_page.Group("What a busy server leaves", figures(tpot))],
    )
    answer_page.write(folder / "llm.html", text)


def show(rows: Rows, folder: Path, as_json: bool) -> None:
    """Writes llm.md and llm.html into `folder`, and prints the table or JSON."""
    (folder / "llm.md").write_text(text := markdown(rows))
    _write_page(folder, rows)
    if as_json:
        found = dict(zip(("tpot", "ttft", "gap"), entries(rows.rows)))
        said = {name: [vars(entry) for entry in of_name] for name, of_name in found.items()}
        print(json.dumps(said | {"errors": rows.errors}, indent=2))
    else:
        print(text, end="")
    print(f"rows: {rows.file}", file=sys.stderr)
