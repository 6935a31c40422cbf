"""The page of `sluice opbench report`, made of the parts of `sluice report`."""

import numpy as np
import plotly.graph_objects as go

from sluice_tools.opbench import pairs, records
from sluice_tools.opbench.pairs import Pair
from sluice_tools.opbench.records import Record
from sluice_tools.predict import page as predictions
from sluice_tools.predict.reader import Evaluation
from sluice_tools.report import page
from sluice_tools.report.figures import PALETTE, Figure, base, cdf_of

_ERRORS = {
    1: "not in the space",
    2: "not compiled",
    3: "not compiled",
    4: "failed on the device",
    5: "wrong result",
    6: "compiled too long",
    7: "ran too long",
    8: "other errors",
}
_CAPTION = "Times are medians of five repeats, with a warm L2 cache. Disturbed records are not in the times."


def render(
    found: list[Record], paired: list[Pair], latencies: dict[str, list[tuple[int, float]]], predicted: list[Evaluation]
) -> str:
    simulated = any(one.device.startswith("simulated") for one in [*found, *paired])
    kinds = [("simulated GPU: times are not those of a real one", True)] if simulated else []
    devices = [row["device"] for row in records.rows(found)]
    colour = {device: PALETTE[place % len(PALETTE)] for place, device in enumerate(devices)}
    groups = [
        ("Times", "", [_times(found, colour)], False),
        ("Shares of the SMs", _turning(found), [_shares(found, colour)], False),
        ("Tuning", "", [_tuning(latencies)], False),
        ("Pairs", _pairs_text(paired), _heat_maps(paired), False),
        *predictions.groups(predicted),
    ]
    return page.render(
        "opbench report",
        _title(found, paired),
        kinds,
        groups,
        heading="What do operators cost here?",
        notes=predictions.notes(predicted),
        table=_table(found),
    )


def _title(found: list[Record], paired: list[Pair]) -> str:
    programs = f"{len({one.program for one in found})} programs of {len({one.task for one in found})} operators"
    return f"Sluice: {programs}" + (f", {len(pairs.latest(paired))} pairs" if paired else "")


def _pairs_text(paired: list[Pair]) -> str:
    lines = []
    for row in pairs.rows(paired):
        if row["median_speedup"] is not None:
            lines.append(
                f"{row['device']}, {row['kind']}: {row['pairs']} pairs, median speed-up over one after the other "
                f"{row['median_speedup']:.2f}; in {row['got_nothing']} cases a program got nothing meanwhile."
            )
    return " ".join(lines)


def _heat_maps(paired: list[Pair]) -> list[Figure]:
    """One for each kind and device."""
    maps = []
    for kind, device in sorted({(one.kind, one.device) for one in pairs.latest(paired)}):
        names, cells = pairs.grid([one for one in paired if (one.kind, one.device) == (kind, device)])
        figure = base(160 + 24 * len(names), "next to", "slowdown of")
        figure.add_trace(
            go.Heatmap(
                z=cells,
                x=names,
                y=names,
                zmin=1,
                zmax=3,
                colorscale="Oranges",
                hovertemplate="%{y} next to %{x}: %{z:.2f} times slower<extra></extra>",
            )
        )
        figure.update_layout(plot_bgcolor="#dddddd")
        figure.update_xaxes(showgrid=False)
        figure.update_yaxes(showgrid=False)
        caption = (
            "Time of a run next to the other program, over that alone. Grey: not measured, or it got nothing. "
            f"Of more than {pairs.MOST_NAMES} operators, those of one kind share a row, "
            "and a cell is the median of its pairs."
        )
        maps.append(Figure(f"{device}, {kind}", caption, figure))
    return maps


def _times(found: list[Record], colour: dict) -> Figure | None:
    costs = records.labels(found)
    lines = []
    for device in colour:
        values = np.array([cost * 1e6 for (_, name), cost in costs.items() if name == device])
        if len(values):
            lines.append((device, values, colour[device], "solid"))
    if not lines:
        return None
    figure = cdf_of(lines, "time of a run, us", "programs", " us")
    figure.update_xaxes(type="log", range=None)  # that of cdf_of begins at 0
    return Figure("", "Share of programs that take at most so long.", figure)


def _shares(found: list[Record], colour: dict) -> Figure | None:
    figure = base(380, "share of the GPU", "time over that on all SMs")
    by_share = records.ratios(found)
    for device in colour:
        if device in by_share:
            figure.add_trace(
                go.Box(y=by_share[device], name=device, marker={"color": colour[device]}, boxpoints="outliers")
            )
    if not by_share:
        return None
    figure.update_yaxes(type="log")
    figure.update_layout(showlegend=False)
    return Figure("", "The same programs on a share of the SMs. The box holds the middle half.", figure)


def _turning(found: list[Record]) -> str:
    points = records.turning_points(found)
    if not points:
        return ""
    counts = ", ".join(f"{count} on {device}" for device, count in sorted(points.items()))
    return (
        "Turning points: the smallest share on which the best program of an operator is within 5 % of its best time. "
        f"Operators: {counts}."
    )


def _tuning(latencies: dict[str, list[tuple[int, float]]]) -> Figure | None:
    figure = base(380, "trials of each operator", "latency of the network, ms")
    trials = sorted({number for points in latencies.values() for number, _ in points if number})
    for name, points in latencies.items():
        own = {number: ms for number, ms in points if number}
        # TVM's own schedules have no trials: a line across.
        shown = own or dict.fromkeys(trials[:1] + trials[-1:], points[-1][1])
        figure.add_trace(go.Scatter(x=list(shown), y=list(shown.values()), mode="lines+markers", name=name))
    figure.update_xaxes(type="log", tickvals=trials, ticktext=[str(number) for number in trials])
    figure.update_yaxes(type="log")
    text = "The sum over the calls of a network, each by its operator's best program so far."
    return Figure("", text, figure) if figure.data else None


def _table(found: list[Record]) -> dict:
    head = ["device", "records", "good", "disturbed", "least us", "median us", "most us", "errors"]
    lines = []
    for row in records.rows(found):
        errors = ", ".join(f"{count} {_ERRORS.get(error, error)}" for error, count in row["errors"].items())
        texts = [row["device"], row["records"], row["good"], row["disturbed"]]
        texts += ["-" if row[key] is None else f"{row[key]:.1f}" for key in ("least_us", "median_us", "most_us")]
        cells = [{"text": str(text), "none": text == "-"} for text in [*texts, errors or "none"]]
        lines.append({"cells": cells, "first": True})
    return {"head": head, "left": 1, "rows": lines, "caption": _CAPTION}
