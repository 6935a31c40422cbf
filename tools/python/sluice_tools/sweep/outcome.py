"""What a sweep found: the best value, and what the delay model of the original experiment predicts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from sluice_tools.measure import table
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, middle, summarize
from sluice_tools.sweep import delay, objective, plan


@dataclass
class Outcome:
    swept: str
    critical: str
    policies: list
    objective: objective.Objective
    entries: dict[str, Entry]  # by cell
    means: dict  # by role: cell: mean JCTs in ms, a value per repeat
    words: dict = field(default_factory=dict)  # by policy: p50, p99, mean, slowdown; × alone
    best: str | None = None
    kept: bool = False
    queue: delay.Queue | None = None
    execution: tuple | None = None  # a and b, ms
    predicted: dict = field(default_factory=dict)  # by policy: (critical mean, swept mean) in ms
    errors: tuple | None = None  # percent, of each
    depth: float | None = None  # queued kernels, fitted to the measurement
    depth_error: float | None = None

    def answer(self) -> str:
        if few := self.few_jobs():
            return few
        if self.best is None:
            return "No value could be judged: a model ended no job in a cell (--duration)."
        one, mine = self.words[self.best], self.objective.text()
        head = (
            f"Best for '{mine}': {self.best}" if self.kept else f"No value keeps '{mine}'; {self.best} misses it least"
        )
        p99 = "" if one["p99"] is None else f", p99 {one['p99']:.2f} ×"
        text = f"{head}: {self.critical} p50 {one['p50']:.2f} × alone{p99}; {self.swept} {one['slowdown']:.3f} × alone."
        if max(entry.repeats for entry in self.entries.values()) == 1:
            text += " One repeat: differences of a few percent may be chance (--repeats 3)."
        return text

    def few_jobs(self) -> str:
        """A value is called best only on jobs enough of both models in every cell."""
        fewest = min(
            (
                min([*entry.jobs, *entry.best_effort_jobs], default=0)
                for policy in self.policies
                if (entry := self.entries.get(policy))
            ),
            default=0,
        )
        if fewest >= ENOUGH_TO_JUDGE:
            return ""
        return (
            f"No value is named best: a cell has {fewest} job{'' if fewest == 1 else 's'} of a "
            f"model, and it takes at least {ENOUGH_TO_JUDGE} (--duration)."
        )

    def model_text(self) -> list:
        if not self.errors or not self.execution:
            return ["The delay model takes three values with a number N, and a figure of each."]
        a, b = self.execution
        texts = [
            f"Execution delay of {self.swept} = {a:.3g} ms / N {'+' if b >= 0 else '-'} {abs(b):.3g} ms, by "
            f"least squares: off by {percent(self.errors[1])} of its mean JCT, on average."
        ]
        if self.queue is None or self.depth_error is None:
            return [*texts, "No preemption delay: the traced run holds no times of execution."]
        return [
            f"Preemption delay of {self.critical} = min(N, queued) × {self.queue.kernel_ms:.3g} ms (mean "
            f"kernel of {self.swept}), with what was queued when each job of a traced run under gate began "
            f"(mean {self.queue.depths.mean():.0f}): off by {percent(self.errors[0])} of its mean JCT, on "
            f"average. With the number queued fitted ({self.depth:.1f}): off by "
            f"{percent(self.depth_error)}.",
            *texts,
        ]

    def mean(self, role: str, cell: str) -> float | None:
        return middle(self.means[role].get(cell, []))


def following(found: Outcome) -> list[str]:
    """What to do next."""
    if found.few_jobs():
        return ["enough jobs for an answer: the same command with a longer `--duration`"]
    if found.best is None:
        return []
    repeats = ["whether it holds: the same command with `--repeats 3`"] if found.kept else []
    return [*repeats, f"use it: `sluice exec --priority 0 --policy {found.best} -- COMMAND`"]


def percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def judge(rows: list, swept: str, critical: str, policies: list, wanted, queue) -> Outcome:
    """rows: of the sweep's CSV."""
    entries = {entry.cell: entry for entry in summarize(rows)}
    means: dict = {CRITICAL: {}, BEST_EFFORT: {}}
    for row in rows:
        value = number(row, "mean_ms")
        if row["role"] in means and value is not None:
            means[row["role"]].setdefault(row["cell"], []).append(value)
    found = Outcome(swept, critical, policies, wanted, entries, means, queue=queue)
    alone = found.mean(BEST_EFFORT, BEST_EFFORT_ALONE)
    for policy in policies:
        x = entries[policy].x if policy in entries else {}
        slow = found.mean(BEST_EFFORT, policy)
        found.words[policy] = {name: middle(x.get(name, [])) for name in ("p50", "p99", "mean")}
        found.words[policy]["slowdown"] = slow / alone if slow and alone else None
    if not found.few_jobs():  # a chart must not show a winner that the answer does not name
        found.best, found.kept = objective.best(found.words, wanted)
    _predict(found)
    return found


def _predict(found: Outcome) -> None:
    usable = [
        policy
        for policy in found.policies
        if plan.policy(policy).number
        and not plan.policy(policy).in_time
        and None not in (found.words[policy]["mean"], found.words[policy]["slowdown"])
    ]
    if len(usable) < 3:
        return
    n = np.array([plan.policy(policy).number for policy in usable])
    high, low = (np.array([median(found.means[role][policy]) for policy in usable]) for role in (CRITICAL, BEST_EFFORT))
    base_high, base_low = median(found.means[CRITICAL][ALONE]), median(found.means[BEST_EFFORT][BEST_EFFORT_ALONE])
    found.execution = a, b = delay.execution_fit(n, low - base_low)
    expected_low = base_low + a / n + b
    expected_high = base_high + found.queue.delay_ms(n) if found.queue else np.full(len(n), np.nan)
    found.errors = (delay.error_percent(expected_high, high), delay.error_percent(expected_low, low))
    if found.queue:
        found.depth = depth = delay.fitted_depth(n, high - base_high, found.queue.kernel_ms)
        found.depth_error = delay.error_percent(base_high + np.minimum(n, depth) * found.queue.kernel_ms, high)
    found.predicted = {policy: (float(a), float(b)) for policy, a, b in zip(usable, expected_high, expected_low)}


def markdown(found: Outcome, kind: str, failures: Sequence = ()) -> str:
    entries = list(found.entries.values())
    parts = [kind, table.markdown(entries), " ".join(table.notes(entries)), *failures, found.answer()]
    if found.predicted:
        head = ("policy", f"{found.critical} mean ms", "predicted", f"{found.swept} mean ms", "predicted")
        lines = [head, ("---",) * len(head)]
        for policy, (high, low) in found.predicted.items():
            values = (median(found.means[CRITICAL][policy]), high, median(found.means[BEST_EFFORT][policy]), low)
            lines.append((policy, *("-" if np.isnan(ms) else f"{ms:.{table.digits(ms)}f}" for ms in values)))
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*parts, *found.model_text()]) + "\n"
