"""The page of records: the parts of `sluice report` with the figures of requests."""

from collections.abc import Callable

from sluice_tools.measure.answer_page import Group, group, next_steps, page, soft
from sluice_tools.measure.plot import Chart
from sluice_tools.records import figures, over_time, summary, waiting
from sluice_tools.records.profile import Profile
from sluice_tools.records.reader import Sitting
from sluice_tools.report.page import explained, ms, number, table

QUESTION = "What was the slowest request waiting for?"
_KINDS = {"gpu": "real GPU", "simulated": "simulated GPU: times are not those of a real one", "cpu": "CPU"}
_VIOLATIONS = (
    "above 2 ×, above 4 ×: share of answered requests whose latency was above so many times the limit, the time of "
    "the whole model for one item on an idle device. late: answered after their own deadline. "
    "refused: the server saw no way to meet the deadline. expired: the deadline passed in the queue."
)
_LATENCY = (
    "Of answered requests; percentiles interpolate between ranks. ratio: latency as a multiple of the limit, at "
    "least 1. std: standard deviation of the sample."
)
_NEXT = (
    "another order of requests: `sluice serve --scheduler NAME --records FILE`, and both files on one page",
    "the figures as text: `sluice records stat FILE`",
)


def render(sittings: list[Sitting], answers: dict, profile: Profile | None = None) -> str:
    """answers: (sentence, more sentences) by label. profile: of the server that wrote the first records."""
    several = len(sittings) > 1
    colour = figures.colours(sittings)
    devices = {sitting.device for sitting in sittings}
    kinds = [(_KINDS.get(device, device), device != "gpu") for device in sorted(filter(None, devices))]
    kind = ", simulated" if "simulated" in devices else ""
    groups = [
        _each("Around the slowest request", sittings, lambda s: figures.around_slowest(s, colour, kind)),
        _each("Latency over time", sittings, lambda s: over_time.latency_over_time(s, colour, kind)),
        *_of_training(sittings[0], profile, kind),
        Group("Latency", figures.latency_cdfs(sittings, kind), pair=True),
        Group("Response ratio", figures.ratio_cdfs(sittings, colour), pair=several),
        queue := _each("Queue", sittings, lambda s: figures.waiting_requests(s, colour, kind)),
        batches := _each("Batch sizes", sittings, lambda s: figures.batch_sizes(s, colour)),
    ]
    if several:  # A comparison begins with what can be compared in one chart.
        groups.append(groups.pop(0))
    rows = {sitting.label: summary.rows(sitting) for sitting in sittings}
    body = [
        soft("These records are of different devices: do not compare their times.", "note") if len(devices) > 1 else "",
        explained(QUESTION, [(label, [sentence, *more]) for label, (sentence, more) in answers.items()]),
        _table("Summary", rows, _LATENCY_COLUMNS, _LATENCY),
        _table("Violations", rows, _VIOLATION_COLUMNS, _VIOLATIONS),
        *map(group, groups),
        "" if queue.charts else soft("No request waited for its first step, so there is no chart of the queue."),
        "" if batches.charts else soft("Every execution had one item, so there is no chart of batch sizes."),
        next_steps(_NEXT),
    ]
    title = "Sluice: requests under " + (sittings[0].label if not several else f"{len(sittings)} schedulers")
    return page("records", title, kinds, body)


def _of_training(sitting: Sitting, profile: Profile | None, kind: str) -> list[Group]:
    if profile is None:
        return []
    zero = over_time.zero_of(sitting)
    return [
        Group("Memory", over_time.memory_over_time(profile, zero, kind)),
        Group("Handovers", over_time.handovers(profile, zero, kind)),
    ]


def explanations(sittings: list[Sitting]) -> dict:
    return {sitting.label: waiting.explain(sitting) for sitting in sittings}


def _each(heading: str, sittings: list[Sitting], draw: Callable[[Sitting], list[Chart]]) -> Group:
    """One scheduler's charts need no title of their own."""
    found = Group(heading, [])
    for sitting in sittings:
        charts = draw(sitting)
        for chart in charts if len(sittings) > 1 else ():
            chart.title = sitting.label
        found.charts += charts
    return found


def _share(name: str):
    return lambda row: row[name] / row["ok"] if row["ok"] else None


_LATENCY_COLUMNS = [
    ("requests", "{}", "requests"),
    ("p50 ms", "ms", "p50_ms"),
    ("p99 ms", "ms", "p99_ms"),
    ("max ms", "ms", "max_ms"),
    ("ratio min", "{:.2f}", "ratio_min"),
    ("avg", "{:.2f}", "ratio_avg"),
    ("max", "{:.2f}", "ratio_max"),
    ("std", "{:.2f}", "ratio_std"),
]
_VIOLATION_COLUMNS = [
    ("requests", "{}", "requests"),
    ("answered", "{}", "ok"),
    ("above 2 ×", "{:.1%}", _share("above_2x")),
    ("above 4 ×", "{:.1%}", _share("above_4x")),
    ("with deadline", "{}", "with_deadline"),
    *((name, "{}", name) for name in ("late", "refused", "expired", "cancelled", "failed")),
]


def _table(heading: str, by_scheduler: dict, columns: list, caption: str) -> str:
    lines = [
        [label, row["model"], *(_cell(key(row) if callable(key) else row[key], form) for _, form, key in columns)]
        for label, rows in by_scheduler.items()
        for row in rows
    ]
    return table(heading, ["scheduler", "model", *(name for name, *_ in columns)], lines, 2, caption)


def _cell(value, form: str) -> str:
    return ms(value) if form == "ms" else number(value, form)
