"""The frontier of `sluice bench llm`: time per token against best-effort speed, a point for each condition, width and
mode. Time slicing and MPS are in one figure for each best-effort program and load."""

from statistics import median

from sluice_tools.bench.llm.plan import TIME_SLICED
from sluice_tools.measure.plot import Axis, Chart, Point, Series, colour_of
from sluice_tools.measure.summary import Entry

_CAPTION = (
    "Best is bottom right. Up: time per output token (p50), × of the server alone. Small points are time-sliced. "
    "Median over the rounds; the lines across are their range."
)
_SMALL, _LARGE = 3.5, 5.5


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _name(entry: Entry) -> str:
    return f"{entry.mode}, {entry.cell}"


def _series(entry: Entry, colour: str) -> Series:
    share, x = median(entry.share), median(entry.x["p50"])
    text = f"{_name(entry)}: TPOT {x:.2f} ×, best effort {_percent(share)}"
    ranges = (min(entry.x["p50"]), max(entry.x["p50"])), (min(entry.share), max(entry.share))
    marker = _SMALL if entry.mode == TIME_SLICED else _LARGE
    return Series(_name(entry), [Point(share, x, text, *ranges)], colour, marker=marker)


def _chart(subject: str, drawn: list[Entry], cells: list[str]) -> Chart:
    """cells: in an order that is the same in all figures: a condition has one colour in all modes."""
    heights = [value for entry in drawn for value in entry.x["p50"]]
    shares = [value for entry in drawn for value in entry.share]
    series = [_series(entry, colour_of(cells.index(entry.cell))) for entry in drawn]
    return Chart(
        Axis("best-effort speed, of its own alone", 0, max(1.0, *shares), form=_percent),
        Axis("time per token", min(0.98, *heights), max(1.2, *heights) * 1.02, log=True, form="{:g} ×".format),
        series,
        _CAPTION,
        title=subject,
        across=[(1.0, "alone")],
        key=[one.points[0].text for one in series],
    )


def points_of(entries: list[Entry]) -> list[Entry]:
    """Those that are a point. entries: of which the latency is the time per token."""
    return [entry for entry in entries if entry.together and entry.share and entry.x["p50"]]


def figures(entries: list[Entry]) -> list[Chart]:
    points = points_of(entries)
    cells = list(dict.fromkeys(entry.cell for entry in points))
    subjects = dict.fromkeys(entry.subject for entry in points)
    return [_chart(subject, [entry for entry in points if entry.subject == subject], cells) for subject in subjects]
