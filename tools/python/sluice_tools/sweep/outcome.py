"""What a sweep found: medians over the repeats, the best value, and the delay model beside them."""

import statistics
from dataclasses import dataclass, field

import numpy as np

from sluice_tools.sweep import delay, objective, plan

FIGURES = ("mean", "p50", "p99")


@dataclass
class Outcome:
    swept: str
    critical: str
    policies: list
    objective: objective.Objective
    alone: dict  # by model: figure: ms
    cells: dict  # by policy: model: figure: (median, least, most) in ms
    words: dict  # by policy: p50, p99, mean, slowdown; × alone
    best: str | None = None
    kept: bool = False
    queue: object = None
    execution: tuple | None = None  # a and b, ms
    predicted: dict = field(default_factory=dict)  # by policy: (critical mean, swept mean) in ms
    errors: tuple | None = None  # percent, of each
    depth: float | None = None  # queued kernels, fitted to the measurement
    depth_error: float | None = None

    def answer(self) -> list:
        if self.best is None:
            return ["No value could be judged: a model ended no job in a cell (--duration)."]
        one, mine = self.words[self.best], self.objective.text()
        head = (
            f"Best for '{mine}': {self.best}"
            if self.kept
            else f"No value keeps '{mine}'; {self.best} misses it least"
        )
        return [
            f"{head}: {self.critical} p50 {one['p50']:.2f} × alone, p99 {one['p99']:.2f} ×; "
            f"{self.swept} {one['slowdown']:.3f} × alone."
        ]

    def model_text(self) -> list:
        if not self.errors:
            return ["The delay model takes three values with a number N, and a figure of each."]
        a, b = self.execution
        texts = [
            f"Execution delay of {self.swept} = {a:.3g} ms / N {'+' if b >= 0 else '-'} {abs(b):.3g} ms, by "
            f"least squares: off by {percent(self.errors[1])} of its mean JCT, on average."
        ]
        if self.queue is None:
            return texts + ["No preemption delay: the traced run holds no times of execution."]
        return [
            f"Preemption delay of {self.critical} = min(N, queued) × {self.queue.kernel_ms:.3g} ms (mean "
            f"kernel of {self.swept}), with what was queued when each job of a traced run under gate began "
            f"(mean {self.queue.depths.mean():.0f}): off by {percent(self.errors[0])} of its mean JCT, on "
            f"average. With the number queued fitted ({self.depth:.1f}): off by "
            f"{percent(self.depth_error)}."
        ] + texts


def percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def judge(rows: list, swept: str, critical: str, policies: list, wanted, queue) -> Outcome:
    """rows: of the sweep's CSV."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    alone = {
        name: {one: _spread(rows, f"{name} alone", name, one)[0] for one in FIGURES} for name in models
    }
    cells = {
        policy: {name: {one: _spread(rows, policy, name, one) for one in FIGURES} for name in models}
        for policy in policies
    }
    found = Outcome(swept, critical, policies, wanted, alone, cells, {}, queue=queue)
    for policy, cell in cells.items():
        words = {one: _times(cell[critical][one][0], alone[critical][one]) for one in FIGURES}
        found.words[policy] = words | {"slowdown": _times(cell[swept]["mean"][0], alone[swept]["mean"])}
    found.best, found.kept = objective.best(
        {policy: one for policy, one in found.words.items() if None not in one.values()}, wanted
    )
    _predict(found)
    return found


def _spread(rows: list, cell: str, model: str, figure: str) -> tuple:
    values = [
        float(row[f"{figure}_ms"])
        for row in rows
        if (row["cell"], row["model"]) == (cell, model) and row[f"{figure}_ms"] not in ("", "None")
    ]
    return (statistics.median(values), min(values), max(values)) if values else (None, None, None)


def _times(value, base):
    return value / base if value is not None and base else None


def _predict(found: Outcome) -> None:
    usable = [
        policy
        for policy in found.policies
        if plan.number(policy) and not plan.in_time(policy) and None not in found.words[policy].values()
    ]
    if len(usable) < 3:
        return
    n = np.array([plan.number(policy) for policy in usable])
    high, low = (
        np.array([found.cells[policy][name]["mean"][0] for policy in usable])
        for name in (found.critical, found.swept)
    )
    base_high, base_low = (found.alone[name]["mean"] for name in (found.critical, found.swept))
    found.execution = delay.execution_fit(n, low - base_low)
    expected_low = base_low + found.execution[0] / n + found.execution[1]
    expected_high = base_high + found.queue.delay_ms(n) if found.queue else np.full(len(n), np.nan)
    found.errors = (delay.error_percent(expected_high, high), delay.error_percent(expected_low, low))
    if found.queue:
        found.depth = delay.fitted_depth(n, high - base_high, found.queue.kernel_ms)
        found.depth_error = delay.error_percent(
            base_high + np.minimum(n, found.depth) * found.queue.kernel_ms, high
        )
    found.predicted = {
        policy: (float(a), float(b)) for policy, a, b in zip(usable, expected_high, expected_low)
    }


def table(found: Outcome) -> dict:
    """Heads and rows of texts, for the page and for Markdown."""
    head = [
        "policy",
        f"{found.critical} p50 ms",
        "× alone",
        "p99 ms",
        "× alone",
        "mean ms",
        "× alone",
        "predicted",
        f"{found.swept} mean ms",
        "× alone",
        "predicted",
    ]
    base = found.alone[found.critical]
    rows = [
        [
            "alone",
            *(text for one in ("p50", "p99", "mean") for text in (_text(base[one]), "1.00")),
            "-",
            _text(found.alone[found.swept]["mean"]),
            "1.00",
            "-",
        ]
    ]
    for policy in found.policies:
        cell, words = found.cells[policy], found.words[policy]
        said = found.predicted.get(policy, (None, None))
        row = [policy + (" (best)" if policy == found.best and found.kept else "")]
        for one in ("p50", "p99", "mean"):
            row += [_range(cell[found.critical][one]), _text(words[one], 2)]
        rows.append(
            row
            + [
                _text(said[0]),
                _range(cell[found.swept]["mean"]),
                _text(words["slowdown"], 2),
                _text(said[1]),
            ]
        )
    return {"head": head, "rows": rows}


def _text(value, digits: int = 3) -> str:
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.{digits if digits == 2 or value < 10 else 1}f}"


def _range(spread: tuple) -> str:
    middle, least, most = spread
    if middle is None or least == most:
        return _text(middle)
    return f"{_text(middle)} [{_text(least)}-{_text(most)}]"


def markdown(found: Outcome, kind: str) -> str:
    shown = table(found)
    lines = [shown["head"], ["---"] * len(shown["head"]), *shown["rows"]]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join([kind, text, *found.answer(), *found.model_text()]) + "\n"
