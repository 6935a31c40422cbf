"""Is it worth it? The answer of `sluice compare`, by paired differences of the rounds.

Where the critical command waits for the GPU, and the rounds differ too much to be sure of its latency, its waits
decide: the noise of the host is not in them.
"""

import math
from dataclasses import dataclass, field
from statistics import fmean, median

from sluice_tools.measure.paired import CONFIDENCE, Paired, compare, quantile
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number
from sluice_tools.measure.statistics import ENOUGH_FOR_P99, ENOUGH_TO_JUDGE
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, how_many, usual_alone_ms, wait_of
from sluice_tools.measure.verdict import DISTURBED, WAITS_COUNT

MOST_ROUNDS = 8
_FEWEST_ROUNDS = 2
# Smaller changes are called none: of a latency, in parts of it; of a speed, in parts of the speed alone.
SAME_LATENCY, SAME_SPEED = 0.05, 0.02
_SURE_SPEED = 0.05  # the interval reaches no further on either side
_PRICE = 0.1  # less best effort than this is worth a word
_STARVES = 0.05
_QUIET = 1.1  # times alone: the two do not disturb each other
_NO_INTERVAL = 2.0  # of a logarithm: such an interval says nothing
_MORE_REQUESTS = 1.2
LOWER, SAME, HIGHER = "lower", "the same", "higher"


@dataclass(frozen=True)
class Change:
    """The mean, and the interval that holds with the confidence, however often it was looked at before."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, differences: list[float]) -> "Change | None":
        if not differences:
            return None
        found = compare(differences)
        if found is None:
            return cls(differences[0], -math.inf, math.inf)
        return cls(found.mean, *_widened(found))


def _widened(found: Paired) -> tuple[float, float]:
    """compare() is asked after each round, and stops at the first answer: so each look has its part of the errors."""
    share, freedom = (1 - CONFIDENCE) / 2, found.rounds - 1
    looks = MOST_ROUNDS - _FEWEST_ROUNDS + 1
    reach = (found.high - found.mean) * quantile(share / looks, freedom) / quantile(share, freedom)
    return found.mean - reach, found.mean + reach


@dataclass
class Answer:
    """word: YES, NO or UNKNOWN. sure: more rounds would not change it. text: sentences, the first is the verdict."""

    word: str
    sure: bool
    text: list[str]
    next: list[str] = field(default_factory=list)
    flags: tuple[str, str] = "", ""  # of `sluice exec`, for the critical and for the best-effort command


@dataclass(frozen=True)
class _Figures:
    """Of the rounds that have all cells. x: latency times alone; ratio: with Sluice to without, as a logarithm. waits:
    in ms, for each job; waited: their change, in parts of the latency alone; None where they do not count. disturbs:
    how much longer they are without Sluice than alone, in the same parts."""

    name: str
    counted: str
    rounds: int
    fewest: float
    jobs: dict
    x: dict
    share: dict
    ratio: Change | None
    speed: Change | None
    waits: dict
    waited: Change | None
    disturbs: float


def _by_round(rows: list, cell: str, role: str) -> dict:
    return {row["repeat"]: row for row in rows if row["cell"] == cell and row["role"] == role}


def _figures(rows: list, bare: str, policy: str, counted_are: str) -> _Figures:
    critical = {cell: _by_round(rows, cell, CRITICAL) for cell in (ALONE, bare, policy)}
    speeds = {cell: _by_round(rows, cell, BEST_EFFORT) for cell in (BEST_EFFORT_ALONE, bare, policy)}
    both = [key for key in critical[bare] if key in critical[policy]]
    counted = [critical[cell][key] for cell in (bare, policy) for key in both]
    fewest = min(map(how_many, counted), default=0)
    has_p99 = all(number(row, "p99_ms") is not None for row in counted)
    name = (
        "p99" if has_p99 and (fewest >= ENOUGH_FOR_P99 or not any(number(row, "p50_ms") for row in counted)) else "p50"
    )

    def ms(cell: str) -> dict:
        return {key: value for key, row in critical[cell].items() if (value := number(row, f"{name}_ms"))}

    def share(cell: str) -> dict:
        own = {key: number(row, "per_s") for key, row in speeds[BEST_EFFORT_ALONE].items()}
        usual = median([value for value in own.values() if value] or [0])
        return {
            key: speed / against
            for key, row in speeds[cell].items()
            if (speed := number(row, "per_s")) is not None and (against := own.get(key) or usual)
        }

    alone = ms(ALONE)
    usual_alone = median(alone.values()) if alone else 0
    found = {cell: ms(cell) for cell in (bare, policy)}
    shares = {cell: share(cell) for cell in (bare, policy)}
    pairs = [key for key in found[bare] if key in found[policy]]
    return _Figures(
        name,
        counted_are,
        len(pairs),
        fewest,
        {cell: sum(int(number(row, "jobs") or 0) for row in critical[cell].values()) for cell in (bare, policy)},
        {
            cell: median(value / alone.get(key, usual_alone) for key, value in values.items())
            for cell, values in found.items()
            if values and alone
        },
        {cell: median(values.values()) for cell, values in shares.items() if values},
        Change.of([math.log(found[policy][key] / found[bare][key]) for key in pairs]),
        Change.of([shares[policy][key] - shares[bare][key] for key in shares[bare] if key in shares[policy]]),
        *_waits(critical, bare, policy, rows),
    )


def _waits(critical: dict, bare: str, policy: str, rows: list) -> tuple[dict, Change | None, float]:
    """Of a program that polls, or of which nobody knows how many jobs it had, they do not count."""
    found = {
        cell: {key: wait for key, row in critical[cell].items() if (wait := wait_of(row)) is not None}
        for cell in (ALONE, bare, policy)
    }
    both = [key for key in found[bare] if key in found[policy]]
    alone = usual_alone_ms(critical[bare][both[0]], rows) if both else None
    if not alone:
        return {}, None, math.inf
    means = {cell: fmean(found[cell][key] for key in both) for cell in (bare, policy)}
    disturbs = (means[bare] - fmean(found[ALONE].values() or [0.0])) / alone
    if max(means.values()) < WAITS_COUNT * alone:
        return means, None, disturbs
    return means, Change.of([(found[policy][key] - found[bare][key]) / alone for key in both]), disturbs


def _direction(found: _Figures) -> tuple[str, bool, bool]:
    """Of the latency, whether it is sure, and whether it is by the waits."""
    assert found.ratio
    direction, sure = _of(found.ratio, math.log1p(SAME_LATENCY))
    if not sure and found.waited is not None:
        by_waits, known = _of(found.waited, SAME_LATENCY)
        if known:
            return by_waits, True, True
    return direction, sure, False


def _of(change: Change, least: float) -> tuple[str, bool]:
    if abs(change.mean) <= least:
        return SAME, -least <= change.low and change.high <= least
    return (LOWER, change.high < 0) if change.mean < 0 else (HIGHER, change.low > 0)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _interval(change: Change) -> str:
    if change.high - change.low > _NO_INTERVAL:
        return ""
    low, high = sorted(abs(math.expm1(value)) for value in (change.low, change.high))
    if change.low * change.high <= 0:
        return f" ({100 * math.expm1(change.low):+.0f} to {100 * math.expm1(change.high):+.0f} %)"
    return f" ({_percent(low)[:-2]} to {_percent(high)})"


def _latency_text(found: _Figures, bare: str, policy: str, direction: str) -> str:
    assert found.ratio
    of_steps = " of steps" if found.counted == "steps" else ""
    text = f"the critical {found.name}{of_steps} is "
    if policy in found.x and bare in found.x:
        text += f"{found.x[policy]:.2f} × alone with Sluice, and {found.x[bare]:.2f} × without: "
    if direction == SAME:
        return f"{text}the same{_interval(found.ratio)}"
    return f"{text}{_percent(abs(math.expm1(found.ratio.mean)))} {direction}{_interval(found.ratio)}"


def _waits_text(found: _Figures, bare: str, policy: str, direction: str) -> str:
    """Of waits that decide."""
    assert found.waited
    with_, without = (f"{found.waits[cell]:.3g}" for cell in (policy, bare))
    change = f"{100 * found.waited.mean:+.1f} %"
    if found.waited.high - found.waited.low <= 1:
        change = f"{change} ({100 * found.waited.low:+.1f} to {100 * found.waited.high:+.1f})"
    return (
        f"the critical command waits {with_} ms for the GPU with Sluice for each of its {found.counted}, {without} ms "
        f"without: {change} of its latency alone, so its latency is {direction} as far as it is the GPU's"
    )


def _speed_text(found: _Figures, bare: str, policy: str) -> str:
    if policy not in found.share or bare not in found.share:
        return ""
    return (
        f" Best effort keeps {_percent(found.share[policy])} of its own speed with Sluice, and "
        f"{_percent(found.share[bare])} without."
    )


def _judged(found: _Figures, bare: str, policy: str, direction: str, quiet: bool) -> tuple[str, str]:
    """The word, and what it means. quiet: the two do not disturb each other."""
    lost = -found.speed.mean if found.speed else 0.0
    if direction == LOWER and found.share.get(policy, 1) < _STARVES <= found.share.get(bare, 0):
        return "NO", "best effort gets almost nothing, because the critical command is busy all the time"
    if direction == LOWER:
        return "YES", f"it costs {_percent(lost)} of best effort's speed" if lost > _PRICE else "worth it"
    if direction == HIGHER:
        return "NO", "the latency rises"
    if quiet:
        return "NO", "not needed: the two do not disturb each other"
    return ("NO", "the latency stays, and best effort loses") if lost > SAME_SPEED else ("NO", "the latency stays")


def _next(word: str, quiet: bool, sure: bool) -> list[str]:
    if not sure:
        return ["the same command again, without --repeats, measures more rounds"]
    if word == "YES":
        return [
            "start the two as below; `sluice top` shows them",
            "if less is good enough: --target p99=1.3x gives best effort more time (docs/reference/targets.md)",
        ]
    if quiet:
        return ["run the two without Sluice, or with it in case that the load grows: it costs best effort 1 to 2 %"]
    return [
        "if the critical command is always busy: --target p99=2x (docs/reference/targets.md)",
        "if best-effort kernels are long: a smaller batch, or announced jobs (docs/guide/announced-jobs.md)",
        "`sluice status` says who waits for whom, and why",
    ]


def decide(rows: list, bare: str, policy: str, counted: str = "jobs") -> Answer:
    """rows, counted: of one mode, as ends.chosen() gives them. bare, policy: the two cells that are compared."""
    found = _figures(rows, bare, policy, counted)
    if found.ratio is None:
        return Answer(
            "UNKNOWN",
            False,
            ["UNKNOWN: no round has both commands with Sluice and without."],
            ["the same command again measures what is missing"],
        )
    if found.fewest < ENOUGH_TO_JUDGE:
        return Answer(
            "UNKNOWN",
            True,
            [
                f"UNKNOWN: too few critical {'steps' if counted == 'steps' else 'requests'} ({found.fewest}; at least "
                f"{ENOUGH_TO_JUDGE} in each cell)."
            ],
            ["a longer --seconds, or more load"],
        )
    direction, sure, by_waits = _direction(found)
    quiet = (1 + found.disturbs if by_waits else found.x.get(bare, math.inf)) <= _QUIET
    word, meaning = _judged(found, bare, policy, direction, quiet)
    speed_sure = found.speed is None or found.speed.high - found.speed.mean <= _SURE_SPEED
    sure = sure and speed_sure
    # Where the waits decide, the latency alone is only their unit.
    disturbed = [cell for cell, x in found.x.items() if x < DISTURBED and not by_waits]
    rounds = f"{found.rounds} round{'s' if found.rounds > 1 else ''}"
    how = f"{word}" if sure and not disturbed else f"PROBABLY {word}"
    said = _latency_text(found, bare, policy, _of(found.ratio, math.log1p(SAME_LATENCY))[0])
    if by_waits:
        said = f"{_waits_text(found, bare, policy, direction)}. The rounds differ too much to see it: {said}"
    text = [f"{how}, {meaning}, after {rounds}: {said}." + _speed_text(found, bare, policy)]
    if disturbed:
        text.append(
            "Alone, the critical command was slower than next to best effort: something else disturbed the host or "
            "the GPU. Measure again, with another --out."
        )
    if found.share.get(policy, 1) < found.share.get(bare, 0) and found.jobs[policy] > _MORE_REQUESTS * found.jobs[bare]:
        text.append(
            f"With Sluice the critical command did {found.jobs[policy] / found.jobs[bare]:.1f} times as many requests, "
            "because they are sent as answers come: part of what best effort loses. A fixed rate compares better."
        )
    if not sure:
        text.append(
            "Not sure yet: one round has no spread."
            if found.rounds == 1
            else "Not sure yet: the rounds differ so much that another answer is possible."
        )
    return Answer(word, sure, text, _next(word, quiet, sure and not disturbed))
