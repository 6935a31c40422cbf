"""Paired differences of conditions that took turns: the interval, the p-value, and Holm's correction.

A round has one figure of each condition, and a difference is of two figures of the same round. The rounds are the
sample, not the jobs in them: jobs of one window share whatever the host did in that second. The test is Student's
paired t-test, two-sided, and the interval is of the same distribution. A bootstrap over five rounds would be too
narrow: it covers the truth in 83 % of cases instead of 95 (tests/python/test_paired.py).
"""

import math
import statistics
from dataclasses import dataclass, replace

CONFIDENCE = 0.95
_FEWEST = 2


@dataclass(frozen=True)
class Paired:
    """mean, low and high: of the differences, with its 95 % interval. p: of no difference."""

    rounds: int
    mean: float
    low: float
    high: float
    p: float


def tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's distribution with a whole number of degrees of freedom: the finite series of Abramowitz
    and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4."""
    if t < 0:
        return 1 - tail(-t, freedom)
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = cosine if odd else 1.0, 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, (1 - inside) / 2)


def quantile(share: float, freedom: int) -> float:
    """t with P(T > t) = share, for a share below a half."""
    low, high = 0.0, 1.0
    while tail(high, freedom) > share:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > share else (low, middle)
    return high


def compare(differences: list[float], confidence: float = CONFIDENCE) -> Paired | None:
    """None for fewer than two rounds: one has no spread. confidence: of the interval."""
    rounds = len(differences)
    if rounds < _FEWEST:
        return None
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(rounds)
    if error == 0:
        return Paired(rounds, mean, mean, mean, 0.0 if mean else 1.0)
    reach = quantile((1 - confidence) / 2, rounds - 1) * error
    return Paired(rounds, mean, mean - reach, mean + reach, min(1.0, 2 * tail(abs(mean) / error, rounds - 1)))


def compare_ratios(ratios: list[float]) -> Paired | None:
    """The same of ratios, by their logarithms. They must be above 0."""
    found = compare([math.log(ratio) for ratio in ratios])
    if found is None:
        return None
    mean, low, high = (math.exp(value) for value in (found.mean, found.low, found.high))
    return replace(found, mean=mean, low=low, high=high)


def holm(values: list[float]) -> list[float]:
    """p-values of a family of tests, such that calling all below x significant errs at all with a probability of at
    most x, whatever depends on what. In the order of `values`."""
    adjusted, most = [1.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        most = max(most, (len(values) - place) * values[index])
        adjusted[index] = min(1.0, most)
    return adjusted
