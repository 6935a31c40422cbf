"""The one figure of every measurement: critical latency against best-effort speed. Needs plotly."""

import math
from statistics import median

import plotly.graph_objects as go

from sluice_tools.measure.summary import Entry, Height, heights
from sluice_tools.report.figures import GREY, PALETTE, Figure, base

_TICKS = (1, 1.2, 1.5, 2, 3, 4, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star", "hexagon")


def tradeoff(entries: list[Entry], names: list[str], kind: str = "", title: str = "") -> Figure | None:
    """A point per condition: x is best-effort speed, y is latency times alone (p50, and a bar up to
    p99, or to the slowest job where there are too few for a p99). Bars along x are the repeats.

    names: of the conditions, in an order that is the same in all figures of a page: it gives them
    colour and shape. None where no cell has both figures. kind: a suffix for the axes, ", simulated" for instance.
    """
    found = heights(entries)
    drawn = [entry for entry in entries if entry.together and entry.share and entry.cell in found]
    if not drawn:
        return None
    figure = base(430, f"best-effort speed, % of its own alone{kind}", f"critical latency, × the p50 alone{kind}")
    for entry in drawn:
        figure.add_trace(_point(entry, found[entry.cell], names.index(entry.cell)))
    figure.add_hline(y=1, line={"color": GREY, "dash": "dot", "width": 1})
    seen = [value for height in found.values() for value in (height.p50, height.last)]
    low, high = min(0.95, *seen) / 1.05, max(1.5, *seen) * 1.08  # all of every bar is seen
    figure.update_yaxes(type="log", range=[math.log10(low), math.log10(high)], tickvals=_TICKS)
    least = 100 * min(min(entry.share) for entry in drawn)
    figure.update_xaxes(range=[max(0, least - 20), 104], ticksuffix=" %")
    figure.update_layout(showlegend=True)
    return Figure(
        title,
        "Best is bottom right. The marker is p50, the bar reaches to p99 (to the slowest job where fewer "
        "than 100 jobs were measured). Median over the repeats.",
        figure,
    )


def _point(entry: Entry, height: Height, index: int) -> go.Scatter:
    share = [100 * value for value in entry.share]
    x, p50, last = median(share), height.p50, height.last
    return go.Scatter(
        x=[x],
        y=[p50],
        name=entry.cell,
        mode="markers",
        marker={"size": 11, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "color": PALETTE[index % len(PALETTE)]},
        error_y={
            "type": "data",
            "symmetric": False,
            "thickness": 1.5,
            "width": 5,
            "array": [last - p50],
            "arrayminus": [0],
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "thickness": 1,
            "width": 3,
            "array": [max(share) - x],
            "arrayminus": [x - min(share)],
        },
        hovertemplate=f"{entry.cell}<br>best effort %{{x:.1f}} %<br>p50 {p50:.2f} ×, p99 {last:.2f} ×<extra></extra>",
    )
