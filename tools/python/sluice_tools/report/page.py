"""The page: one HTML file that holds everything it shows."""

from collections.abc import Sequence

from sluice_tools.measure.answer_page import OWN_PROGRAMS, Group, answer, group, next_steps, page, soft, tabular
from sluice_tools.report import figures, targets
from sluice_tools.report.answer import HOW
from sluice_tools.report.texts import percent
from sluice_tools.report.timeline import timeline

QUESTION = "What was the slowest critical job waiting for?"
NO_TRACE = (
    "{}: no trace, so there is no gate wait, no queue depth, and only jobs in the timeline. "
    "The rest: sluice run ... --trace"
)


def table(heading: str, head: Sequence[str], rows: list, left: int, caption: str) -> str:
    return f"<h2>{heading}</h2>{tabular(head, rows, left)}{soft(caption)}" if rows else ""


def explained(question: str, said: list) -> str:
    """said: (name, sentences)."""
    several = len(said) > 1
    boxes = (answer([f"{name}: {text[0]}" if several else text[0], *text[1:]]) for name, text in said)
    return f"<h2>{question}</h2>{''.join(boxes)}" if said else ""


def report(runs: list, alone_runs: list, answers: dict, rows: list) -> str:
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
        Group("Distributions", [*figures.jct_cdfs(runs, alone_runs), *filter(None, [waits])], pair=True),
        _per_run("Queue depth", [(run, figures.queue_depth(run, colour)) for run in shared], several),
    ]
    if several:  # A comparison begins with what can be compared in one chart.
        groups.insert(0, groups.pop(2))
    untraced = [run.label for run in shared if not run.trace]
    closing = [NO_TRACE.format(", ".join(untraced))] if untraced else []
    if waits is None and not untraced:
        closing.append("No wait for a closed gate was recorded, so there is no CDF of them.")
    said = [(run.label, _said(answers[run.label], several)) for run in shared if any(m.jobs for m in run.models)]
    first = [_table(rows), explained(QUESTION, said)]
    body = [
        *(soft(text, "note") for text in notes),
        *(first if several else first[::-1]),
        _targets_table(rows),
        *map(group, groups),
        *map(soft, closing),
        next_steps(_next(untraced)),
    ]
    title = "Sluice: " + (runs[0].label if not several else f"{len(runs)} runs compared")
    return page("report", title, kinds, body)


def _said(found, several: bool) -> list[str]:
    """Sentences; that a trace would tell more, a page of several says once."""
    return [text for text in found.text if text != HOW or not several]


def _next(untraced: list) -> list[str]:
    return [
        "what the slowest jobs waited for: `sluice run EXPERIMENT --trace`, and `sluice report` again"
        if untraced
        else "every launch and kernel, to zoom into at ui.perfetto.dev: `sluice trace RUN -o run.json.gz`",
        "another value of the policy: `sluice sweep EXPERIMENT --model NAME --policy 'device:{100,200,400}us'`",
        OWN_PROGRAMS,
    ]


def _per_run(heading: str, pairs: list[tuple], several: bool) -> Group:
    for run, charts in pairs:
        for chart in charts if several else ():
            chart.title = f"{run.label}: {chart.title}" if chart.title else run.label
    return Group(heading, [chart for _, charts in pairs for chart in charts])


def number(value, form: str) -> str:
    return "-" if value is None else form.format(value)


def ms(value) -> str:
    return number(value, "{:.3f}" if value is None or value < 10 else "{:.1f}")


_HEAD = ("run", "model", "policy", "prio", "jobs")
_FIGURES = ("p50 ms", "× alone", "p99 ms", "× alone", "mean ms", "× alone", "jobs/s", "kept", "held s")


def _table(rows: list) -> str:
    lines = []
    for row in rows:
        cells = [str(row[key]) for key in ("run", "model", "policy", "priority", "jobs")]
        for name in ("p50", "p99", "mean"):
            cells += [ms(row[f"{name}_ms"]), number(row[f"{name}_x_alone"], "{:.2f}")]
        cells += [number(row["throughput_per_s"], "{:.1f}"), number(row["kept"], "{:.0%}")]
        lines.append([*cells, number(row["held_s"], "{:.2f}")])
    caption = (
        "Warm-up left out; percentiles interpolate between ranks. × alone: times what the model takes "
        "when it runs alone. kept: throughput against alone. held: seconds of "
        "the GPU's time since the client attached, warm-up included, in which gates or pacing held it."
    )
    if not any(row["has_alone"] for row in rows):
        caption += " Name runs of each model alone, and × alone and kept are here, too."
    if any(0 < row["jobs"] < 20 for row in rows):
        caption += " Of fewer than 20 jobs, p99 is little more than the slowest."
    one = len({row["run"] for row in rows}) == 1
    return table("Summary", (_HEAD + _FIGURES)[one:], [line[one:] for line in lines], 3 - one, caption)


def _targets_table(rows: list) -> str:
    """A line per model with a target; nothing where no model has one."""
    lines = []
    for row in rows:
        target, share = row["target"], row["in_time"]
        if target:
            lines.append(
                [
                    *(row["run"], row["model"], target.text),
                    *(ms(target.limit_ms), ms(target.alone_ms), str(row["jobs"])),
                    "-" if share is None else percent(share),
                    number(target.open_share, "{:.0%}"),
                    targets.STATES.get(target.state or "", "-"),
                ]
            )
    head = ("run", "model", "target", "limit ms", "closed gates ms", "jobs", "in time", "gates open", "state")
    caption = (
        "in time: share of all jobs of the log, also those while Sluice was learning, that took at most the limit. "
        "limit, closed gates (what its jobs take then, at the target's percentile) and state: at the end of the run. "
        "gates open: share of the time of its jobs in which best effort was not held for them."
    )
    return table("Targets", head, lines, 3, caption)
