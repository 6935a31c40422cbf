"""Whether a mix is worse under Sluice than without, on which axis, and why."""

from dataclasses import dataclass
from statistics import median

from sluice_tools.bench.programs.plan import BARE, DEFAULT
from sluice_tools.bench.programs.results import Result, cells_with_other_outputs
from sluice_tools.bench.programs.targets import keeps, parse_target
from sluice_tools.measure.rows import CRITICAL, number
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import ALONE
from sluice_tools.measure.table import digits
from sluice_tools.measure.verdict import differs

BETTER, EQUAL, WORSE = -1, 0, 1
# Smaller differences are called none, also where the repeats agree to the digit.
SAME_P50, SAME_TAIL, SAME_SPEED = 0.03, 0.05, 0.02
_LONG_US = 1000.0  # launches above this are named as a reason
_MANY_UNKNOWN = 0.05  # share of launches


@dataclass(frozen=True)
class Axis:
    """One thing that users notice. bare, now: a value per repeat; change: BETTER, EQUAL or WORSE than bare."""

    name: str
    bare: list
    now: list
    change: int
    unit: str  # ms, or % for a share of the speed alone

    def text(self) -> str:
        return f"{self.name} {self._value(self.bare)} -> {self._value(self.now)} {self.unit}"

    def _value(self, values: list) -> str:
        value = median(values)
        return f"{100 * value:.0f}" if self.unit == "%" else f"{value:.{digits(value)}f}"


@dataclass(frozen=True)
class Judgment:
    """One condition under Sluice against bare. worse: empty if it is not worse. kept: whether the target is."""

    cell: str
    axes: list[Axis]
    worse: list[str]
    why: list[str]
    kept: bool | None = None
    unknown: str = ""  # why nothing can be said

    @property
    def word(self) -> str:
        return self.unknown or (f"WORSE ({', '.join(self.worse)})" if self.worse else "not worse")


def _axis(name: str, bare: list, now: list, at_least: float, unit: str = "ms") -> list[Axis]:
    """Empty where one side was not measured."""
    if not bare or not now:
        return []
    change = differs(now, bare, at_least)
    return [Axis(name, bare, now, -change if unit == "%" else change, unit)]


def axes(bare: Result, result: Result) -> list[Axis]:
    """Critical p50, p99 (p90 if a repeat has too few requests for a p99), latency of a middle program, speed."""
    tail = "p99" if bare.in_all("p99") and result.in_all("p99") else "p90"
    found = _axis("critical p50", bare.ms["p50"], result.ms["p50"], SAME_P50)
    found += _axis(f"critical {tail}", bare.ms[tail], result.ms[tail], SAME_TAIL)
    for name, values in result.below.items():
        found += _axis(f"{name} p50", bare.below.get(name, []), values, SAME_P50)
    return found + _axis("best effort", bare.share, result.share, SAME_SPEED, "%")


def judge(bare: Result, result: Result, alone: Result | None) -> Judgment:
    """result: a cell under Sluice. Best-effort speed counts at equal latency only."""
    found, why = axes(bare, result), reasons(result)
    if min(bare.fewest_jobs, result.fewest_jobs) < ENOUGH_TO_JUDGE:
        return Judgment(result.cell, found, [], why, unknown="too few requests to judge")
    latency, speed = [axis for axis in found if axis.unit == "ms"], [axis for axis in found if axis.unit == "%"]
    slower = [axis.name for axis in latency if axis.change == WORSE]
    less = [axis.name for axis in speed if axis.change == WORSE]
    at_equal = less if all(axis.change != BETTER for axis in latency) else []
    target = result.cell.removeprefix("target ") if result.cell.startswith("target ") else ""
    if not target:
        return Judgment(result.cell, found, slower + at_equal, why)
    kept, bare_keeps = (keeps(parse_target(target), one, alone) for one in (result, bare))
    if kept:  # the latency is as good as was asked for
        return Judgment(result.cell, found, less if bare_keeps else [], why, kept)
    return Judgment(result.cell, found, [target] if bare_keeps else slower + at_equal, why, kept)


def reasons(result: Result) -> list[str]:
    """What the interposer counted in the cell, as far as it explains latency or speed. Nobody holds the critical
    program, and all of its launches are free to run."""
    found = []
    for name, role in dict.fromkeys((row["client"], row["role"]) for row in result.rows):
        rows = [row for row in result.rows if row["client"] == name]
        if parts := _target(rows) if role == CRITICAL else [*_held(rows), *_ungated(rows)]:
            found.append(f"{name}: {', '.join(parts)}")
    return found


def _sum(rows: list[dict], name: str) -> float:
    return sum(number(row, name) or 0 for row in rows)


def _most(rows: list[dict], name: str) -> float:
    return max(number(row, name) or 0 for row in rows)


def _held(rows: list[dict]) -> list[str]:
    seconds, launches = _sum(rows, "window_s"), _sum(rows, "launches")
    if not launches:
        return []
    found = [f"held {_sum(rows, 'held_ms') / 10 / seconds:.0f} % of the time"]
    if waited := _sum(rows, "waited"):
        found.append(f"{waited / seconds:.0f} launches/s waited")
    if opened := _sum(rows, "max_hold_opened"):
        found.append(f"max_hold opened the gate {opened:.0f} times")
    return found


def _ungated(rows: list[dict]) -> list[str]:
    found = []
    if (longest := _most(rows, "longest_us")) > _LONG_US:
        found.append(f"launches of up to {longest / 1e3:.1f} ms")
    if graph := _most(rows, "ungated_graph_us"):
        found.append(f"graphs without waits of up to {graph / 1e3:.1f} ms")
    if bypassed := _sum(rows, "bypassed"):
        found.append(f"{bypassed:.0f} launches ungated")
    launches, unknown = _sum(rows, "launches"), _sum(rows, "unknown_launches")
    if launches and unknown > _MANY_UNKNOWN * launches:
        found.append(f"{100 * unknown / launches:.0f} % of launches of unknown duration")
    return found


def _target(rows: list[dict]) -> list[str]:
    if not (jobs := _sum(rows, "target_jobs")):
        return [f"target {row['target_state']}" for row in rows[:1] if row["target_state"]]
    kept = _sum(rows, "target_kept") / jobs
    opened = 100 * _sum(rows, "target_open_ms") / 1e3 / _sum(rows, "window_s")
    return [
        f"{100 * kept:.1f} % of {jobs:.0f} jobs in {_most(rows, 'target_limit_ms'):.1f} ms by its own count "
        f"({rows[-1]['target_state']}), gates open in jobs for {opened:.0f} % of the time"
    ]


@dataclass(frozen=True)
class Verdict:
    """One mix in one mode. judgments: the default policy first, then the targets."""

    subject: str
    mode: str
    judgments: list[Judgment]
    other_outputs: list[str] | None  # cells with other critical outputs; None: no outputs were compared

    @property
    def worse(self) -> bool:
        return any(judgment.worse for judgment in self.judgments)

    def text(self) -> str:
        parts = [self._of(judgment) for judgment in self.judgments]
        if self.other_outputs:
            parts.append(f"OUTPUTS DIFFER in {', '.join(self.other_outputs)}.")
        return f"{self.subject}, {self.mode}: {' '.join(parts)}"

    @staticmethod
    def _of(judgment: Judgment) -> str:
        kept = {True: ", target kept", False: ", target NOT kept", None: ""}[judgment.kept]
        seen = "; ".join(axis.text() for axis in judgment.axes)
        why = f" Because: {'; '.join(judgment.why)}." if judgment.why else ""
        return f"{judgment.cell}: {judgment.word}{kept}. Bare -> here: {seen}.{why}"


def verdicts(results: list[Result]) -> list[Verdict]:
    """For each mix and mode that was measured bare and under Sluice."""
    found = []
    for subject, mode in dict.fromkeys((result.subject, result.mode) for result in results):
        own = {result.cell: result for result in results if (result.subject, result.mode) == (subject, mode)}
        hooked = sorted((cell for cell in own if cell == DEFAULT or cell.startswith("target ")), key=DEFAULT.__ne__)
        if BARE in own and hooked:
            judgments = [judge(own[BARE], own[cell], own.get(ALONE)) for cell in hooked]
            found.append(Verdict(subject, mode, judgments, cells_with_other_outputs(list(own.values()))))
    return found


def counted(found: list[Verdict]) -> str:
    """The one sentence above all."""
    worse = sum(verdict.worse for verdict in found)
    wrong = sum(bool(verdict.other_outputs) for verdict in found)
    text = f"{len(found) - worse} of {len(found)} are nowhere worse than without Sluice"
    compared = [verdict for verdict in found if verdict.other_outputs is not None]
    if compared:
        text += f"; critical outputs are equal to the bit in {len(compared) - wrong} of {len(compared)}"
    return text + "."
