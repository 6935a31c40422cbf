"""The charts of the page but the timeline."""

from collections.abc import Iterable

from sluice_tools.measure.plot import GREY, RED, Axis, Chart, Point, Series, colour_of
from sluice_tools.report import thin


def colours(runs: list) -> dict:
    """A colour for each log name, the same in all charts: the highest priority first."""
    models = sorted((model for run in runs for model in run.models), key=lambda m: -m.priority)
    return {name: colour_of(place) for place, name in enumerate(dict.fromkeys(model.log for model in models))}


def jct_over_time(run, runs: list, colour: dict, answer) -> list[Chart]:
    """One for each model: their JCTs are of different sizes. The same model has the same range in all of `runs`."""
    models = [model for model in run.models if model.jobs]
    last = max((_at(run, model, -1) for model in models), default=0)
    found = []
    for model in models:
        same = [m for r in runs for m in r.models if m.jobs and m.log == model.log]
        y = Axis.from_zero("JCT, ms", [value for m in same for value in (*m.jct_ms, _limit(m) or 0)])
        points = [_job(run, model, job) for job in thin.slowest(model.jct_ms)]
        series = [Series(model.log, points, colour[model.log], "solid", marker=2.5)]
        if answer.model is model:
            series.append(Series("the job explained", [_job(run, model, answer.job - 1)], RED, marker=6))
        found.append(
            Chart(
                Axis.from_zero(f"start of the job, s since the first one{run.of_kind()}", [last]),
                y,
                series,
                "One point a job, at its start."
                + (f" The slowest job of each of {thin.JOB_POINTS} stretches." if len(points) < model.jobs else ""),
                model.log,
                across=[(limit, f"target {model.target.text}")] if (limit := _limit(model)) else [],
                plot_height=150,
            )
        )
    return found


def _at(run, model, job: int) -> float:
    """s of the GPU's time since the first job of the run."""
    return (model.start_ns[job] - run.zero_ns) / 1e9 / (1.0 if model.on_cpu else run.scale)


def _job(run, model, job: int) -> Point:
    at = max(0.0, _at(run, model, job))  # before the first one: the clock was stepped
    return Point(at, model.jct_ms[job], f"job {job + 1}, at {at:.4f} s: {model.jct_ms[job]:.3f} ms")


def _limit(model) -> float | None:
    """ms within which a job of the model must end."""
    return model.target and model.target.limit_ms


def cdf(lines: list, x_title: str, of: str, unit: str = " ms", x: Axis | None = None, **more) -> Chart:
    """lines: (name, values, colour, dash)."""
    series = []
    for name, values, colour, dash in lines:
        points = [
            Point(value, 100 * share, f"{name}: {100 * share:.1f} % take at most {value:.4g}{unit}")
            for value, share in thin.cdf(values)
        ]
        series.append(Series(name, [Point(points[0].x, 0), *points], colour, dash, marker=0, step=True))
    most = [max(values) for _, values, *_ in lines]
    y = Axis("", 0, 103, form="{:g} %".format, ticks=range(0, 101, 25))
    chart = Chart(x or Axis.from_zero(x_title, most), y, series, width=420, plot_height=220, **more)
    chart.caption = f"Share of {of} that take at most so long."
    if any(len(values) > thin.CDF_POINTS for _, values, *_ in lines):
        chart.caption += f" Thinned to about {thin.CDF_POINTS} points, denser in the tail."
    chart.key = [series[0].name] if len(series) == 1 else []
    return chart


def jct_cdfs(runs: list, alone_runs: list) -> list[Chart]:
    """One for each model, a line for each run; dashed where the model ran alone."""
    found = []
    everything = runs + [run for run in alone_runs if run not in runs]
    for log, name in dict.fromkeys((m.log, m.name) for run in runs for m in run.models):
        lines, limits = [], {}
        for place, run in enumerate(everything):
            for model in run.models:
                if (model.log, model.name) == (log, name) and model.jobs:
                    alone = len(run.models) == 1
                    if limit := _limit(model):
                        limits[limit] = f"target {model.target.text}"
                    looks = (GREY, "dash") if alone else (colour_of(place), "solid")
                    lines.append((f"{run.label}{' (alone)' if alone else ''}", model.jct_ms, *looks))
        if lines:
            title = f"JCT, ms{runs[0].of_kind()}"
            x = Axis.from_zero(title, [*limits, *(max(values) for _, values, *_ in lines)])
            found.append(cdf(lines, title, "jobs", x=x, title=f"CDF of JCT: {log}", upright=list(limits.items())))
            found[-1].caption = f"{name}: {found[-1].caption}"
    return found


def wait_cdf(runs: list, colour: dict) -> Chart | None:
    """A line for each client that waited for a gate."""
    lines = []
    for run, client in [(one, client) for one in runs for client in one.trace]:
        waits = _gate_waits(client)
        if len(waits):
            name = client.label if len(runs) == 1 else f"{run.label}: {client.label}"
            own = colour.get(client.label, GREY) if len(runs) == 1 else colour_of(len(lines))
            took = ((waits.end - waits.begin) / 1e6 / run.scale).tolist()
            lines.append((f"{name}, {len(waits)} wait{'s' * (len(waits) > 1)}", took, own, "solid"))
    if not lines:
        return None
    chart = cdf(lines, f"wait, ms{runs[0].of_kind()}", "waits for a closed gate", title="CDF of gate waits")
    chart.caption += " Of a launching thread; under device, of work outstanding while the gate was closed."
    return chart


def _gate_waits(client):
    from sluice_tools.report.activity import gate_waits  # needs numpy, as every trace does

    return gate_waits(client)


def queue_depth(run, colour: dict) -> list[Chart]:
    clients = [one for one in run.trace if len(one.launches) and one.has_execs]
    if not clients:
        return []
    from sluice_tools.report.activity import depth_curve, outstanding

    zero = min(int(one.clock.to_monotonic(run.zero_ns)) for one in clients)
    curves = {}
    for client in clients:
        # Launches of the warm-up are before the first job.
        depth = outstanding(client, zero)
        if len(depth):
            times, levels = depth_curve(depth)
            curves[client.label] = [((at - zero) / 1e9 / run.scale, level) for at, level in zip(times, levels)]
    caption = "Launches issued minus launches done; a graph is one launch."
    return step_curves(curves, colour, f"time, s since the first job{run.of_kind()}", "launches", caption)


def step_curves(curves: dict, colour: dict, x_title: str, what: str, caption: str) -> list[Chart]:
    """curves: (x, height) by name; empty ones are left out."""
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return []
    series = [
        Series(
            name,
            [Point(x, height, f"{name}, at {x:.4f} s: {height} {what}") for x, height in curve],
            colour.get(name, GREY),
            "solid",
            marker=0,
            step=True,
        )
        for name, curve in curves.items()
    ]
    if any(len(curve) >= thin.DEPTH_POINTS for curve in curves.values()):
        caption += f" The largest number of each of {thin.DEPTH_POINTS} stretches."
    key = list(curves)
    x = Axis.from_zero(x_title, _all(curves.values(), 0))
    return [Chart(x, Axis.from_zero(what, _all(curves.values(), 1)), series, caption, key=key, plot_height=220)]


def _all(curves: Iterable, place: int) -> list[float]:
    return [point[place] for curve in curves for point in curve]
