"""The charts of a sweep: JCT inflation over N or T, and measured against predicted delays."""

from statistics import median

from sluice_tools.measure.plot import COLOURS, GREY, Axis, Chart, Point, Series, colour_of
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE
from sluice_tools.sweep import plan
from sluice_tools.sweep.outcome import Outcome, percent


def _kinds(found: Outcome) -> dict:
    """Policies with a number, by form: 'sync:N': [sync:1, ...] in the order of N."""
    kinds: dict[str, list] = {}
    for policy in sorted(
        (p for p in found.policies if plan.policy(p).number), key=lambda policy: plan.policy(policy).number or 0
    ):
        kinds.setdefault(plan.policy(policy).form(), []).append(policy)
    return kinds


def _line(policies: list, values: dict, name: str, colour: str, line: str) -> Series:
    """values: by policy, a list of ratios; policies without one are left out."""
    points = [
        _point(plan.policy(policy).number or 0, values[policy], f"{name}, {policy}: {{:.3f}} × alone")
        for policy in policies
        if values.get(policy)
    ]
    return Series(name, points, colour, line)


def _point(x: float, values: list, text: str) -> Point:
    """The median of the repeats, and a bar from the least to the greatest."""
    middle = median(values)
    return Point(x, middle, text.format(middle), (min(values), max(values)))


def inflation(found: Outcome, kind: str) -> list[Chart]:
    """JCT over JCT alone, of both models, over N or T; one chart per form would share no axis."""
    kinds = _kinds(found)
    alone = found.mean(BEST_EFFORT, BEST_EFFORT_ALONE)
    if not kinds or not alone or not found.mean(CRITICAL, ALONE):
        return []
    in_time = {plan.policy(policies[0]).in_time for policies in kinds.values()}
    title = "N, launches; T, us" if len(in_time) == 2 else "T, us" if True in in_time else "N, launches"
    slow = {policy: [ms / alone for ms in some] for policy, some in found.means[BEST_EFFORT].items()}
    series = []
    for index, (form, policies) in enumerate(kinds.items()):
        shade = "" if len(kinds) == 1 else f" ({form})"
        high, low = (colour_of(2 * index + place) for place in (0, 1))
        for name, line in (("p50", "solid"), ("p99", "dot")):
            x = {policy: found.entries[policy].x[name] for policy in policies if policy in found.entries}
            series.append(_line(policies, x, f"{found.critical} {name}{shade}", high, line))
        series.append(_line(policies, slow, f"{found.swept} mean{shade}", low, "solid"))
    drawn = [one for one in series if one.points]
    limits = list(found.objective.limits.values())
    at = plan.policy(found.best).number if found.best else None
    return [
        Chart(
            _numbers(title, [point.x for one in drawn for point in one.points]),
            _values(f"JCT, × alone{kind}", drawn, limits),
            drawn,
            "Up: JCT, times alone. Median over the repeats, bars from the least to the greatest. Dotted: p99."
            + (" The horizontal line is the limit of the objective." if limits else "")
            + (" The vertical line is the value that the answer names." if at else ""),
            across=[(limit, "") for limit in limits],
            upright=[(at, found.best)] if found.best and at else [],
        )
    ]


def _numbers(title: str, numbers: list) -> Axis:
    shown = sorted(set(numbers))
    if shown[0] == shown[-1]:
        return Axis(title, shown[0] / 2, shown[0] * 2, log=True, ticks=shown)
    return Axis(title, shown[0], shown[-1], log=True, ticks=shown)


def _values(title: str, series: list[Series], more: list) -> Axis:
    """From 0, and so high that no bar, line or limit is cut."""
    seen = [value for one in series for point in one.points for value in point.y_range or ()] + more
    return Axis(title, min(0.0, *seen) * 1.1, max(1e-3, *seen) * 1.05)


def delays(found: Outcome, kind: str) -> list[Chart]:
    """Measured delay next to what the model predicts, of both models."""
    if not found.predicted:
        return []
    formula = "min(N, queued kernels) × mean kernel time"
    high = _delay(found, kind, CRITICAL, 0, formula)
    low = _delay(found, kind, BEST_EFFORT, 1, "a/N + b")
    return [low] if found.queue is None else [high, low]


def _delay(found: Outcome, kind: str, role: str, place: int, formula: str) -> Chart:
    numbers = {policy: n for policy in found.predicted if (n := plan.policy(policy).number)}
    policies = sorted(numbers, key=numbers.__getitem__)
    alone = median(found.means[role][BEST_EFFORT_ALONE if place else ALONE])

    def line(name: str, values: list, colour: str, dash: str) -> Series:
        return Series(name, [_point(numbers[p], [v], "") for p, v in zip(policies, values)], colour, dash, marker=0)

    measured = [
        _point(numbers[policy], [ms - alone for ms in found.means[role][policy]], f"{policy}: {{:.3f}} ms")
        for policy in policies
    ]
    series = [
        Series("measured", measured, COLOURS[place]),
        line("predicted", [found.predicted[policy][place] - alone for policy in policies], GREY, "dash"),
    ]
    if place == 0 and found.queue and found.depth is not None:
        fitted = [min(numbers[policy], found.depth) * found.queue.kernel_ms for policy in policies]
        series.append(line("with the queue fitted", fitted, COLOURS[2], "dot"))
    return Chart(
        _numbers("N, launches", list(numbers.values())),
        _values(f"mean JCT over alone, ms{kind}", series, []),
        series,
        f"Up: mean JCT over alone, ms{kind}. Predicted: {formula}"
        + (f"; mean absolute error {percent(found.errors[place])} of the JCT." if found.errors else "."),
        f"Execution delay of {found.swept}" if place else f"Preemption delay of {found.critical}",
    )
