"""The figures of the page but the timeline. Colours of text and grid are set by the page, which
knows light from dark."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sluice_tools.report import thin
from sluice_tools.report.activity import gate_waits, outstanding

# Told apart in light, dark and by most colour-blind readers.
PALETTE = ("#3b82f6", "#f07818", "#16a37b", "#b865e0", "#d6476b", "#8a8f29", "#2aa5c4", "#8d7766")
GREY = "#8a8f98"


@dataclass
class Figure:
    title: str
    caption: str
    figure: go.Figure
    wide: bool = True


def colours(runs: list) -> dict:
    """A colour for each log name, the same in all figures: the highest priority first."""
    models = sorted((model for run in runs for model in run.models), key=lambda m: -m.priority)
    names = list(dict.fromkeys(model.log for model in models))
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def base(height: int, x_title: str, y_title: str) -> go.Figure:
    figure = go.Figure(layout={"template": "none", "height": height})
    style(figure, height)
    figure.update_xaxes(title_text=x_title)
    figure.update_yaxes(title_text=y_title)
    return figure


def style(figure: go.Figure, height: int) -> None:
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 70, "r": 20, "t": 30, "b": 55},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(zeroline=False, automargin=True)
    figure.update_yaxes(zeroline=False, automargin=True)


def jct_over_time(run, runs: list, colour: dict, answer) -> Figure | None:
    """A row per model: their JCTs are of different sizes, their clock is one. The same model has
    the same range in all of `runs`."""
    models = [model for model in run.models if model.jobs]
    if not models:
        return None
    figure = make_subplots(rows=len(models), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for row, model in enumerate(models, 1):
        scale = 1.0 if model.on_cpu else run.scale
        chosen = thin.slowest(model.jct_ms)
        at = (model.start_ns[chosen] - run.zero_ns) / 1e9 / scale
        figure.add_trace(
            go.Scatter(
                x=at,
                y=model.jct_ms[chosen],
                mode="lines+markers",
                name=model.log,
                line={"width": 1, "color": colour[model.log]},
                marker={"size": 5},
                customdata=chosen + 1,
                hovertemplate="job %{customdata}<br>at %{x:.4f} s<br>%{y:.3f} ms",
            ),
            row=row,
            col=1,
        )
        if answer.model is model:
            job = answer.job - 1
            figure.add_trace(
                go.Scatter(
                    x=[(model.start_ns[job] - run.zero_ns) / 1e9 / scale],
                    y=[model.jct_ms[job]],
                    mode="markers",
                    name="the job explained",
                    marker={"size": 13, "symbol": "circle-open", "line": {"width": 2}, "color": "#d6476b"},
                    hovertemplate=f"job {answer.job}<br>%{{y:.3f}} ms",
                ),
                row=row,
                col=1,
            )
        same = [m for r in runs for m in r.models if m.jobs and m.log == model.log]
        top = max(max(m.jct_ms.max(), _limit(m) or 0) for m in same)
        if limit := _limit(model):
            figure.add_hline(y=limit, row=row, col=1, **_limit_line(model, "top left"))
        figure.update_yaxes(title_text=f"{model.log}<br>JCT, ms", range=[0, 1.08 * top], row=row, col=1)
    style(figure, 130 + 150 * len(models))
    figure.update_xaxes(title_text=f"start of the job, s since the first one{run.of_kind()}", row=len(models), col=1)
    thinned = any(model.jobs > thin.JOB_POINTS for model in models)
    return Figure(
        "JCT over time",
        "One point a job, at its start."
        + (f" Thinned to {thin.JOB_POINTS} points a model: the slowest job of each stretch." if thinned else ""),
        figure,
    )


def _limit(model) -> float | None:
    """ms within which a job of the model must end."""
    return model.target and model.target.limit_ms


def _limit_line(model, position: str, colour: str = GREY) -> dict:
    return {
        "line": {"color": colour, "dash": "dot", "width": 1.5},
        "annotation": {"text": f"target {model.target.text}", "font": {"size": 11}},
        "annotation_position": position,
    }


def cdf_of(runs_values: list, x_title: str, of: str, unit: str = " ms") -> go.Figure:
    """runs_values: (name, values, colour, dash)."""
    figure = base(320, x_title, f"share of {of}, %")
    for name, values, colour, dash in runs_values:
        x, share = thin.cdf(values)
        figure.add_trace(
            go.Scatter(
                x=np.concatenate((x[:1], x)),
                y=100 * np.concatenate(([0], share)),
                mode="lines",
                name=name,
                line={"shape": "hv", "color": colour, "dash": dash, "width": 2},
                hovertemplate="%{y:.1f} % take at most %{x:.3f}" + unit,
            )
        )
    figure.update_yaxes(range=[0, 103])
    figure.update_xaxes(range=[0, 1.05 * max(float(values.max()) for _, values, _, _ in runs_values)])
    figure.update_layout(showlegend=True)
    return figure


def thinned(counts) -> str:
    if any(count > thin.CDF_POINTS for count in counts):
        return f" Thinned to about {thin.CDF_POINTS} points, denser in the tail."
    return ""


def jct_cdfs(runs: list, alone_runs: list) -> list:
    """A figure per model, a line per run; dashed where the model ran alone."""
    found = []
    everything = runs + [run for run in alone_runs if run not in runs]
    for log, name in dict.fromkeys((m.log, m.name) for run in runs for m in run.models):
        lines, limited = [], []
        for index, run in enumerate(everything):
            for model in run.models:
                if (model.log, model.name) == (log, name) and model.jobs:
                    alone = len(run.models) == 1
                    if _limit(model):
                        limited.append((model, PALETTE[index % len(PALETTE)] if len(runs) > 1 else GREY))
                    lines.append(
                        (
                            f"{run.label}{' (alone)' if alone else ''}",
                            model.jct_ms,
                            GREY if alone else PALETTE[index % len(PALETTE)],
                            "dash" if alone else "solid",
                        )
                    )
        if lines:
            count = thinned(len(line[1]) for line in lines)
            figure = cdf_of(lines, f"JCT, ms{runs[0].of_kind()}", "jobs")
            _add_limits(figure, limited)
            found.append(
                Figure(
                    f"CDF of JCT: {log}",
                    f"{name}: share of jobs that took at most so long." + count,
                    figure,
                    wide=False,
                )
            )
    return found


def _add_limits(figure: go.Figure, limited: list) -> None:
    """limited: (model, colour)."""
    for model, colour in limited:
        figure.add_vline(x=_limit(model), **_limit_line(model, "bottom left", colour))
        figure.update_xaxes(range=[0, max(figure.layout.xaxis.range[1], 1.05 * model.target.limit_ms)])


def wait_cdf(runs: list, colour: dict) -> Figure | None:
    """A line per client that waited for a gate."""
    lines = []
    for run in runs:
        for client in run.trace:
            waits = gate_waits(client)
            if len(waits):
                name = client.label if len(runs) == 1 else f"{run.label}: {client.label}"
                lines.append(
                    (
                        f"{name}, {len(waits)} wait{'s' * (len(waits) > 1)}",
                        (waits.end - waits.begin) / 1e6 / run.scale,
                        colour.get(client.label, GREY) if len(runs) == 1 else PALETTE[len(lines) % len(PALETTE)],
                        "solid",
                    )
                )
    if not lines:
        return None
    caption = (
        "Share of waits for a closed gate that took at most so long: of a launching thread; under "
        "device, of work outstanding while the gate was closed." + thinned(len(line[1]) for line in lines)
    )
    return Figure("CDF of gate waits", caption, cdf_of(lines, f"wait, ms{runs[0].of_kind()}", "waits"), wide=False)


def queue_depth(run, colour: dict) -> Figure | None:
    clients = [one for one in run.trace if len(one.launches) and one.has_execs]
    if not clients:
        return None
    figure = base(300, f"time, s since the first job{run.of_kind()}", "launches issued and not done")
    zero = min(int(one.clock.to_monotonic(run.zero_ns)) for one in clients)
    thinned = False
    for client in clients:
        # Launches of the warm-up lie before the first job.
        depth = outstanding(client, zero)
        if not len(depth):
            continue
        thinned |= len(depth) > thin.DEPTH_POINTS
        at, level = thin.depth(depth)
        figure.add_trace(
            go.Scatter(
                x=(at - zero) / 1e9 / run.scale,
                y=level,
                mode="lines",
                name=client.label,
                line={"shape": "hv", "width": 1, "color": colour.get(client.label, GREY)},
                hovertemplate="at %{x:.5f} s<br>%{y} launches",
            )
        )
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)
    return Figure(
        "Queue depth",
        "Launches issued minus launches done; a graph is one launch."
        + (f" Thinned: the largest depth of each of {thin.DEPTH_POINTS} stretches." if thinned else ""),
        figure,
    )
