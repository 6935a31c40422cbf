"""Whether a mix is worse under Sluice than without, on which axis: a test of paired differences (measure/paired.py).

The host's noise hides how long a request takes, and not how long it waits for the GPU. So where a program waits, its
waits are an axis, and stand in for durations that are undecided.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

from sluice_tools.bench.programs.conditions import BARE, DEFAULT
from sluice_tools.bench.programs.reasons import reasons
from sluice_tools.bench.programs.results import Result, Round, cells_with_other_outputs
from sluice_tools.measure.paired import CONFIDENCE, Paired, compare, holm
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import ALONE
from sluice_tools.measure.verdict import WAITS_COUNT

BETTER, EQUAL, WORSE = -1, 0, 1
SIGNIFICANT = 0.05  # after Holm's correction over all axes of all mixes and conditions of the table
# Smaller changes are called none, also where they are significant.
SAME_P50, SAME_TAIL, SAME_SPEED = 0.03, 0.05, 0.02
SAME_WAITS = 0.005  # of the latency alone
WAITS = "waits"
_CRITICAL = "critical "  # how the names of its latencies begin
DEAR = 8.0  # points of best effort for 1 % of latency; above it the law pays too much
_UNKNOWN_FEW, _UNKNOWN_ROUNDS = "too few requests to judge", "no spread: --rounds 2 or more"


@dataclass(frozen=True)
class Axis:
    """One thing that users notice. change: of it against bare, in parts of bare, of the latency alone (waits), or of
    the speed alone.

    latency: else a speed, of which less is worse. adjusted: the p-value after Holm's correction. significant: the one
    below which there is a difference.
    """

    name: str
    latency: bool
    least: float
    change: Paired
    adjusted: float = 1.0
    significant: float = SIGNIFICANT

    @property
    def worst(self) -> float:
        """The bad end of the interval: how much worse it may be."""
        return self.change.high if self.latency else -self.change.low

    @property
    def verdict(self) -> int:
        if self.adjusted >= self.significant or abs(self.change.mean) <= self.least:
            return EQUAL
        return WORSE if (self.change.mean > 0) == self.latency else BETTER

    @property
    def shown(self) -> bool:
        """Whether it is not worse by more than the least difference, with the confidence of the interval."""
        return self.worst <= self.least

    @property
    def gains(self) -> bool:
        """The interval excludes that nothing is gained. Not by the corrected p-value: that makes it hard to find a
        gain, and so a payment would count as a loss in a large table only."""
        best, mean = (-self.change.high, -self.change.mean) if self.latency else (self.change.low, self.change.mean)
        return best > 0 and mean > self.least

    @property
    def pays(self) -> bool:
        """The same of a loss."""
        best, mean = (self.change.low, self.change.mean) if self.latency else (-self.change.high, -self.change.mean)
        return best > 0 and mean > self.least

    @property
    def may_gain(self) -> bool:
        """Whether a gain of more than the least difference is possible."""
        return (-self.change.low if self.latency else self.change.high) > self.least

    def text(self) -> str:
        digits = 1 if self.change.high - self.change.low < 0.1 else 0
        mean, low, high = (
            f"{100 * value:+.{digits}f}" for value in (self.change.mean, self.change.low, self.change.high)
        )
        chance = "p < 0.001" if self.adjusted < 0.001 else f"p = {self.adjusted:.2g}"
        unit = "% of the latency alone" if self.name == WAITS else "%" if self.latency else "points"
        return f"{mean} {unit} ({low} to {high}), {chance}"


@dataclass(frozen=True)
class Judgment:
    """One condition under Sluice against bare. unknown: why nothing can be said. saved: of the latency alone, by waits
    where they count, else by the p50; None where it is not known."""

    cell: str
    axes: list[Axis]
    why: list[str]
    unknown: str = ""
    saved: float | None = None

    @property
    def lower(self) -> list[str]:
        """The latencies, and the waits, that best effort pays for."""
        return [axis.name for axis in self.axes if axis.latency and axis.gains]

    @property
    def _more(self) -> bool:
        return any(axis.gains for axis in self.axes if not axis.latency)

    @property
    def _higher(self) -> list[str]:
        return [axis.name for axis in self.axes if axis.latency and axis.verdict == WORSE]

    @property
    def _less(self) -> list[str]:
        return [axis.name for axis in self.axes if not axis.latency and axis.verdict == WORSE]

    @property
    def worse(self) -> list[str]:
        """Longer latencies or waits count where best effort has not more, less best effort where none of them is
        lower."""
        return ([] if self._more else self._higher) + ([] if self.lower else self._less)

    @property
    def counts_waits(self) -> bool:
        return any(axis.name == WAITS for axis in self.axes)

    def _excused(self, axis: Axis, settled) -> bool:
        """Whether the waits say of a critical latency what its own noise hides. settled: of an axis."""
        waits = [one for one in self.axes if one.name == WAITS]
        return axis.name.startswith(_CRITICAL) and bool(waits) and all(map(settled, waits))

    @property
    def hidden(self) -> list[str]:
        """Durations that are undecided, and of which the waits say that they are not worse."""
        return [axis.name for axis in self.axes if not axis.shown and self._excused(axis, lambda one: one.shown)]

    @property
    def undecided(self) -> list[str]:
        """Of a condition that is not worse: what may still be."""
        hidden, lower = self.hidden, self.lower
        return [
            axis.name
            for axis in self.axes
            if not axis.shown and axis.name not in hidden and not (self._more if axis.latency else lower)
        ]

    @property
    def open(self) -> list[str]:
        """What more rounds may decide. Less best effort with nothing gained is decided once no gain is possible."""
        if self.unknown:
            return [self.unknown]
        if not self.worse:
            return self.undecided
        if not set(self.worse) <= set(self._less):
            return []
        return [
            axis.name
            for axis in self.axes
            if axis.latency and axis.may_gain and not self._excused(axis, lambda one: not one.may_gain)
        ]

    @property
    def price(self) -> float | None:
        """Points of best effort for each 1 % of the latency alone that is saved; infinite for nothing. None where best
        effort pays nothing, or it is not known what is saved."""
        if self.saved is None or not any(axis.pays for axis in self.axes if not axis.latency):
            return None
        lost = -fmean(axis.change.mean for axis in self.axes if not axis.latency)
        return lost / self.saved if self.saved > 0 else math.inf

    @property
    def dear(self) -> bool:
        return self.price is not None and self.price > DEAR

    def price_text(self) -> str:
        if self.price is None:
            return "-"
        if self.price == math.inf:
            return "nothing saved"
        return f"{self.price:.{1 if self.price < 10 else 0}f}{f' (above {DEAR:g})' if self.dear else ''}"

    @property
    def word(self) -> str:
        if self.unknown or self.worse:
            return self.unknown or f"WORSE ({', '.join(self.worse)})"
        if self.undecided:
            return f"not shown to be worse ({', '.join(self.undecided)} undecided)"
        if self._higher:
            return f"more best effort for {_named('higher', 'longer', self._higher)}"
        lower, pays = self.lower, any(axis.pays for axis in self.axes if not axis.latency)
        said = f"less best effort for {_named('lower', 'shorter', lower)}" if lower and pays else "not worse"
        return f"{said}, by its waits ({', '.join(self.hidden)} undecided)" if self.hidden else said


def _named(latency: str, waits: str, names: list[str]) -> str:
    """latency, waits: how they are."""
    durations = [name for name in names if name != WAITS]
    parts = [f"a {latency} {' and '.join(durations)}"] if durations else []
    parts += [f"{waits} waits"] if WAITS in names else []
    return " and ".join(parts)


_Pairs = list[tuple[float, float]]  # bare and the condition, by round


def _axis(name: str, least: float, pairs: _Pairs, significant: float, *, ratio: bool = True) -> list[Axis]:
    """Durations are compared by their ratio, all else by its difference. Empty where too few rounds have both."""
    confidence = CONFIDENCE if significant == SIGNIFICANT else 1 - significant
    if ratio:
        change = compare([math.log(now / bare) for bare, now in pairs if bare > 0 and now > 0], confidence)
        if change:
            mean, low, high = (math.expm1(value) for value in (change.mean, change.low, change.high))
            change = replace(change, mean=mean, low=low, high=high)
    else:
        change = compare([now - bare for bare, now in pairs], confidence)
    return [Axis(name, ratio or name == WAITS, least, change, significant=significant)] if change else []


class _Rounds:
    """The rounds that have both conditions."""

    def __init__(self, bare: Result, result: Result):
        self.both = [(bare.by_round[key], now) for key, now in result.by_round.items() if key in bare.by_round]

    def pairs(self, value: Callable[[Round], float | None]) -> _Pairs:
        found = [(value(one), value(other)) for one, other in self.both]
        return [(one, other) for one, other in found if one is not None and other is not None]

    @property
    def tail(self) -> str:
        return "p99" if all("p99" in one.x for pair in self.both for one in pair) else "p90"

    def waits(self) -> _Pairs:
        """Empty where the program does not wait, in both conditions."""
        known = self.pairs(lambda one: one.wait)
        if not known or max(fmean(values) for values in zip(*known)) < WAITS_COUNT:
            return []
        return self.pairs(lambda one: one.wait_more)

    def saved(self) -> float | None:
        """Of the latency alone."""
        pairs = self.waits() or self.pairs(lambda one: one.x.get("p50"))
        return fmean(bare - now for bare, now in pairs) if pairs else None


def axes(bare: Result, result: Result, significant: float = SIGNIFICANT) -> list[Axis]:
    """Critical p50, p99 (p90 if a window has too few requests for a p99), waits, latency of a middle program, speed."""
    rounds = _Rounds(bare, result)
    tail = rounds.tail
    found = _axis(f"{_CRITICAL}p50", SAME_P50, rounds.pairs(lambda one: one.x.get("p50")), significant)
    found += _axis(f"{_CRITICAL}{tail}", SAME_TAIL, rounds.pairs(lambda one: one.x.get(tail)), significant)
    found += _axis(WAITS, SAME_WAITS, rounds.waits(), significant, ratio=False)
    for name in dict.fromkeys(name for _, one in rounds.both for name in one.below):
        found += _axis(f"{name} p50", SAME_P50, rounds.pairs(lambda one, name=name: one.below.get(name)), significant)
    names = {name for pair in rounds.both for one in pair for name in one.shares}

    def speed(one: Round) -> float | None:
        return sum(one.shares.values()) if names and names == set(one.shares) else None

    return found + _axis("best effort", SAME_SPEED, rounds.pairs(speed), significant, ratio=False)


def judge(bare: Result, result: Result, significant: float = SIGNIFICANT) -> Judgment:
    serves = bool(bare.jobs or result.jobs)
    if serves and min(sum(bare.jobs), sum(result.jobs)) < ENOUGH_TO_JUDGE:
        return Judgment(result.cell, [], reasons(result), _UNKNOWN_FEW)
    found = axes(bare, result, significant)
    saved = _Rounds(bare, result).saved() if serves else None
    return Judgment(result.cell, found, reasons(result), "" if found else _UNKNOWN_ROUNDS, saved)


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
        price = " Best effort pays, and nothing is saved." if judgment.price == math.inf else ""
        if not price and judgment.price is not None:
            price = f" Price: {judgment.price_text()} points of best effort for 1 % of latency."
        polls = "" if judgment.counts_waits or not seen else " No waits to compare: durations only."
        return f"{judgment.cell}: {judgment.word}. {f'Against bare: {seen}.' if seen else ''}{price}{polls}{why}"


def verdicts(results: list[Result], significant: float = SIGNIFICANT) -> list[Verdict]:
    """For each mix and mode that was measured bare and under Sluice. significant: after Holm's correction; the
    intervals have the confidence that belongs to it."""
    found = []
    for subject, mode in dict.fromkeys((result.subject, result.mode) for result in results):
        own = {result.cell: result for result in results if (result.subject, result.mode) == (subject, mode)}
        hooked = sorted((cell for cell in own if own[cell].together and cell != BARE), key=DEFAULT.__ne__)
        if BARE in own and hooked:
            judgments = [judge(own[BARE], own[cell], significant) for cell in hooked]
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
    sure = sum(all(judgment.word.startswith("not worse") for judgment in verdict.judgments) for verdict in found)
    pay = sum(any(judgment.word.startswith("less best effort") for judgment in verdict.judgments) for verdict in found)
    dear = sum(any(judgment.dear for judgment in verdict.judgments) for verdict in found)
    text = f"{worse} of {len(found)} are worse than without Sluice somewhere, {sure} are shown not to be"
    text += f", {pay} pay best effort for latency" if pay else ""
    text += f", {dear} more than {DEAR:g} points for 1 %" if dear else ""
    vary = sum(verdict.outputs_vary for verdict in found)
    compared = [verdict for verdict in found if verdict.other_outputs is not None and not verdict.outputs_vary]
    if compared:
        equal = sum(not verdict.other_outputs for verdict in compared)
        text += f"; critical outputs are equal to the bit in {equal} of {len(compared)}"
    text += f"; in {vary} they differ alone, too" if vary else ""
    return text + "."
