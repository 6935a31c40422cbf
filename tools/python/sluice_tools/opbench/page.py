"""The page of `sluice opbench report`, made of the parts of `sluice report`."""

from html import escape
from statistics import quantiles

from sluice_tools.measure.answer_page import Group, group, next_steps, page, soft
from sluice_tools.measure.plot import Axis, Chart, Point, Series, colour_of
from sluice_tools.opbench import pairs, records
from sluice_tools.opbench.pairs import Pair
from sluice_tools.opbench.records import Record
from sluice_tools.predict import page as predictions
from sluice_tools.predict.reader import Evaluation
from sluice_tools.report.figures import cdf
from sluice_tools.report.page import number, table

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
_MOST_SLOWDOWN = 3  # has the full colour
_NEXT = (
    "the fastest programs of a pack, without a measurement: `sluice predict sche_search -i FILE.programs --top 3`",
    "what two operators cost each other: `sluice opbench pairs FILE.programs -r RECORDS`",
)


def render(
    found: list[Record], paired: list[Pair], latencies: dict[str, list[tuple[int, float]]], predicted: list[Evaluation]
) -> str:
    simulated = any(one.device.startswith("simulated") for one in [*found, *paired])
    kinds = [("simulated GPU: times are not those of a real one", True)] if simulated else []
    devices = [row["device"] for row in records.rows(found)]
    colour = {device: colour_of(place) for place, device in enumerate(devices)}
    body = [
        *predictions.notes(predicted),
        _table(found),
        group(Group("Times", _times(found, colour))),
        group(Group("Shares of the SMs", _shares(found, colour), _turning(found))),
        group(Group("Tuning", _tuning(latencies))),
        *_heat_maps(paired),
        *map(group, predictions.groups(predicted)),
        next_steps(_NEXT),
    ]
    return page("opbench report", _title(found, paired), kinds, body)


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


def _heat_maps(paired: list[Pair]) -> list[str]:
    """A table for each kind and device; the more a program slows down, the darker its cell."""
    maps = []
    for kind, device in sorted({(one.kind, one.device) for one in pairs.latest(paired)}):
        names, cells = pairs.grid([one for one in paired if (one.kind, one.device) == (kind, device)])
        head = "".join(f"<th>{place}</th>" for place in range(1, len(names) + 1))
        rows = "".join(
            f"<tr><td class=left>{place} {escape(name)}</td>{''.join(map(_cell, row))}</tr>"
            for place, (name, row) in enumerate(zip(names, cells), 1)
        )
        head = f"<tr><th class=left>slowed down by</th>{head}</tr>"
        maps.append(f'<h3>{escape(f"{device}, {kind}")}</h3><div class="scroll"><table>{head}{rows}</table></div>')
    if not maps:
        return []
    caption = (
        "Time of a run next to the other program, over that alone. -: not measured, or it got nothing. "
        f"Of more than {pairs.MOST_NAMES} operators, those of one kind share a row; a cell is the median of its pairs."
    )
    return ["<h2>Pairs</h2>", soft(_pairs_text(paired)), *maps, soft(caption)]


def _cell(slowdown: float | None) -> str:
    if slowdown is None:
        return "<td class=none>-</td>"
    share = min(max(slowdown - 1, 0) / (_MOST_SLOWDOWN - 1), 1)
    return f'<td style="background:rgba(217,119,6,{0.8 * share:.2f})">{slowdown:.2f}</td>'


def _times(found: list[Record], colour: dict) -> list[Chart]:
    costs = records.labels(found)
    lines = [
        (device, [cost * 1e6 for (_, name), cost in costs.items() if name == device], own, "solid")
        for device, own in colour.items()
    ]
    if not (lines := [line for line in lines if line[1]]):
        return []
    x = Axis.around("time of a run, us", [value for _, values, *_ in lines for value in values])
    return [cdf(lines, "", "programs", " us", x=x)]


def _shares(found: list[Record], colour: dict) -> list[Chart]:
    by_share = records.ratios(found)
    devices = [device for device in colour if device in by_share]
    if not devices:
        return []
    series = []
    for row, device in enumerate(devices):
        values = by_share[device]
        low, middle, high = quantiles(values, method="inclusive") if len(values) > 1 else values * 3
        text = f"{device}: median {middle:.2f}, the middle half {low:.2f} to {high:.2f}, of {len(values)} programs"
        series.append(Series(device, [Point(middle, row + 0.7, text, x_range=(low, high))], colour[device]))
    ends = [end for one in series for point in one.points for end in point.x_range or ()]
    x = Axis.around("time over that on all SMs", [1.0, *ends])
    caption = "The same programs on a share of the SMs: the median, and a line over the middle half."
    return [Chart(x, Axis.of_rows(devices), series, caption)]


def _turning(found: list[Record]) -> str:
    points = records.turning_points(found)
    if not points:
        return ""
    counts = ", ".join(f"{count} on {device}" for device, count in sorted(points.items()))
    return (
        "Turning points: the smallest share on which the best program of an operator is within 5 % of its best time. "
        f"Operators: {counts}."
    )


def _tuning(latencies: dict[str, list[tuple[int, float]]]) -> list[Chart]:
    trials = sorted({count for points in latencies.values() for count, _ in points if count})
    series = []
    for place, (name, points) in enumerate(latencies.items()):
        own = {count: ms for count, ms in points if count}
        # TVM's own schedules have no trials: a line across.
        shown = own or dict.fromkeys(trials[:1] + trials[-1:], points[-1][1])
        drawn = [Point(count, ms, f"{name}, {count} trials: {ms:.3f} ms") for count, ms in sorted(shown.items())]
        series.append(Series(name, drawn, colour_of(place), "solid", marker=3))
    points = [point for one in series for point in one.points]
    if not points:
        return []
    x = Axis.around("trials of each operator", [point.x for point in points], ticks=trials)
    y = Axis.around("ms", [point.y for point in points])
    text = "Latency of the network: the sum over its calls, each by its operator's best program so far."
    return [Chart(x, y, series, text, key=[one.name for one in series])]


def _table(found: list[Record]) -> str:
    head = ["device", "records", "good", "disturbed", "least us", "median us", "most us", "errors"]
    lines = []
    for row in records.rows(found):
        errors = ", ".join(f"{count} {_ERRORS.get(error, error)}" for error, count in row["errors"].items())
        counts = [str(row[key]) for key in ("device", "records", "good", "disturbed")]
        times = [number(row[key], "{:.1f}") for key in ("least_us", "median_us", "most_us")]
        lines.append([*counts, *times, errors or "none"])
    return table("What do operators cost here?", head, lines, 1, _CAPTION)
