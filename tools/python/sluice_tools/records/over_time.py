"""The charts of a run over time: latency and deadlines, memory of inference and training, handovers between them."""

from statistics import median

from sluice_tools.measure.plot import GREY, Axis, Bar, Chart, Point, Series, colour_of
from sluice_tools.measure.statistics import percentile
from sluice_tools.records.profile import PARTS, Profile
from sluice_tools.records.reader import Sitting
from sluice_tools.report import thin

_BINS = 60  # of the share of requests that kept their deadline
_MEMORY_POINTS = 1500
_MOST_HANDOVERS = 600  # that are drawn


def zero_of(sitting: Sitting) -> float:
    return min(request.arrived for request in sitting.requests)


def latency_over_time(sitting: Sitting, colour: dict, kind: str) -> list[Chart]:
    """A point for each answered request at its arrival, and a chart of the share that kept its deadline."""
    if not sitting.answered:
        return []
    zero = zero_of(sitting)
    x = Axis.from_zero(
        f"arrival, s since the first one{kind}", [(request.arrived - zero) / 1e3 for request in sitting.requests]
    )
    series = []
    for model in sitting.models:
        own = sorted((one for one in sitting.answered if one.model == model), key=lambda one: one.arrived)
        shown = [own[place] for place in thin.slowest([one.total for one in own])]
        points = [
            Point(at, one.total, f"{model}, at {at:.3f} s: {one.total:.3f} ms")
            for one in shown
            for at in [(one.arrived - zero) / 1e3]
        ]
        series.append(Series(model, points, colour[model], "solid", marker=2))
    cut = sum(len(one.points) for one in series) < len(sitting.answered)
    caption = "A point for each answered request" + (", the slowest of each stretch." if cut else ".")
    y = Axis.from_zero("latency, ms", [point.y for one in series for point in one.points])
    found = [Chart(x, y, series, caption, plot_height=220)]
    if with_deadline := [request for request in sitting.requests if request.deadline is not None]:
        found.append(_kept(with_deadline, zero, x))
    return found


def _kept(requests: list, zero: float, x: Axis) -> Chart:
    wide = max(max(request.arrived - zero for request in requests), 1.0) * (1 + 1e-9) / _BINS
    sent, good = [0] * _BINS, [0] * _BINS
    for request in requests:
        place = int((request.arrived - zero) / wide)
        sent[place] += 1
        good[place] += request.result == "ok" and request.total <= request.deadline
    points = [
        Point(
            (place + 0.5) * wide / 1e3,
            100 * good[place] / count,
            f"{100 * good[place] / count:.1f} % of {count} requests in time",
        )
        for place, count in enumerate(sent)
        if count
    ]
    y = Axis("in time", 0, 103, form="{:g} %".format, ticks=range(0, 101, 25))
    caption = "Of the requests with a deadline, those that were answered in time; refused ones were not."
    return Chart(x, y, [Series("in time", points, GREY, "solid", marker=2.5)], caption, plot_height=120)


def memory_over_time(profile: Profile, zero: float, kind: str) -> list[Chart]:
    if not profile.memory:
        return []
    step = -(-len(profile.memory) // _MEMORY_POINTS)
    rows = [((at - zero) / 1e3, *sides) for at, *sides in profile.memory[::step]]
    series = [
        Series(
            name,
            [Point(row[0], row[place], f"{name}, at {row[0]:.3f} s: {row[place]:.0f} MB") for row in rows],
            colour,
            dash,
            marker=0,
            step=True,
        )
        for place, name, colour, dash in (
            (1, "inference", colour_of(0), "solid"),
            (2, "training", colour_of(1), "solid"),
            (3, "all clients", GREY, "dot"),
        )
    ]
    caption = "Device memory that each side holds, without the contexts of processes. Dashed: handovers."
    first = min(0.0, rows[0][0])
    last = max(rows[-1][0], first + 1e-3)
    moments = [(one.at - zero) / 1e3 for one in profile.handovers[:200]]
    return [
        Chart(
            Axis(f"time, s since the first arrival{kind}", first, last),
            Axis.from_zero("memory, MB", [value for row in rows for value in row[1:]]),
            series,
            caption + (f" One sample in {step} is drawn." if step > 1 else ""),
            upright=[(at, "") for at in moments if first <= at <= last],
            plot_height=220,
        )
    ]


def handovers(profile: Profile, zero: float, kind: str) -> list[Chart]:
    """A bar for each handover, in its parts."""
    if not profile.handovers:
        return []
    shown = sorted(profile.handovers, key=lambda one: one.at)[:_MOST_HANDOVERS]
    series = [Series(part, [], colour_of(place)) for place, part in enumerate(PARTS)]
    for number, one in enumerate(shown, 1):
        about = f"at {(one.at - zero) / 1e3:.3f} s, {one.mb:.0f} MB, {one.total:.2f} ms"
        about += "" if one.obeyed else ", not obeyed"
        reached = 0.0
        for ms, own in zip(one.parts, series):
            if ms:
                own.bars.append(
                    Bar((number - 0.42, number + 0.42), (reached, reached + ms), f"{own.name} {ms:.3f} ms; {about}")
                )
            reached += ms
    return [
        Chart(
            Axis(f"handovers, in order{kind}", 0.5, len(shown) + 0.5),
            Axis.from_zero("ms", [one.total for one in shown]),
            [one for one in series if one.bars],
            _summary(profile, len(shown)),
            plot_height=220,
        )
    ]


def _summary(profile: Profile, shown: int) -> str:
    totals = [one.total for one in profile.handovers]
    columns = zip(PARTS, zip(*(one.parts for one in profile.handovers)))
    medians = ", ".join(f"{part} {median(column):.2f}" for part, column in columns if any(column))
    text = (
        f"{len(totals)} handovers of memory from training to inference: median {median(totals):.2f} ms "
        f"({medians}), p99 {percentile(totals, 0.99):.2f} ms, longest {max(totals):.2f} ms."
    )
    refused = sum(not one.obeyed for one in profile.handovers)
    text += f" {refused} were not obeyed in time." if refused else ""
    return text + (f" The first {shown} are drawn." if shown < len(totals) else "")
