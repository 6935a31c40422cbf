"""Paired differences, on which the verdicts of `sluice bench programs` rest: a wrong tail calls equals worse."""

import math
import random
import statistics

import pytest
from sluice_tools.measure.paired import compare, holm, quantile, tail


# From tables of Student's distribution: t, degrees of freedom, P(T > t).
@pytest.mark.parametrize(
    "t, freedom, share",
    [
        (1.0, 1, 0.25),
        (12.706, 1, 0.025),
        (4.303, 2, 0.025),
        (3.182, 3, 0.025),
        (2.776, 4, 0.025),
        (4.604, 4, 0.005),
        (2.571, 5, 0.025),
        (2.262, 9, 0.025),
        (2.042, 30, 0.025),
    ],
)
def test_the_tail_is_that_of_the_tables(t, freedom, share):
    assert tail(t, freedom) == pytest.approx(share, rel=1e-3)
    assert tail(-t, freedom) == pytest.approx(1 - share, rel=1e-3)
    assert quantile(share, freedom) == pytest.approx(t, rel=1e-3)


def test_a_known_example():
    """Student's own data of 1908: hours of sleep gained by one drug over another; t = 4.06, p = 0.0028."""
    gained = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    found = compare(gained)
    assert (found.rounds, found.mean) == (10, pytest.approx(1.58))
    assert found.p == pytest.approx(0.00283, abs=1e-5)
    assert (found.low, found.high) == (pytest.approx(0.700, abs=1e-3), pytest.approx(2.460, abs=1e-3))
    turned = compare([-value for value in gained])
    assert turned.p == pytest.approx(found.p) and turned.high == pytest.approx(-found.low)


def test_one_round_says_nothing_and_equal_rounds_are_no_error():
    assert compare([]) is None and compare([0.5]) is None
    assert compare([0.0, 0.0, 0.0]).p == 1
    assert compare([0.25, 0.25]).p == 0


def test_holm_corrects_by_rank_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def test_the_interval_covers_what_it_says_and_a_bootstrap_would_not():
    """Five rounds, 2,000 times: 95 %, where the percentile bootstrap over the rounds has 83 %."""
    draw = random.Random(1)
    covered = resampled = 0
    for _ in range(2000):
        rounds = [draw.gauss(0, 1) for _ in range(5)]
        found = compare(rounds)
        covered += found.low <= 0 <= found.high
        means = sorted(statistics.fmean(draw.choices(rounds, k=5)) for _ in range(100))
        resampled += means[2] <= 0 <= means[-3]
    assert 0.935 < covered / 2000 < 0.965
    assert resampled / 2000 < 0.9


def test_of_forty_equal_axes_hardly_ever_one_is_called_different():
    """The family-wise error of one table: at most 5 %."""
    draw = random.Random(2)
    wrong = 0
    for _ in range(400):
        adjusted = holm([compare([draw.gauss(0, 1) for _ in range(5)]).p for _ in range(40)])
        wrong += min(adjusted) < 0.05
    assert wrong / 400 < 0.09


def test_a_host_that_drifts_is_in_both_conditions():
    """A host that becomes 1.8 times as slow from round to round hides a change of 5 % from whoever does not pair."""
    draw = random.Random(3)
    host = [1.0, 1.2, 1.4, 1.6, 1.8]
    bare = [10 * speed * draw.uniform(0.995, 1.005) for speed in host]
    now = [1.05 * 10 * speed * draw.uniform(0.995, 1.005) for speed in host]
    found = compare([math.log(b / a) for a, b in zip(bare, now)])
    assert found.p < 0.001 and math.expm1(found.mean) == pytest.approx(0.05, abs=0.01)
