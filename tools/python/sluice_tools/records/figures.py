"""The figures of the page, made of the parts of `sluice report`."""

import numpy as np
import plotly.graph_objects as go

from sluice_tools.records import waiting
from sluice_tools.records.reader import Sitting
from sluice_tools.report import thin
from sluice_tools.report.figures import GREY, PALETTE, Figure, base, cdf_of, thinned
from sluice_tools.trace.depth import Depth

_ALL = "all models"


def colours(sittings: list[Sitting]) -> dict:
    models = sorted({model for sitting in sittings for model in sitting.models})
    return {model: PALETTE[index % len(PALETTE)] for index, model in enumerate(models)}


def latency_cdfs(sittings: list[Sitting], kind: str) -> list[Figure]:
    """A figure per model, a line per scheduler."""
    found = []
    for model in colours(sittings):
        lines = [
            (sitting.label, _values(sitting, model, "total"), PALETTE[index % len(PALETTE)], "solid")
            for index, sitting in enumerate(sittings)
        ]
        caption = "Share of answered requests that took at most so long."
        found += _cdf(f"Latency: {model}", caption, lines, f"latency, ms{kind}", " ms")
    return found


def ratio_cdfs(sittings: list[Sitting], colour: dict) -> list[Figure]:
    """Of one scheduler a line per model; of several a figure per model, with a line per scheduler."""
    caption = "Share of answered requests whose latency was at most so many times the limit."
    if len(sittings) == 1:
        lines = [(model, _values(sittings[0], model, "ratio"), colour[model], "solid") for model in colour]
        if len(lines) > 1:
            lines.append((_ALL, _values(sittings[0], None, "ratio"), GREY, "dash"))
        return _with_limits(_cdf("", caption, lines, "latency, times the limit", " ×"))
    found = []
    for model in [None, *colour] if len(colour) > 1 else colour:
        lines = [
            (sitting.label, _values(sitting, model, "ratio"), PALETTE[index % len(PALETTE)], "solid")
            for index, sitting in enumerate(sittings)
        ]
        found += _cdf(f"Response ratio: {model or _ALL}", caption, lines, "latency, times the limit", " ×")
    return _with_limits(found)


def _values(sitting: Sitting, model: str | None, name: str) -> np.ndarray:
    """name: of a number of a request. model: None for all."""
    return np.array([getattr(one, name) for one in sitting.answered if model in (None, one.model)], dtype=float)


def _cdf(title: str, caption: str, lines: list, x_title: str, unit: str) -> list[Figure]:
    lines = [line for line in lines if len(line[1])]
    if not lines:
        return []
    figure = cdf_of(lines, x_title, "requests", unit)
    return [Figure(title, caption + thinned(len(line[1]) for line in lines), figure, wide=False)]


def _with_limits(found: list[Figure]) -> list[Figure]:
    """Twice and four times the limit: what the published figures call a violation."""
    for one in found:
        reached = one.figure.layout.xaxis.range[1]
        for times in (2, 4):
            if times <= reached:
                one.figure.add_vline(
                    x=times,
                    line={"color": GREY, "dash": "dot", "width": 1},
                    annotation={"text": f"{times} ×", "font": {"size": 11}},
                    annotation_position="bottom right",
                )
    return found


def waiting_requests(sitting: Sitting, colour: dict, kind: str) -> Figure:
    """The queue: from the arrival to the first step, or to the refusal of a request that never ran."""
    figure = base(300, f"time, s since the first arrival{kind}", "requests that wait")
    zero = min(request.arrived for request in sitting.requests)
    cut = False
    for model in sitting.models:
        requests = [request for request in sitting.requests if request.model == model]
        begin = [request.arrived - zero for request in requests]
        end = [min((step[0] for step in one.steps), default=one.ended) - zero for one in requests]
        depth = Depth()
        depth.add((np.array(begin) * 1e6).astype(np.int64), (np.maximum(begin, end) * 1e6).astype(np.int64))
        cut |= len(depth) > thin.DEPTH_POINTS
        at, level = thin.depth(depth)
        figure.add_trace(
            go.Scatter(
                x=at / 1e9,
                y=level,
                mode="lines",
                name=model,
                line={"shape": "hv", "width": 1, "color": colour[model]},
                hovertemplate="at %{x:.4f} s<br>%{y} requests",
            )
        )
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)
    caption = "Requests that have arrived and whose first step has not begun." + (
        f" Thinned: the largest number of each of {thin.DEPTH_POINTS} stretches." if cut else ""
    )
    return Figure(sitting.label, caption, figure)


def batch_sizes(sitting: Sitting, colour: dict) -> Figure | None:
    """None where every execution had one item."""
    executions: dict[str, dict] = {}
    for request in sitting.requests:
        if request.steps:
            # Requests of a batch have the same steps.
            executions.setdefault(request.model, {})[request.steps[0]] = request.batch
    if all(size == 1 for by_begin in executions.values() for size in by_begin.values()):
        return None
    figure = base(300, "items of the execution", "share of executions, %")
    for model, by_begin in sorted(executions.items()):
        sizes, counts = np.unique(list(by_begin.values()), return_counts=True)
        figure.add_trace(
            go.Bar(
                x=sizes,
                y=100 * counts / counts.sum(),
                name=model,
                marker={"color": colour[model]},
                customdata=counts,
                hovertemplate="%{x} items<br>%{y:.1f} %, %{customdata} executions",
            )
        )
    figure.update_layout(showlegend=True, barmode="group")
    figure.update_xaxes(dtick=1 if max(max(b.values()) for b in executions.values()) < 33 else None)
    return Figure(sitting.label, "How many items the executions of each model had.", figure)


def around_slowest(sitting: Sitting, colour: dict, kind: str) -> Figure | None:
    """A row per model: what ran from the arrival of the slowest request to its answer."""
    request = waiting.slowest(sitting)
    if request is None:
        return None
    near = [one for one in sitting.requests if one.arrived < request.ended and one.ended > request.arrived]
    own = set(request.steps)
    steps = [s for s in waiting.steps_of(near) if s.begin < request.ended and s.end > request.arrived]
    rows = [f"{request.model}, this request", *sorted({s.model for s in steps if (s.begin, s.end) not in own})]
    figure = base(130 + 32 * len(rows), f"ms since its arrival{kind}", "")
    for model in dict.fromkeys([request.model, *rows[1:]]):
        shown = sorted((s for s in steps if s.model == model), key=lambda s: s.begin)
        figure.add_trace(
            go.Bar(
                base=[s.begin - request.arrived for s in shown],
                x=[s.end - s.begin for s in shown],
                y=[rows[0] if (s.begin, s.end) in own else model for s in shown],
                orientation="h",
                name=model,
                marker={"color": colour[model], "line": {"width": 0.5, "color": GREY}},
                hovertemplate="from %{base:.2f} ms, for %{x:.2f} ms",
            )
        )
    for at, text in ((0, "arrival"), (request.ended - request.arrived, "answer")):
        figure.add_vline(x=at, line={"color": GREY, "dash": "dot", "width": 1.5}, annotation_text=text)
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=rows)
    figure.update_layout(showlegend=False, barmode="overlay", bargap=0.3)
    return Figure(sitting.label, "The steps of all models around the request that the answer explains.", figure)
