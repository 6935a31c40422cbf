"""Whether a mix is worse under Sluice than without, on which axis: a test of paired differences (measure/paired.py)."""

import math
from dataclasses import dataclass, replace

from sluice_tools.bench.programs.conditions import BARE, DEFAULT
from sluice_tools.bench.programs.reasons import reasons
from sluice_tools.bench.programs.results import Result, Round, cells_with_other_outputs
from sluice_tools.measure.paired import Paired, compare, holm
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import ALONE

BETTER, EQUAL, WORSE = -1, 0, 1
SIGNIFICANT = 0.05  # after Holm's correction over all axes of all mixes and conditions of the table
# Smaller changes are called none, also where they are significant.
SAME_P50, SAME_TAIL, SAME_SPEED = 0.03, 0.05, 0.02
_UNKNOWN_FEW, _UNKNOWN_ROUNDS = "too few requests to judge", "no spread: --rounds 2 or more"


@dataclass(frozen=True)
class Axis:
    """One thing that users notice. change: of it against bare, in parts of bare, or of the speed alone.

    latency: else a speed, of which less is worse. adjusted: the p-value after Holm's correction.
    """

    name: str
    latency: bool
    least: float
    change: Paired
    adjusted: float = 1.0

    @property
    def worst(self) -> float:
        """The bad end of the interval: how much worse it may be."""
        return self.change.high if self.latency else -self.change.low

    @property
    def verdict(self) -> int:
        if self.adjusted >= SIGNIFICANT or abs(self.change.mean) <= self.least:
            return EQUAL
        return WORSE if (self.change.mean > 0) == self.latency else BETTER

    @property
    def shown(self) -> bool:
        """Whether it is not worse by more than the least difference, with the confidence of the interval."""
        return self.worst <= self.least

    def text(self) -> str:
        digits = 1 if self.change.high - self.change.low < 0.1 else 0
        mean, low, high = (
            f"{100 * value:+.{digits}f}" for value in (self.change.mean, self.change.low, self.change.high)
        )
        chance = "p < 0.001" if self.adjusted < 0.001 else f"p = {self.adjusted:.2g}"
        return f"{mean} {'%' if self.latency else 'points'} ({low} to {high}), {chance}"


@dataclass(frozen=True)
class Judgment:
    """One condition under Sluice against bare. unknown: why nothing can be said."""

    cell: str
    axes: list[Axis]
    why: list[str]
    unknown: str = ""

    @property
    def lower(self) -> list[str]:
        """The latencies that best effort pays for: whose interval excludes that nothing is gained. Not by the corrected
        p-value: that makes it hard to find a gain, and so a payment would count as a loss in a large table only."""
        return [
            axis.name for axis in self.axes if axis.latency and axis.change.high < 0 and axis.change.mean < -axis.least
        ]

    @property
    def worse(self) -> list[str]:
        """Less best effort counts where no latency is lower."""
        slower = [axis.name for axis in self.axes if axis.latency and axis.verdict == WORSE]
        return slower + (self._less if not self.lower else [])

    @property
    def _less(self) -> list[str]:
        return [axis.name for axis in self.axes if not axis.latency and axis.verdict == WORSE]

    @property
    def word(self) -> str:
        if self.unknown or self.worse:
            return self.unknown or f"WORSE ({', '.join(self.worse)})"
        lower = self.lower
        open_ = [axis.name for axis in self.axes if not axis.shown and (axis.latency or not lower)]
        if open_:
            return f"not shown to be worse ({', '.join(open_)} undecided)"
        pays = any(not axis.latency and axis.change.high < 0 and axis.change.mean < -axis.least for axis in self.axes)
        return f"less best effort for a lower {' and '.join(lower)}" if lower and pays else "not worse"


def _axis(name: str, latency: bool, least: float, pairs: list[tuple[float, float]]) -> list[Axis]:
    """pairs: bare and this condition, by round. Latencies are compared by their ratio, speeds by their difference.
    Empty where too few rounds have both."""
    if latency:
        change = compare([math.log(now / bare) for bare, now in pairs if bare > 0 and now > 0])
        if change:
            mean, low, high = (math.expm1(value) for value in (change.mean, change.low, change.high))
            change = replace(change, mean=mean, low=low, high=high)
    else:
        change = compare([now - bare for bare, now in pairs])
    return [Axis(name, latency, least, change)] if change else []


def axes(bare: Result, result: Result) -> list[Axis]:
    """Critical p50, p99 (p90 if a window has too few requests for a p99), latency of a middle program, speed."""
    rounds = [(bare.by_round[key], now) for key, now in result.by_round.items() if key in bare.by_round]

    def pairs(value) -> list[tuple[float, float]]:
        found = [(value(one), value(other)) for one, other in rounds]
        return [(one, other) for one, other in found if one is not None and other is not None]

    tail = "p99" if all("p99" in one.x for pair in rounds for one in pair) else "p90"
    found = _axis("critical p50", True, SAME_P50, pairs(lambda one: one.x.get("p50")))
    found += _axis(f"critical {tail}", True, SAME_TAIL, pairs(lambda one: one.x.get(tail)))
    for name in dict.fromkeys(name for _, one in rounds for name in one.below):
        found += _axis(f"{name} p50", True, SAME_P50, pairs(lambda one, name=name: one.below.get(name)))
    names = {name for pair in rounds for one in pair for name in one.shares}

    def speed(one: Round) -> float | None:
        return sum(one.shares.values()) if names and names == set(one.shares) else None

    return found + _axis("best effort", False, SAME_SPEED, pairs(speed))


def judge(bare: Result, result: Result) -> Judgment:
    serves = bool(bare.jobs or result.jobs)
    if serves and min(sum(bare.jobs), sum(result.jobs)) < ENOUGH_TO_JUDGE:
        return Judgment(result.cell, [], reasons(result), _UNKNOWN_FEW)
    found = axes(bare, result)
    return Judgment(result.cell, found, reasons(result), "" if found else _UNKNOWN_ROUNDS)


@dataclass(frozen=True)
class Verdict:
    """One mix in one mode. judgments: the default first."""

    subject: str
    mode: str
    judgments: list[Judgment]
    other_outputs: list[str] | None  # cells with other critical outputs; None: no outputs were compared

    @property
    def worse(self) -> bool:
        return any(judgment.worse for judgment in self.judgments)

    @property
    def outputs_vary(self) -> bool:
        """Those of the critical program alone differ, so those of other cells say nothing."""
        return ALONE in (self.other_outputs or ())

    def text(self) -> str:
        parts = [self._of(judgment) for judgment in self.judgments]
        if self.outputs_vary:
            parts.append("Outputs of the critical program differ alone, too.")
        elif self.other_outputs:
            parts.append(f"OUTPUTS DIFFER in {', '.join(self.other_outputs)}.")
        return f"{self.subject}, {self.mode}: {' '.join(parts)}"

    @staticmethod
    def _of(judgment: Judgment) -> str:
        seen = "; ".join(f"{axis.name} {axis.text()}" for axis in judgment.axes)
        why = f" Because: {'; '.join(judgment.why)}." if judgment.why else ""
        return f"{judgment.cell}: {judgment.word}. {f'Against bare: {seen}.' if seen else ''}{why}"


def verdicts(results: list[Result]) -> list[Verdict]:
    """For each mix and mode that was measured bare and under Sluice."""
    found = []
    for subject, mode in dict.fromkeys((result.subject, result.mode) for result in results):
        own = {result.cell: result for result in results if (result.subject, result.mode) == (subject, mode)}
        hooked = sorted((cell for cell in own if own[cell].together and cell != BARE), key=DEFAULT.__ne__)
        if BARE in own and hooked:
            judgments = [judge(own[BARE], own[cell]) for cell in hooked]
            found.append(Verdict(subject, mode, judgments, cells_with_other_outputs(list(own.values()))))
    return _corrected(found)


def _corrected(found: list[Verdict]) -> list[Verdict]:
    """Holm's correction over all axes: of many tests, some are significant by chance."""
    adjusted = iter(holm([axis.change.p for one in found for judged in one.judgments for axis in judged.axes]))
    return [
        replace(one, judgments=[
            replace(judged, axes=[replace(axis, adjusted=next(adjusted)) for axis in judged.axes])
            for judged in one.judgments
        ])
        for one in found
    ]  # fmt: skip


def counted(found: list[Verdict]) -> str:
    """The one sentence above all."""
    worse = sum(verdict.worse for verdict in found)
    sure = sum(all(judgment.word == "not worse" for judgment in verdict.judgments) for verdict in found)
    pay = sum(any(judgment.word.startswith("less best effort") for judgment in verdict.judgments) for verdict in found)
    text = f"{worse} of {len(found)} are worse than without Sluice somewhere, {sure} are shown not to be"
    text += f", {pay} pay best effort for latency" if pay else ""
    vary = sum(verdict.outputs_vary for verdict in found)
    compared = [verdict for verdict in found if verdict.other_outputs is not None and not verdict.outputs_vary]
    if compared:
        equal = sum(not verdict.other_outputs for verdict in compared)
        text += f"; critical outputs are equal to the bit in {equal} of {len(compared)}"
    text += f"; in {vary} they differ alone, too" if vary else ""
    return text + "."
