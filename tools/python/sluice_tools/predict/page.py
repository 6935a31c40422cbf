"""The charts of the page, made of the parts of `sluice report`."""

import statistics
from collections import Counter

from sluice_tools.measure.answer_page import Group, group, next_steps, page, soft
from sluice_tools.measure.plot import GREY, Axis, Bar, Chart, Point, Series, colour_of, in_row
from sluice_tools.predict.reader import Evaluation, kind_of
from sluice_tools.report.page import table

_MOST_POINTS = 2000
_MOST_OPERATORS = 25
_CAPTION = (
    "MAPE: mean of |predicted - measured| / measured. Pairs: share of pairs of programs of one operator that are in "
    "the right order. Within 20 %: share of predictions that are off by at most 20 %."
)
_NEXT = (
    "the fastest programs of a pack, without a measurement: `sluice predict sche_search -i FILE.programs --top 3`",
)


def groups(found: list[Evaluation]) -> list[Group]:
    """None for no evaluation."""
    if not found:
        return []
    drawn = [_scatter(one, place) for place, one in enumerate(found)]
    return [
        Group("Predicted against measured", drawn, pair=len(found) > 1),
        Group("Error by operator", [_by_operator(found)]),
        Group("Error of the test over the training", _curves(found)),
    ]


def notes(found: list[Evaluation]) -> list[str]:
    """Which programs are not drawn."""
    return [
        soft(f"{one.label}: one program in {_step(one)} of {len(one.names)} is drawn.", "note")
        for one in found
        if _step(one) > 1
    ]


def render(found: list[Evaluation]) -> str:
    body = [*notes(found), _table(found), *map(group, groups(found)), next_steps(_NEXT)]
    return page("predict report", "Sluice: predicted times of programs", [], body)


def _step(one: Evaluation) -> int:
    return -(-len(one.names) // _MOST_POINTS)


def _scatter(one: Evaluation, place: int) -> Chart:
    step = _step(one)
    points = [
        Point(
            measured * 1e6,
            predicted * 1e6,
            f"{name}: measured {measured * 1e6:.1f} us, predicted {predicted * 1e6:.1f} us",
        )
        for measured, predicted, name in zip(one.measured_s[::step], one.predicted_s[::step], one.names[::step])
        if predicted > 0
    ]
    x = Axis.around("measured, us", [point.x for point in points] or [1])
    y = Axis.around("predicted, us", [value for point in points for value in (point.x, point.y)] or [1])
    ends = [Point(at, at) for at in (x.low, x.high)]
    series = [Series("equal", ends, GREY, "dash", marker=0), Series(one.label, points, colour_of(place), marker=2)]
    return Chart(x, y, series, "A point for each program of the test.", one.label, width=420)


def _by_operator(found: list[Evaluation]) -> Chart:
    counts = Counter(map(kind_of, found[0].names))
    shown = [name for name, _ in counts.most_common(_MOST_OPERATORS)]
    series = []
    for number, one in enumerate(found):
        errors: dict[str, list[float]] = {}
        for name, error in zip(one.names, one.errors()):
            errors.setdefault(kind_of(name), []).append(100 * error)
        bars = [
            Bar((0, mean), in_row(row, number, len(found)), f"{one.label}, {name}: {mean:.1f} %")
            for row, name in enumerate(shown)
            if name in errors
            for mean in [statistics.fmean(errors[name])]
        ]
        series.append(Series(one.label, [], colour_of(number), bars=bars))
    x = Axis.from_zero("mean error, %", [bar.x[1] for one in series for bar in one.bars])
    caption = "The kinds of operators with most programs first."
    if len(counts) > len(shown):
        caption += f" The {len(counts) - len(shown)} with the fewest programs are left out."
    return Chart(x, Axis.of_rows(shown), series, caption, key=[one.label for one in found])


def _curves(found: list[Evaluation]) -> list[Chart]:
    series = [
        Series(
            one.label,
            [Point(at, 100 * mape, f"{one.label}, after {at:.1f} s: {100 * mape:.1f} %") for at, mape in one.curve],
            colour_of(place),
            "solid",
            marker=2,
        )
        for place, one in enumerate(found)
        if one.curve
    ]
    if not series:
        return []
    points = [point for one in series for point in one.points]
    x = Axis.from_zero("seconds of training", [point.x for point in points])
    y = Axis.from_zero("MAPE, %", [point.y for point in points])
    return [Chart(x, y, series, "No choice depends on these errors: the last weights are kept.")]


_COLUMNS = (
    ("MAPE", "mape", "{:.1%}"),
    ("pairs", "pairs", "{:.3f}"),
    ("top-1", "top1", "{:.2f}"),
    ("top-5", "top5", "{:.2f}"),
    ("within 20 %", "within20", "{:.1%}"),
    ("training s", "train_s", "{:.1f}"),
)


def _table(found: list[Evaluation]) -> str:
    rows = []
    for one in found:
        errors = one.errors()
        # Baselines of one `train` share the metrics.csv of the folder above.
        values = {"mape": one.mape(), "within20": sum(e <= 0.2 for e in errors) / len(errors)}
        values |= {
            key: float(text) for key, text in one.metrics.items() if key in dict.fromkeys(k for _, k, _ in _COLUMNS)
        }
        known = (key in values and values[key] == values[key] for _, key, _ in _COLUMNS)
        cells = [form.format(values[key]) if there else "-" for there, (_, key, form) in zip(known, _COLUMNS)]
        rows.append([one.label, str(len(errors)), *cells])
    return table("Summary", ["model", "programs", *(name for name, *_ in _COLUMNS)], rows, 1, _CAPTION)
