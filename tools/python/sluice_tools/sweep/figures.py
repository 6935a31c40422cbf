"""The pictures of a sweep: JCT inflation over N or T, and measured against predicted delays."""

import math
from statistics import median

import plotly.graph_objects as go

from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE
from sluice_tools.report.figures import GREY, PALETTE, Figure, base
from sluice_tools.sweep import plan
from sluice_tools.sweep.outcome import Outcome, percent

_HIGH, _LOW = PALETTE[0], PALETTE[1]


def _bars(values: list) -> dict:
    """Error bars from the least to the greatest of each list."""
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 1,
        "width": 3,
        "array": [max(some) - median(some) for some in values],
        "arrayminus": [median(some) - min(some) for some in values],
    }


def _kinds(found: Outcome) -> dict:
    """Policies with a number, by form: 'sync:N': [sync:1, ...] in the order of N."""
    kinds: dict[str, list] = {}
    for policy in sorted(
        (p for p in found.policies if plan.policy(p).number), key=lambda policy: plan.policy(policy).number or 0
    ):
        kinds.setdefault(plan.policy(policy).form(), []).append(policy)
    return kinds


def _line(figure: go.Figure, policies: list, values: dict, name: str, colour: str, dash: str) -> None:
    """values: by policy, a list of ratios; policies without one are left out."""
    known = [policy for policy in policies if values.get(policy)]
    spreads = [values[policy] for policy in known]
    figure.add_trace(
        go.Scatter(
            x=[plan.policy(policy).number for policy in known],
            y=[median(some) for some in spreads],
            mode="lines+markers",
            name=name,
            line={"color": colour, "dash": dash, "width": 2},
            marker={"size": 6},
            error_y=_bars(spreads),
            hovertemplate="%{x}<br>%{y:.3f} × alone",
        )
    )


def inflation(found: Outcome, kind: str) -> Figure | None:
    """JCT over JCT alone, of both models, over N or T; one figure per form would share no axis."""
    kinds = _kinds(found)
    alone = found.mean(BEST_EFFORT, BEST_EFFORT_ALONE)
    if not kinds or not alone or not found.mean(CRITICAL, ALONE):
        return None
    in_time = {plan.policy(policies[0]).in_time for policies in kinds.values()}
    axis = "N, launches; T, us" if len(in_time) == 2 else "T, us" if True in in_time else "N, launches"
    figure = base(460, axis, f"JCT, × alone{kind}")
    slow = {policy: [ms / alone for ms in some] for policy, some in found.means[BEST_EFFORT].items()}
    for index, (form, policies) in enumerate(kinds.items()):
        shade = "" if len(kinds) == 1 else f" ({form})"
        high, low = (PALETTE[(2 * index + place) % len(PALETTE)] for place in (0, 1))
        for name, dash in (("p50", "solid"), ("p99", "dot")):
            x = {policy: found.entries[policy].x[name] for policy in policies if policy in found.entries}
            _line(figure, policies, x, f"{found.critical} {name}{shade}", high, dash)
        _line(figure, policies, slow, f"{found.swept} mean{shade}", low, "solid")
    for word, most in found.objective.limits.items():
        figure.add_hline(
            y=most,
            line={"color": GREY, "dash": "dash", "width": 1},
            annotation_text=f"limit: {word}",
            annotation_position="bottom right",
        )
    if found.best and (at := plan.policy(found.best).number):
        figure.add_vline(x=at, line={"color": "#d6476b", "dash": "dot", "width": 1.5})
        figure.add_annotation(
            x=math.log10(at),
            y=0.02,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            xshift=4,
            text=found.best,
            showarrow=False,
        )
    _axis(figure, [plan.policy(p).number for p in found.policies if plan.policy(p).number])
    return Figure(
        "",
        "Median over the repeats, bars from the least to the greatest; logarithmic axis. "
        "Dotted: p99. The vertical line is the value that the answer names.",
        figure,
    )


def _axis(figure: go.Figure, numbers: list) -> None:
    shown = sorted(set(numbers))
    figure.update_xaxes(type="log", tickvals=shown, ticktext=[str(n) for n in shown])
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=True)


def delays(found: Outcome, kind: str) -> list[Figure]:
    """Measured delay next to what the model predicts, of both models."""
    if not found.predicted:
        return []
    figures = (
        []
        if found.queue is None
        else [
            _delay(
                found,
                kind,
                CRITICAL,
                0,
                f"Preemption delay of {found.critical}",
                "min(N, queued kernels) × mean kernel time",
            )
        ]
    )
    return [*figures, _delay(found, kind, BEST_EFFORT, 1, f"Execution delay of {found.swept}", "a/N + b")]


def _delay(found: Outcome, kind: str, role: str, place: int, title: str, formula: str) -> Figure:
    x = {policy: n for policy in found.predicted if (n := plan.policy(policy).number)}
    policies, x = sorted(x, key=x.__getitem__), sorted(x.values())
    alone = median(found.means[role][BEST_EFFORT_ALONE if place else ALONE])
    measured = [[ms - alone for ms in found.means[role][policy]] for policy in policies]
    figure = base(340, "N, launches", f"mean JCT over alone, ms{kind}")
    hover = "N = %{x}<br>%{y:.3f} ms"
    figure.add_trace(
        go.Scatter(
            x=x,
            y=[median(some) for some in measured],
            mode="markers",
            name="measured",
            marker={"size": 8, "color": _LOW if place else _HIGH},
            hovertemplate=hover,
            error_y=_bars(measured),
        )
    )
    lines = [("predicted", [found.predicted[policy][place] - alone for policy in policies], GREY, "dash")]
    if place == 0 and found.queue and found.depth is not None:
        fitted = [min(n, found.depth) * found.queue.kernel_ms for n in x]
        lines.append(("with the queue fitted", fitted, PALETTE[2], "dot"))
    for name, y, colour, dash in lines:
        figure.add_trace(
            go.Scatter(
                x=x, y=y, mode="lines", name=name, hovertemplate=hover, line={"color": colour, "dash": dash, "width": 2}
            )
        )
    _axis(figure, x)
    # A prediction far off leaves the figure, so that the measurement can be seen.
    greatest = max(max(some) for some in measured)
    figure.update_yaxes(range=[min(0, *(min(some) for some in measured)) * 1.1, 1.4 * max(greatest, 1e-3)])
    return Figure(
        title,
        f"Predicted: {formula}"
        + (f"; mean absolute error {percent(found.errors[place])} of the JCT." if found.errors else "."),
        figure,
        wide=False,
    )
