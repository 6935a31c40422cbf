"""The pictures of a sweep."""

import math

import plotly.graph_objects as go

from sluice_tools.report.figures import GREY, PALETTE, Figure, base
from sluice_tools.sweep import plan
from sluice_tools.sweep.outcome import percent

_LOW, _HIGH = PALETTE[1], PALETTE[0]


def _kinds(found) -> dict:
    """Policies with a number, by form: 'sync:N': [sync:1, ...] in the order of N."""
    kinds = {}
    for policy in sorted((p for p in found.policies if plan.number(p)), key=plan.number):
        kinds.setdefault(plan.form(policy), []).append(policy)
    return kinds


def _line(
    figure, x, spreads: list, base_ms: float, name: str, colour: str, dash: str, width: int = 2
) -> None:
    known = [(at, spread) for at, spread in zip(x, spreads) if spread[0] is not None]
    y = [spread[0] / base_ms for _, spread in known]
    figure.add_trace(
        go.Scatter(
            x=[at for at, _ in known],
            y=y,
            mode="lines+markers",
            name=name,
            line={"color": colour, "dash": dash, "width": width},
            marker={"size": 6},
            error_y={
                "type": "data",
                "symmetric": False,
                "thickness": 1,
                "width": 3,
                "array": [spread[2] / base_ms - at for (_, spread), at in zip(known, y)],
                "arrayminus": [at - spread[1] / base_ms for (_, spread), at in zip(known, y)],
            },
            hovertemplate="%{x}<br>%{y:.3f} × alone",
        )
    )


def inflation(found, kind: str) -> Figure | None:
    """JCT over JCT alone, of both models, over N."""
    kinds = _kinds(found)
    if not kinds or not all(found.alone[name]["mean"] for name in (found.critical, found.swept)):
        return None
    in_time = {plan.in_time(policies[0]) for policies in kinds.values()}
    axis = "N, launches; T, us" if len(in_time) == 2 else "T, us" if True in in_time else "N, launches"
    figure = base(460, axis, f"JCT, × alone{kind}")
    for index, (name, policies) in enumerate(kinds.items()):
        x = [plan.number(policy) for policy in policies]
        shade = "" if len(kinds) == 1 else f" ({name})"
        high, low = (
            (_HIGH, _LOW) if len(kinds) == 1 else (PALETTE[2 * index % 8], PALETTE[(2 * index + 1) % 8])
        )
        for one, dash in (("p50", "solid"), ("p99", "dot")):
            _line(
                figure,
                x,
                [found.cells[p][found.critical][one] for p in policies],
                found.alone[found.critical][one],
                f"{found.critical} {one}{shade}",
                high,
                dash,
            )
        _line(
            figure,
            x,
            [found.cells[p][found.swept]["mean"] for p in policies],
            found.alone[found.swept]["mean"],
            f"{found.swept} mean{shade}",
            low,
            "solid",
        )
    for word, most in found.objective.limits.items():
        figure.add_hline(
            y=most,
            line={"color": GREY, "dash": "dash", "width": 1},
            annotation_text=f"limit: {word}",
            annotation_position="bottom right",
        )
    if found.best and plan.number(found.best):
        figure.add_vline(
            x=plan.number(found.best), line={"color": "#d6476b", "dash": "dot", "width": 1.5}
        )
        figure.add_annotation(
            x=math.log10(plan.number(found.best)),
            y=0.02,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            xshift=4,
            text=found.best,
            showarrow=False,
        )
    _axis(figure, [plan.number(p) for p in found.policies if plan.number(p)])
    return Figure(
        "",
        "Median over the repeats, bars from the least to the most; N on a logarithmic axis. Dotted: p99. "
        "The vertical line is the value named on top.",
        figure,
    )


def _axis(figure, numbers: list) -> None:
    shown = sorted(set(numbers))
    figure.update_xaxes(type="log", tickvals=shown, ticktext=[str(n) for n in shown])
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)


def delays(found, kind: str) -> list:
    """Measured delay beside what the model says, of both models."""
    if not found.predicted:
        return []
    policies = sorted(found.predicted, key=plan.number)
    x = [plan.number(policy) for policy in policies]
    drawn = []
    for number, (name, title, colour) in enumerate(
        ((found.critical, "Preemption delay", _HIGH), (found.swept, "Execution delay", _LOW))
    ):
        if number == 0 and found.queue is None:
            continue
        figure = base(340, "N, launches", f"mean JCT over alone, ms{kind}")
        alone = found.alone[name]["mean"]
        measured = [found.cells[policy][name]["mean"] for policy in policies]
        figure.add_trace(
            go.Scatter(
                x=x,
                y=[spread[0] - alone for spread in measured],
                mode="markers",
                name="measured",
                marker={"size": 8, "color": colour},
                hovertemplate="N = %{x}<br>%{y:.3f} ms",
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "thickness": 1,
                    "width": 3,
                    "array": [spread[2] - spread[0] for spread in measured],
                    "arrayminus": [spread[0] - spread[1] for spread in measured],
                },
            )
        )
        figure.add_trace(
            go.Scatter(
                x=x,
                y=[found.predicted[policy][number] - alone for policy in policies],
                mode="lines",
                name="predicted",
                line={"color": GREY, "dash": "dash", "width": 2},
                hovertemplate="N = %{x}<br>%{y:.3f} ms",
            )
        )
        if number == 0:
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=[min(n, found.depth) * found.queue.kernel_ms for n in x],
                    mode="lines",
                    name="with the queue fitted",
                    line={"color": PALETTE[2], "dash": "dot", "width": 2},
                    hovertemplate="N = %{x}<br>%{y:.3f} ms",
                )
            )
        _axis(figure, x)
        # A prediction far off leaves the figure, so that the measurement can be seen.
        figure.update_yaxes(
            range=[
                min(0, *(s[1] - alone for s in measured)) * 1.1,
                1.4 * max(max(s[2] - alone for s in measured), 1e-3),
            ]
        )
        formula = "min(N, queued kernels) × mean kernel time" if number == 0 else "a/N + b"
        drawn.append(
            Figure(
                f"{title} of {name}",
                f"Predicted: {formula}; mean absolute error "
                f"{percent(found.errors[number])} of the JCT.",
                figure,
                wide=False,
            )
        )
    return drawn
