"""The charts of the page, made of the parts of `sluice report`."""

from sluice_tools.measure.plot import GREY, Axis, Bar, Chart, Series, colour_of, in_row
from sluice_tools.records import waiting
from sluice_tools.records.reader import Sitting
from sluice_tools.report import thin
from sluice_tools.report.figures import cdf, step_curves

_ALL = "all models"


def colours(sittings: list[Sitting]) -> dict:
    models = sorted({model for sitting in sittings for model in sitting.models})
    return {model: colour_of(place) for place, model in enumerate(models)}


def latency_cdfs(sittings: list[Sitting], kind: str) -> list[Chart]:
    """One for each model, a line for each scheduler."""
    found = []
    for model in colours(sittings):
        lines = _by_scheduler(sittings, model, "total")
        if lines:
            found.append(cdf(lines, f"latency, ms{kind}", "answered requests", title=f"Latency: {model}"))
    return found


def ratio_cdfs(sittings: list[Sitting], colour: dict) -> list[Chart]:
    """Of one scheduler a line for each model; of several a chart for each model, with a line for each scheduler."""
    if len(sittings) == 1:
        lines = [(model, _values(sittings[0], model, "ratio"), colour[model], "solid") for model in colour]
        if len(lines) > 1:
            lines.append((_ALL, _values(sittings[0], None, "ratio"), GREY, "dash"))
        return [_ratio("", [line for line in lines if line[1]])] if any(line[1] for line in lines) else []
    models = [None, *colour] if len(colour) > 1 else colour
    drawn = [(model or _ALL, _by_scheduler(sittings, model, "ratio")) for model in models]
    return [_ratio(f"Response ratio: {name}", lines) for name, lines in drawn if lines]


def _ratio(title: str, lines: list) -> Chart:
    """Twice and four times the limit are what the published figures call a violation."""
    most = max(max(values) for _, values, *_ in lines)
    upright = [(times, f"{times:g} ×") for times in (2.0, 4.0) if times <= most]
    return cdf(lines, "latency, times the limit", "answered requests", " × the limit", title=title, upright=upright)


def _by_scheduler(sittings: list[Sitting], model: str | None, name: str) -> list:
    lines = [(one.label, _values(one, model, name), colour_of(place), "solid") for place, one in enumerate(sittings)]
    return [line for line in lines if line[1]]


def _values(sitting: Sitting, model: str | None, name: str) -> list[float]:
    """name: of a number of a request. model: None for all."""
    return [getattr(one, name) for one in sitting.answered if model in (None, one.model)]


def waiting_requests(sitting: Sitting, colour: dict, kind: str) -> list[Chart]:
    """The queue: from the arrival to the first step, or to the refusal of a request that never ran."""
    zero = min(request.arrived for request in sitting.requests)
    curves = {}
    for model in sitting.models:
        events = []
        for one in sitting.requests:
            if one.model == model:
                left = max(one.arrived, min((step[0] for step in one.steps), default=one.ended))
                events += [(one.arrived, 1), (left, -1)] if left > one.arrived else []
        times, levels, level = [], [], 0
        for at, change in sorted(events):  # at one moment, those that leave come first
            level += change
            times.append((at - zero) / 1e3)
            levels.append(level)
        curves[model] = [(times[place], levels[place]) for place in thin.slowest(levels, thin.DEPTH_POINTS)]
    caption = "Requests that have arrived and whose first step has not begun."
    return step_curves(curves, colour, f"time, s since the first arrival{kind}", "requests that wait", caption)


def batch_sizes(sitting: Sitting, colour: dict) -> list[Chart]:
    """None where every execution had one item."""
    executions: dict[str, dict] = {}
    for request in sitting.requests:
        if request.steps:
            # Requests of a batch have the same steps.
            executions.setdefault(request.model, {})[request.steps[0]] = request.batch
    sizes = sorted({size for by_begin in executions.values() for size in by_begin.values()})
    if sizes in ([], [1]):
        return []
    models = sorted(executions)
    series = []
    for number, model in enumerate(models):
        found = list(executions[model].values())
        bars = []
        for size in sorted(set(found)):
            share = 100 * found.count(size) / len(found)
            left = size - 0.4 + 0.8 * number / len(models)
            text = f"{model}, {size} items: {share:.1f} %, {found.count(size)} executions"
            bars.append(Bar((left, left + 0.8 / len(models)), (0, share), text))
        series.append(Series(model, [], colour[model], bars=bars))
    x = Axis("items of the execution", sizes[0] - 0.5, sizes[-1] + 0.5, ticks=range(sizes[0], sizes[-1] + 1))
    y = Axis("share of executions", 0, 105, form="{:g} %".format, ticks=range(0, 101, 25))
    caption = "How many items the executions of each model had."
    return [Chart(x, y, series, caption, key=models, plot_height=180)]


def around_slowest(sitting: Sitting, colour: dict, kind: str) -> list[Chart]:
    """A row for each model: what ran from the arrival of the slowest request to its answer."""
    request = waiting.slowest(sitting)
    if request is None:
        return []
    begin, end = request.arrived, request.ended
    near = [one for one in sitting.requests if one.arrived < end and one.ended > begin]
    own = set(request.steps)
    steps = [step for step in waiting.steps_of(near) if step.begin < end and step.end > begin]
    rows = [f"{request.model}, this request", *sorted({s.model for s in steps if (s.begin, s.end) not in own})]
    series = {model: Series(model, [], colour[model]) for model in (request.model, *rows[1:])}
    for step in sorted(steps, key=lambda step: step.begin):
        row = 0 if (step.begin, step.end) in own else rows.index(step.model)
        text = f"{step.model}: from {step.begin - begin:.2f} ms, for {step.end - step.begin:.2f} ms"
        # Of neighbours that touch, each second one is paler.
        opacity = 1 - 0.3 * (len(series[step.model].bars) % 2)
        series[step.model].bars.append(Bar((step.begin - begin, step.end - begin), in_row(row), text, opacity))
    first, last = min(0.0, *(s.begin - begin for s in steps)), max(end - begin, *(s.end - begin for s in steps))
    x = Axis(f"ms since its arrival{kind}", first, last)
    caption = "The steps of all models around the request that the answer explains."
    upright = [(0.0, "arrival"), (end - begin, "answer")]
    return [Chart(x, Axis.of_rows(rows), list(series.values()), caption, upright=upright)]
