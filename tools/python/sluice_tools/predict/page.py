"""The figures of the page, made of the parts of `sluice report`."""

import statistics
from collections import Counter

import plotly.graph_objects as go

from sluice_tools.opbench.records import kind_of
from sluice_tools.predict.reader import Evaluation
from sluice_tools.report import page
from sluice_tools.report.figures import GREY, PALETTE, Figure, base

_MOST_POINTS = 5000
_MOST_OPERATORS = 25
_CAPTION = (
    "MAPE: mean of |predicted - measured| / measured. Pairs: share of pairs of programs of one operator that are in "
    "the right order. Within 20 %: share of predictions that are off by at most 20 %."
)


def groups(found: list[Evaluation]) -> list[tuple]:
    """What `page.render` of `sluice report` takes. None for no evaluation."""
    if not found:
        return []
    return [
        ("Predicted against measured", "", [_scatter(one, index) for index, one in enumerate(found)], len(found) > 1),
        ("Error by operator", "", [_by_operator(found)], False),
        ("Error of the test over the training", "", [_curves(found)], False),
    ]


def notes(found: list[Evaluation]) -> list[str]:
    """Which programs are not drawn."""
    return [
        f"{one.label}: {_MOST_POINTS} of {len(one.names)} programs are drawn."
        for one in found
        if len(one.names) > _MOST_POINTS
    ]


def render(found: list[Evaluation]) -> str:
    title = "Sluice: predicted times of programs"
    return page.render("predict report", title, [], groups(found), notes=notes(found), table=_table(found))


def _scatter(one: Evaluation, index: int) -> Figure:
    step = -(-len(one.names) // _MOST_POINTS)
    measured, predicted, names = one.measured_s[::step], one.predicted_s[::step], one.names[::step]
    figure = base(480, "measured, us", "predicted, us")
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    ends = [min(measured) * 1e6, max(measured) * 1e6]
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line={"color": GREY, "dash": "dash"}, name="equal"))
    figure.add_trace(
        go.Scatter(
            x=[s * 1e6 for s in measured],
            y=[s * 1e6 for s in predicted],
            mode="markers",
            marker={"size": 4, "opacity": 0.5, "color": PALETTE[index % len(PALETTE)]},
            text=names,
            hovertemplate="%{text}<br>measured %{x:.1f} us<br>predicted %{y:.1f} us<extra></extra>",
            name=one.label,
        )
    )
    return Figure(one.label, "A point for each program of the test.", figure)


def _by_operator(found: list[Evaluation]) -> Figure:
    counts = Counter(map(kind_of, found[0].names))
    shown = [name for name, _ in counts.most_common(_MOST_OPERATORS)]
    figure = base(120 + 22 * len(shown) * max(1, len(found) // 2), "mean error, %", "")
    for index, one in enumerate(found):
        errors: dict[str, list[float]] = {}
        for name, error in zip(one.names, one.errors()):
            errors.setdefault(kind_of(name), []).append(100 * error)
        bars = [statistics.fmean(errors[name]) if name in errors else None for name in shown]
        figure.add_trace(
            go.Bar(x=bars, y=shown, orientation="h", name=one.label, marker={"color": PALETTE[index % len(PALETTE)]})
        )
    figure.update_yaxes(autorange="reversed")
    left = f" The {len(counts) - len(shown)} with the fewest programs are left out." if len(counts) > len(shown) else ""
    return Figure("", f"The kinds of operators with most programs first.{left}", figure)


def _curves(found: list[Evaluation]) -> Figure | None:
    figure = base(360, "seconds of training", "MAPE, %")
    for index, one in enumerate(found):
        if one.curve:
            seconds, mape = zip(*one.curve)
            colour = PALETTE[index % len(PALETTE)]
            line = go.Scatter(x=seconds, y=[100 * m for m in mape], name=one.label, line={"color": colour})
            figure.add_trace(line)
    if not figure.data:
        return None
    return Figure("", "No choice depends on these errors: the last weights are kept.", figure)


_COLUMNS = (
    ("MAPE", "mape", "{:.1%}"),
    ("pairs", "pairs", "{:.3f}"),
    ("top-1", "top1", "{:.2f}"),
    ("top-5", "top5", "{:.2f}"),
    ("within 20 %", "within20", "{:.1%}"),
    ("training s", "train_s", "{:.1f}"),
)


def _table(found: list[Evaluation]) -> dict:
    rows = []
    for one in found:
        errors = one.errors()
        # Baselines of one `train` share the metrics.csv of the folder above.
        values = {"mape": one.mape(), "within20": sum(e <= 0.2 for e in errors) / len(errors)}
        values |= {
            key: float(text) for key, text in one.metrics.items() if key in dict.fromkeys(k for _, k, _ in _COLUMNS)
        }
        texts = [one.label, str(len(errors))]
        texts += [
            form.format(values[key]) if key in values and values[key] == values[key] else "-"
            for _, key, form in _COLUMNS
        ]
        rows.append({"cells": [{"text": text, "none": text == "-"} for text in texts], "first": True})
    return {
        "head": ["model", "programs", *(name for name, *_ in _COLUMNS)],
        "left": 1,
        "rows": rows,
        "caption": _CAPTION,
    }
