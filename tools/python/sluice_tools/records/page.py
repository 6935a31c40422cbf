"""The page of records: the parts of `sluice report` with the figures of requests."""

from sluice_tools.records import figures, over_time, summary, waiting
from sluice_tools.records.profile import Profile
from sluice_tools.records.reader import Sitting
from sluice_tools.report import page

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


def render(sittings: list[Sitting], answers: dict, profile: Profile | None = None) -> str:
    """answers: (sentence, more sentences) by label. profile: of the server that wrote the first records."""
    several = len(sittings) > 1
    colour = figures.colours(sittings)
    devices = {sitting.device for sitting in sittings}
    kinds = [(_KINDS.get(device, device), device != "gpu") for device in sorted(filter(None, devices))]
    kind = ", simulated" if "simulated" in devices else ""
    batches = [figures.batch_sizes(sitting, colour) for sitting in sittings]
    groups = [
        _each("Around the slowest request", [figures.around_slowest(s, colour, kind) for s in sittings], several),
        _each("Latency over time", [over_time.latency_over_time(s, colour, kind) for s in sittings], several),
        *_of_training(sittings[0], profile, kind),
        ("Latency", "", figures.latency_cdfs(sittings, kind), True),
        ("Response ratio", "", figures.ratio_cdfs(sittings, colour), several),
        _each("Queue", [figures.waiting_requests(sitting, colour, kind) for sitting in sittings], several),
        _each("Batch sizes", batches, several),
    ]
    if several:  # A comparison begins with what can be compared in one figure.
        groups.append(groups.pop(0))
    closing = [] if any(batches) else ["Every execution had one item, so there is no figure of batch sizes."]
    rows = {sitting.label: summary.rows(sitting) for sitting in sittings}
    title = "Sluice: requests under " + (sittings[0].label if not several else f"{len(sittings)} schedulers")
    return page.render(
        "records",
        title,
        kinds,
        groups,
        notes=["These records are of different devices: do not compare their times."] if len(devices) > 1 else [],
        heading=QUESTION,
        answers=[(label, *answer) for label, answer in answers.items()],
        table=_table(rows, _LATENCY_COLUMNS, _LATENCY),
        second_title="Violations",
        second_table=_table(rows, _VIOLATION_COLUMNS, _VIOLATIONS),
        closing=closing,
    )


def _of_training(sitting: Sitting, profile: Profile | None, kind: str) -> list[tuple]:
    if profile is None:
        return []
    zero = over_time.zero_of(sitting)
    return [
        ("Memory", "", [over_time.memory_over_time(profile, zero, kind)], False),
        ("Handovers", "", [over_time.handovers(profile, zero, kind)], False),
    ]


def explanations(sittings: list[Sitting]) -> dict:
    return {sitting.label: waiting.explain(sitting) for sitting in sittings}


def _each(title: str, drawn: list, several: bool) -> tuple:
    """One scheduler's figure needs no title of its own."""
    for figure in drawn:
        if figure is not None and not several:
            figure.title = ""
    return title, "", drawn, False


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


def _table(by_scheduler: dict, columns: list, caption: str) -> dict:
    lines = []
    for label, rows in by_scheduler.items():
        for place, row in enumerate(rows):
            cells = [{"text": text, "none": False} for text in (label, row["model"])]
            cells += [_cell(key(row) if callable(key) else row[key], form) for _, form, key in columns]
            lines.append({"cells": cells, "first": place == 0})
    return {
        "head": ["scheduler", "model", *(name for name, *_ in columns)],
        "left": 2,
        "rows": lines,
        "caption": caption,
    }


def _cell(value, form: str) -> dict:
    if value is None:
        return {"text": "-", "none": True}
    if form == "ms":
        form = "{:.3f}" if value < 10 else "{:.1f}"
    return {"text": form.format(value), "none": False}
