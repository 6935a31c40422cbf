"""The figures of a run over time: latency and deadlines, memory of inference and training, handovers between them."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sluice_tools.measure.statistics import percentile
from sluice_tools.records.profile import PARTS, Profile
from sluice_tools.records.reader import Sitting
from sluice_tools.report import thin
from sluice_tools.report.figures import GREY, PALETTE, Figure, base, style

_BINS = 60  # of the share of requests that kept their deadline
_MEMORY_POINTS = 4000


def zero_of(sitting: Sitting) -> float:
    return min(request.arrived for request in sitting.requests)


def latency_over_time(sitting: Sitting, colour: dict, kind: str) -> Figure | None:
    """A point per answered request at its arrival; below, the share that kept its deadline, where there are any."""
    if not sitting.answered:
        return None
    zero = zero_of(sitting)
    with_deadline = [request for request in sitting.requests if request.deadline is not None]
    rows = 2 if with_deadline else 1
    heights = [0.68, 0.32][:rows]
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=heights)
    cut = False
    for model in sitting.models:
        own = sorted((one for one in sitting.answered if one.model == model), key=lambda one: one.arrived)
        if not own:
            continue
        at, latency = np.array([(one.arrived - zero, one.total) for one in own]).T
        chosen = thin.slowest(latency)
        cut |= len(chosen) < len(own)
        figure.add_trace(
            go.Scatter(
                x=at[chosen] / 1e3,
                y=latency[chosen],
                mode="lines+markers",
                name=model,
                line={"width": 1, "color": colour[model]},
                marker={"size": 4},
                hovertemplate="at %{x:.3f} s<br>%{y:.3f} ms",
            ),
            row=1,
            col=1,
        )
    style(figure, 340 if rows == 1 else 460)
    figure.update_yaxes(title_text="latency, ms", rangemode="tozero", row=1, col=1)
    if with_deadline:
        _add_kept(figure, with_deadline, zero)
    figure.update_xaxes(title_text=f"arrival, s since the first one{kind}", row=rows, col=1)
    figure.update_layout(showlegend=True)
    caption = "A point for each answered request" + (", the slowest of each stretch." if cut else ".")
    if with_deadline:
        caption += " Below: share of the requests with a deadline that were answered in time; refused ones were not."
    return Figure(sitting.label, caption, figure)


def _add_kept(figure: go.Figure, requests: list, zero: float) -> None:
    at = np.array([request.arrived - zero for request in requests])
    kept = np.array([request.result == "ok" and request.total <= request.deadline for request in requests])
    edges = np.linspace(0, max(at.max(), 1.0) * (1 + 1e-9), _BINS + 1)
    place = np.digitize(at, edges) - 1
    sent = np.bincount(place, minlength=_BINS)
    good = np.bincount(place, weights=kept, minlength=_BINS)
    some = sent > 0
    figure.add_trace(
        go.Scatter(
            x=((edges[:-1] + edges[1:]) / 2e3)[some],
            y=100 * good[some] / sent[some],
            mode="lines+markers",
            name="in time",
            line={"shape": "hvh", "color": GREY, "width": 1.5},
            marker={"size": 4},
            customdata=sent[some],
            hovertemplate="%{y:.1f} % of %{customdata} requests in time",
        ),
        row=2,
        col=1,
    )
    figure.update_yaxes(title_text="in time, %", range=[0, 103], row=2, col=1)


def memory_over_time(profile: Profile, zero: float, kind: str) -> Figure | None:
    if not profile.memory:
        return None
    step = -(-len(profile.memory) // _MEMORY_POINTS)
    at, infer, train, total = np.array(profile.memory[::step]).T
    at = (at - zero) / 1e3
    figure = base(320, f"time, s since the first arrival{kind}", "memory, MB")
    for name, values, colour in (("inference", infer, PALETTE[0]), ("training", train, PALETTE[1])):
        figure.add_trace(
            go.Scatter(
                x=at,
                y=values,
                mode="lines",
                name=name,
                stackgroup="one",
                line={"shape": "hv", "width": 1, "color": colour},
                hovertemplate="at %{x:.3f} s<br>%{y:.0f} MB",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=at,
            y=total,
            mode="lines",
            name="all clients",
            line={"shape": "hv", "width": 1, "color": GREY, "dash": "dot"},
            hovertemplate="at %{x:.3f} s<br>%{y:.0f} MB in all",
        )
    )
    for handover in profile.handovers[:200]:
        line = {"color": GREY, "width": 0.5}
        figure.add_vline(x=(handover.at - zero) / 1e3, line=line, layer="below")
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)
    caption = "Device memory that each side holds, without the contexts of processes. Vertical lines: handovers."
    return Figure("", caption + (f" One sample in {step} is drawn." if step > 1 else ""), figure)


def handovers(profile: Profile, zero: float, kind: str) -> Figure | None:
    """A bar for each handover, in its parts."""
    if not profile.handovers:
        return None
    shown = sorted(profile.handovers, key=lambda one: one.at)[:1000]
    figure = base(340, f"handovers, in order{kind}", "ms")
    where = np.arange(1, len(shown) + 1)
    said = [
        f"at {(one.at - zero) / 1e3:.3f} s, {one.mb:.0f} MB, {one.total:.2f} ms{'' if one.obeyed else ', not obeyed'}"
        for one in shown
    ]
    for index, part in enumerate(PARTS):
        values = [one.parts[index] for one in shown]
        if any(values):
            figure.add_trace(
                go.Bar(
                    x=where,
                    y=values,
                    name=part,
                    marker={"color": PALETTE[index]},
                    customdata=said,
                    hovertemplate=part + " %{y:.3f} ms<br>%{customdata}",
                )
            )
    figure.update_layout(showlegend=True, barmode="stack", bargap=0.15)
    return Figure("", _summary(profile, len(shown)), figure)


def _summary(profile: Profile, shown: int) -> str:
    everything = np.array([one.parts for one in profile.handovers])
    totals = everything.sum(axis=1)
    medians = ", ".join(f"{part} {np.median(column):.2f}" for part, column in zip(PARTS, everything.T) if column.any())
    text = (
        f"{len(totals)} handovers of memory from training to inference: median {np.median(totals):.2f} ms "
        f"({medians}), p99 {percentile(totals.tolist(), 0.99):.2f} ms, longest {totals.max():.2f} ms."
    )
    refused = sum(not one.obeyed for one in profile.handovers)
    text += f" {refused} were not obeyed in time." if refused else ""
    return text + (f" The first {shown} are drawn." if shown < len(totals) else "")
