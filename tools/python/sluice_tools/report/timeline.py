"""Everything around the job that is explained, to zoom into."""

import html
from collections import Counter

import numpy as np
import plotly.graph_objects as go

from sluice_tools.report import thin
from sluice_tools.report.figures import GREY, Figure, style
from sluice_tools.report.stored import Spans
from sluice_tools.report.texts import milliseconds
from sluice_tools.report.waiting import short_name

_STREAMS = 3  # rows of kernels per client; the streams with the least work share the last one
_HOLDS = {1: "held: gate closed", 2: "held: event group", 3: "held: sync point"}


class _Rows:
    """Horizontal bars in rows, top row first."""

    def __init__(self, zero: int, window: tuple, scale: float):
        self.zero, self.window, self.scale = zero, window, scale
        self.names = []
        self.figure = go.Figure()

    def add(self, row: str, kind: str, pieces, colour: str, text, opacity: float = 1.0) -> None:
        """`pieces`: Spans, one after the other; `text`: the hover text of one of them, by its number."""
        begins, ends, hover = [], [], []
        for spans in pieces:
            first, last = thin.joined(spans.begin, spans.end, self.window[1] - self.window[0])
            begins.append(np.clip(spans.begin[first], *self.window))
            if len(first):
                ends.append(np.clip(np.maximum.reduceat(spans.end, first), *self.window))
            hover += [self._hover(spans, a, b, text(spans, a)) for a, b in zip(first.tolist(), last.tolist())]
        if not hover:
            return
        if row not in self.names:
            self.names.append(row)
        begin, end = np.concatenate(begins), np.concatenate(ends)
        self.figure.add_trace(
            go.Bar(
                base=(begin - self.zero) / 1e6 / self.scale,
                x=(end - begin) / 1e6 / self.scale,
                y=[row] * len(hover),
                orientation="h",
                width=0.72,
                customdata=hover,
                name=kind,
                # Of neighbours that touch, each second one is paler.
                marker={
                    "color": colour,
                    "line": {"width": 0},
                    "opacity": opacity * (1 - 0.3 * (np.arange(len(hover)) % 2)),
                },
                hovertemplate="%{customdata}<br>from %{base:.4f} ms<extra></extra>",
                showlegend=False,
            )
        )

    def _hover(self, spans: Spans, first: int, last: int, text: str) -> str:
        if first == last:
            return f"{text}<br>{milliseconds((spans.end[first] - spans.begin[first]) / self.scale)}"
        return f"{last - first + 1} short ones together, the first:<br>{text}"


def timeline(run, answer, colour: dict) -> Figure | None:
    if answer.model is None:
        return None
    begin, end = answer.begin_ns, answer.end_ns
    length = max(end - begin, 1)
    window = (begin - length, end + length)
    rows = _Rows(begin, window, run.scale)
    if answer.client is not None:
        for client in sorted(run.trace, key=lambda one: (one is not answer.client, -one.priority)):
            _traced(rows, client, colour.get(client.label, GREY))
    else:
        for model in sorted(run.models, key=lambda m: m is not answer.model):
            jobs = Spans(model.start_ns, model.end_ns, {"job": np.arange(1, model.jobs + 1)}).within(*window)
            rows.add(
                f"{model.log}: jobs",
                "job",
                [jobs],
                colour[model.log],
                lambda spans, i, log=model.log: f"job {spans['job'][i]} of {log}",
                0.75,
            )
    figure = rows.figure
    style(figure, 110 + 34 * len(rows.names))
    figure.update_layout(barmode="overlay", bargap=0.2, dragmode="zoom")
    figure.update_yaxes(categoryorder="array", categoryarray=rows.names[::-1], fixedrange=True)
    in_ms = length / 1e6 / run.scale
    figure.update_xaxes(title_text=f"ms since the job's begin{run.of_kind()}", range=[-0.12 * in_ms, 1.12 * in_ms])
    moments = [(0, "job begins"), (in_ms, "job ends")]
    if answer.closed_ns is not None and begin < answer.closed_ns < end:
        moments.append(((answer.closed_ns - begin) / 1e6 / run.scale, "gates close"))
    for at, text in moments:
        figure.add_vline(x=at, line={"width": 1.5, "dash": "dot", "color": "#d6476b"})
        figure.add_annotation(x=at, y=1, yref="paper", yanchor="bottom", text=text, showarrow=False)
    caption = (
        "Between the dotted lines: the job. Drag to zoom, shift-drag to move; double-click goes back, and "
        "once more shows a job's length on either side. Pale bars are jobs, red ones closed gates and "
        "holds, grey ones the driver's launch calls."
    )
    if answer.client is None:
        caption = "Jobs only, by the stamps of the job logs; the rest takes a trace (--trace)."
    return Figure(f"Around job {answer.job} of {answer.model.log}", caption, figure)


def _traced(rows: _Rows, client, colour: str) -> None:
    label, window = client.label, rows.window
    jobs, closed = [client.jobs.within(*window)], [client.closed.within(*window)]
    rows.add(f"{label}: jobs", "job", jobs, colour, lambda *_: f"job of {label}", 0.35)
    rows.add(f"{label}: gate", "gate closed", closed, "#d6476b", lambda *_: "gate closed", 0.55)
    rows.add(
        f"{label}: thread held",
        "held",
        client.holds.pieces(*window),
        "#d6476b",
        lambda spans, i: _HOLDS.get(int(spans["why"][i]), "held"),
    )
    calls = (
        Spans(spans.begin, spans["returned"], {"name": spans["name"]}).within(*window)
        for spans in client.launches.pieces(*window)
    )
    rows.add(
        f"{label}: launch calls", "launch", calls, GREY, lambda spans, i: _name(spans["name"][i]) + " (launch call)"
    )
    counts: Counter = Counter()
    for spans in client.execs.pieces(*window):
        counts.update(spans["stream"].tolist())
    streams = sorted(counts, key=lambda stream: (-counts[stream], stream))
    for index, stream in enumerate(streams[:_STREAMS]):
        last = index == _STREAMS - 1 and len(streams) > _STREAMS
        shown = streams[index:] if last else [stream]
        row = (
            f"{label}: GPU"
            if len(streams) == 1
            else f"{label}: GPU, " + (f"{len(shown)} more streams" if last else f"stream {stream}")
        )
        pieces = (spans.chosen(np.isin(spans["stream"], shown)) for spans in client.execs.pieces(*window))
        rows.add(row, "kernel", pieces, colour, lambda spans, i: _name(spans["name"][i]))


def _name(name) -> str:
    # plotly reads hover texts as HTML, and kernels are called `f<float, 4>`.
    return html.escape(short_name(str(name), 80))
