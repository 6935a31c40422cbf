"""The page: one HTML file that holds everything it shows."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import jinja2
import plotly.offline

from sluice_tools.measure.answer_page import write as write
from sluice_tools.report import figures, targets
from sluice_tools.report.answer import HOW
from sluice_tools.report.texts import percent
from sluice_tools.report.timeline import timeline

_TEMPLATE = Path(__file__).with_name("page.html")
QUESTION = "What was the slowest critical job waiting for?"
NO_TRACE = (
    "{}: no trace, so there is no gate wait, no queue depth, and only jobs in the timeline. "
    "The rest: sluice run ... --trace"
)


def render(command: str, title: str, kinds: list, groups: list, lead: Sequence = (), **parts) -> str:
    """groups: (title, text, figures, pair); a group or figure that is None or empty is left out.
    lead: groups that come before the table. kinds: (text, doubtful). parts: second_table has second_title above."""
    shown, everything = [], []
    for place, (heading, text, drawn, pair) in enumerate([*lead, *groups]):
        found = [figure for figure in drawn if figure is not None]
        if found:
            shown.append(
                {
                    "title": heading,
                    "text": text,
                    "pair": pair,
                    "lead": place < len(lead),
                    "figures": [
                        {
                            "title": one.title,
                            "caption": one.caption,
                            "number": len(everything) + index,
                            "height": one.figure.layout.height,
                        }
                        for index, one in enumerate(found)
                    ],
                }
            )
            everything += found
    # plotly escapes <, so a kernel cannot end the script element by its name.
    data = "[" + ",".join(one.figure.to_json() for one in everything) + "]"
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    context = {
        "heading": "",
        "notes": [],
        "answers": [],
        "table": None,
        "second_table": None,
        "closing": [],
        "following": [],
        "table_first": False,
        **parts,
    }
    return environment.from_string(_TEMPLATE.read_text()).render(
        title=title,
        kinds=kinds,
        groups=shown,
        plotly=jinja2.utils.markupsafe.Markup(plotly_js()),
        figures=jinja2.utils.markupsafe.Markup(data),
        made=f"Made by sluice {command}, {datetime.datetime.now():%Y-%m-%d %H:%M}.",
        **context,
    )


def plotly_js() -> str:
    return plotly.offline.get_plotlyjs()


def report(runs: list, alone_runs: list, answers: dict, table: list) -> str:
    colour = figures.colours(runs + alone_runs)
    several = len(runs) > 1
    kinds = list(dict.fromkeys((run.kind_text(), run.kind in ("simulated", "CPU")) for run in runs))
    notes = [f"{run.label}: {note}" if several else note for run in runs for note in run.notes]
    if len({run.kind for run in runs}) > 1:
        notes.insert(0, "These runs are of different kinds of GPU or of sharing: do not compare their times.")
    shared = [run for run in runs if len(run.models) > 1] or runs
    waits = figures.wait_cdf(runs, colour)
    groups = [
        _per_run("Timeline", [(run, timeline(run, answers[run.label], colour)) for run in shared], several),
        _per_run(
            "JCT over time",
            [(run, figures.jct_over_time(run, shared, colour, answers[run.label])) for run in shared],
            several,
        ),
        ("Distributions", "", [*figures.jct_cdfs(runs, alone_runs), waits], True),
        _per_run("Queue depth", [(run, figures.queue_depth(run, colour)) for run in shared], several),
    ]
    if several:  # A comparison begins with what can be compared in one figure.
        groups.insert(0, groups.pop(2))
    untraced = [run.label for run in shared if not run.trace]
    closing = [NO_TRACE.format(", ".join(untraced))] if untraced else []
    if waits is None and not untraced:
        closing.append("No wait for a closed gate was recorded, so there is no CDF of them.")
    title = "Sluice: " + (runs[0].label if not several else f"{len(runs)} runs compared")
    said = [
        (run.label, *_split(answers[run.label], hint=not several)) for run in shared if any(m.jobs for m in run.models)
    ]
    return render(
        "report",
        title,
        kinds,
        groups,
        notes=notes,
        heading=QUESTION,
        answers=said,
        table=_table(table),
        second_title="Targets",
        second_table=_targets_table(table),
        closing=closing,
        following=list(filter(None, _next(untraced))),
        table_first=several,
    )


def _split(answer, hint: bool) -> tuple:
    """hint: that a trace would tell more, which a page says once."""
    return answer.text[0], [text for text in answer.text[1:] if hint or text != HOW]


def _next(untraced: list) -> list[str]:
    found = (
        ["what the slowest jobs waited for: `sluice run EXPERIMENT --trace`, and `sluice report` again"]
        if untraced
        else []
    )
    return [
        *found,
        "every launch and kernel: `sluice trace RUN`, for ui.perfetto.dev" if not untraced else "",
        "another value of the policy: `sluice sweep EXPERIMENT --model NAME --policy 'device:{100,200,400}us'`",
        "your own two programs: `sluice compare -- CRITICAL COMMAND -- BEST-EFFORT COMMAND`",
    ]


def _per_run(title: str, pairs: list, several: bool) -> tuple:
    drawn = []
    for run, figure in pairs:
        if figure is not None:
            figure.title = run.label if figure.title == title else figure.title
            if several and figure.title != run.label:
                figure.title = f"{run.label}: {figure.title}"
            elif not several and figure.title == run.label:
                figure.title = ""
        drawn.append(figure)
    return title, "", drawn, False


def _number(value, form: str) -> dict:
    return {"text": "-", "none": True} if value is None else {"text": form.format(value), "none": False}


def _ms(value) -> dict:
    return _number(value, "{:.3f}" if value is None or value < 10 else "{:.1f}")


def _table(rows: list) -> dict:
    head = [
        "run",
        "model",
        "policy",
        "prio",
        "jobs",
        "p50 ms",
        "× alone",
        "p99 ms",
        "× alone",
        "mean ms",
        "× alone",
        "jobs/s",
        "kept",
        "held s",
    ]
    lines, before = [], None
    for row in rows:
        cells = [{"text": str(row[key]), "none": False} for key in ("run", "model", "policy", "priority", "jobs")]
        for name in ("p50", "p99", "mean"):
            cells += [_ms(row[f"{name}_ms"]), _number(row[f"{name}_x_alone"], "{:.2f}")]
        cells += [_number(row["throughput_per_s"], "{:.1f}"), _number(row["kept"], "{:.0%}")]
        cells.append(_number(row["held_s"], "{:.2f}"))
        lines.append({"cells": cells, "first": row["run"] != before})
        before = row["run"]
    few = any(0 < row["jobs"] < 20 for row in rows)
    caption = (
        "Warm-up left out; percentiles interpolate between ranks. × alone: times what the model takes "
        "when it runs alone. kept: throughput against alone. held: seconds of "
        "the GPU's time since the client attached, warm-up included, in which gates or pacing held it."
    )
    if not any(row["has_alone"] for row in rows):
        caption += " Name runs of each model alone, and × alone and kept are here, too."
    shown = [place for place in range(len(head)) if any(not line["cells"][place]["none"] for line in lines)]
    for line in lines:
        line["cells"] = [line["cells"][place] for place in shown]
    return {
        "head": [head[place] for place in shown],
        "left": 3,
        "rows": lines,
        "caption": caption + (" Of fewer than 20 jobs, p99 is little more than the slowest." if few else ""),
    }


def _targets_table(rows: list) -> dict | None:
    """A line per model with a target; None where no model has one."""
    lines, before = [], None
    for row in rows:
        target, share = row["target"], row["in_time"]
        if not target:
            continue
        cells = [{"text": str(text), "none": False} for text in (row["run"], row["model"], target.text)]
        cells += [
            _ms(target.limit_ms),
            _ms(target.alone_ms),
            _number(row["jobs"], "{}"),
            _number(share if share is None else percent(share), "{}"),
            _number(target.open_share, "{:.0%}"),
            _number(targets.STATES.get(target.state or ""), "{}"),
        ]
        lines.append({"cells": cells, "first": row["run"] != before})
        before = row["run"]
    head = ["run", "model", "target", "limit ms", "closed gates ms", "jobs", "in time", "gates open", "state"]
    caption = (
        "in time: share of all jobs of the log, also those while Sluice was learning, that took at most the limit. "
        "limit, closed gates (what its jobs take then, at the target's percentile) and state: at the end of the run. "
        "gates open: share of the time of its jobs in which best effort was not held for them."
    )
    return {"head": head, "left": 3, "rows": lines, "caption": caption} if lines else None
