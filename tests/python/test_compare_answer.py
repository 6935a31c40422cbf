"""The answer of `sluice compare`: "yes" for what is noise, or "not sure" for what is plain, costs a user's trust."""

import math
import random

import pytest
from sluice_tools.compare.answer import MOST_ROUNDS, Change, decide
from sluice_tools.measure import table
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import summarize

BARE, POLICY = "bare", "device:200us"


def rows(*rounds, jobs: int = 500, alone: float = 1.0) -> list:
    """rounds: (p99 bare, p99 with Sluice, share bare, share with Sluice)."""
    found = []

    def add(cell, repeat, role, **figures):
        base = {"mode": "", "cell": cell, "repeat": str(repeat), "role": role}
        found.append(base | {name: str(value) for name, value in figures.items()})

    for repeat, (bare, held, bare_share, held_share) in enumerate(rounds, 1):
        for cell, ms, share in ((BARE, bare, bare_share), (POLICY, held, held_share)):
            add(cell, repeat, CRITICAL, p50_ms=ms / 2, p99_ms=ms if jobs >= 100 else "", jobs=jobs)
            add(cell, repeat, BEST_EFFORT, per_s=1000 * share)
        add("alone", repeat, CRITICAL, p50_ms=alone / 2, p99_ms=alone if jobs >= 100 else "", jobs=jobs)
        add("best effort alone", repeat, BEST_EFFORT, per_s=1000)
    return found


def answer(*rounds, **more):
    return decide(rows(*rounds, **more), BARE, POLICY)


_GAIN = [(2.5, 1.1, 0.8, 0.79), (2.6, 1.12, 0.81, 0.8), (2.4, 1.08, 0.8, 0.78), (2.5, 1.1, 0.8, 0.79)]


def test_a_plain_gain_is_yes_and_soon_sure():
    found = answer(*_GAIN)
    assert (found.word, found.sure) == ("YES", True)
    assert found.text[0].startswith(
        "YES, worth it, after 4 rounds: the critical p99 is 1.10 × alone with Sluice, and 2.50 × without: 56 % lower ("
    )
    assert found.text[0].endswith("Best effort keeps 79 % of its own speed with Sluice, and 80 % without.")
    assert "sluice top" in found.next[0]


def test_one_round_is_never_sure():
    found = answer(_GAIN[0])
    assert (found.word, found.sure) == ("YES", False)
    assert found.text[0].startswith("PROBABLY YES") and "one round has no spread" in found.text[-1]
    assert "(" not in found.text[0] and "measures more rounds" in found.next[0]


def test_rounds_that_differ_are_not_sure():
    found = answer((2.5, 1.1, 0.8, 0.8), (1.2, 1.3, 0.8, 0.8), (3.0, 1.0, 0.8, 0.8))
    assert not found.sure and "PROBABLY" in found.text[0] and "differ so much" in found.text[-1]


def test_an_unsure_speed_is_unsure():
    found = answer((2.5, 1.1, 0.8, 0.4), (2.5, 1.1, 0.8, 0.8), (2.5, 1.1, 0.8, 0.7), (2.5, 1.11, 0.8, 0.6))
    assert not found.sure


def test_two_that_do_not_disturb_each_other_need_no_sluice():
    found = answer((1.04, 1.03, 0.8, 0.8), *[(1.03, 1.03, 0.8, 0.8)] * 3, (1.03, 1.04, 0.8, 0.8))
    assert (found.word, found.sure) == ("NO", True)
    assert found.text[0].startswith("NO, not needed: ") and "without Sluice" in found.next[0]


@pytest.mark.parametrize(
    "rounds, meaning",
    [
        ([(2.0, 2.01, 0.8, 0.79)] * 3, "the latency stays"),
        ([(2.0, 2.01, 0.8, 0.5)] * 3, "the latency stays, and best effort loses"),
        ([(2.0, 3.01, 0.8, 0.8)] * 3, "the latency rises"),
        ([(2.0, 1.01, 0.8, 0.01)] * 3, "best effort gets almost nothing"),
    ],
)
def test_what_does_not_pay_is_no(rounds, meaning):
    found = answer(*rounds)
    assert (found.word, found.sure) == ("NO", True) and found.text[0].startswith(f"NO, {meaning}")


def test_a_price_is_named():
    found = answer(*[(2.5, 1.1, 0.8, 0.5)] * 3)
    assert found.word == "YES" and found.text[0].startswith("YES, it costs 30 % of best effort's speed, after 3 rounds")


def test_too_few_requests_answer_nothing():
    found = answer(*_GAIN, jobs=19)
    assert found.word == "UNKNOWN" and "too few critical requests (19; at least 20" in found.text[0]
    assert "the critical p50 is" in answer(*_GAIN, jobs=99).text[0]


def test_a_baseline_that_was_disturbed_is_said():
    found = answer(*_GAIN, alone=1.7)
    assert found.text[0].startswith("PROBABLY YES") and "Alone, the critical command was slower" in found.text[1]


def test_more_requests_with_sluice_are_said():
    made = rows(*[(2.5, 1.1, 0.8, 0.5)] * 3)
    for row in made:
        if row["cell"] == POLICY and row["role"] == CRITICAL:
            row["jobs"] = "1000"
    found = decide(made, BARE, POLICY)
    assert "2.0 times as many requests" in found.text[1] and "fixed rate" in found.text[1]


def test_a_round_without_its_pair_does_not_count():
    made = [row for row in rows(*_GAIN) if (row["cell"], row["repeat"]) != (BARE, "2")]
    assert "after 3 rounds" in decide(made, BARE, POLICY).text[0]
    assert decide([row for row in made if row["cell"] != BARE], BARE, POLICY).word == "UNKNOWN"


def test_looking_after_each_round_does_not_make_noise_sure():
    """Equal conditions, a tenth of noise in each round: asked after each of the rounds, as `compare` does."""
    random.seed(5)
    wrong = 0
    for _ in range(100):
        noise = [
            (math.exp(random.gauss(0.7, 0.1)), math.exp(random.gauss(0.7, 0.1)), 0.8, 0.8) for _ in range(MOST_ROUNDS)
        ]
        wrong += any(
            (found := answer(*noise[:count])).sure and found.word == "YES" for count in range(2, MOST_ROUNDS + 1)
        )
    assert wrong <= 100 * 0.05


def test_an_interval_holds_its_mean():
    found = Change.of([-0.8, -0.9, -0.7])
    assert found and found.mean == pytest.approx(-0.8) and found.low < -0.8 < found.high
    assert Change.of([]) is None and (one := Change.of([1.0])) and math.isinf(one.high)


def waiting(seed, bare_ms, held_ms, held_share=0.8, count=MOST_ROUNDS, jobs=500):
    """Rounds of a command whose host is noisy: it takes 3 to 6 ms for the same job, and the waits add to that."""
    chance = random.Random(seed)
    waits = {"alone": 0.2, BARE: bare_ms, POLICY: held_ms}
    found = rows(*[(1.0, 1.0, 0.8, held_share)] * count, jobs=jobs)
    for row in found:
        if row["role"] == CRITICAL:
            waited = waits[row["cell"]] + chance.gauss(0, 0.003)
            p50 = 4.5 * (1 + chance.uniform(-0.33, 0.33)) + waited
            row |= {"p50_ms": str(p50), "p99_ms": str(1.2 * p50), "waits_ms": str(waited * int(row["jobs"]))}
    return found


@pytest.mark.parametrize(
    "bare_ms, held_ms, share, word, meaning",
    [
        (1.0, 0.2, 0.8, "YES", "worth it"),
        (1.0, 0.2, 0.6, "YES", "it costs 20 % of best effort's speed"),
        (0.9, 0.9, 0.6, "NO", "the latency stays, and best effort loses"),
        (0.3, 0.3, 0.8, "NO", "not needed: the two do not disturb each other"),
        (0.2, 1.0, 0.8, "NO", "the latency rises"),
    ],
)
def test_waits_decide_where_the_host_hides_the_latency(bare_ms, held_ms, share, word, meaning):
    """A quarter of a noisy latency is 1.2 ms; the waits differ by 0.8 ms, or not at all."""
    sure = 0
    for seed in range(30):
        found = decide(waiting(seed, bare_ms, held_ms, share), BARE, POLICY)
        sure += found.sure and found.word == word
        if found.sure and "for the GPU" in found.text[0]:
            assert found.text[0].startswith(f"{word}, {meaning}, after 8 rounds: the critical command waits "), (
                found.text
            )
            assert "of its latency alone, so its latency is" in found.text[0]
    assert sure >= 27
    without = [row | {"waits_ms": ""} for row in waiting(1, bare_ms, held_ms, share)]
    assert not decide(without, BARE, POLICY).sure


def test_waits_of_a_program_that_polls_say_nothing():
    """Below 1 % of the latency alone, or where nobody knows of how many requests they are."""
    for seed in range(10):
        assert "for the GPU" not in decide(waiting(seed, 0.03, 0.01), BARE, POLICY).text[0]
        requests = [
            row | {"jobs": "", "latency_of": "requests"} if row["role"] == CRITICAL else row
            for row in waiting(seed, 1.0, 0.2)
        ]
        assert "for the GPU" not in decide(requests, BARE, POLICY, "requests").text[0]


def test_a_latency_that_is_sure_needs_no_waits():
    plain = [row | {"waits_ms": "250"} if row["role"] == CRITICAL else row for row in rows(*_GAIN)]
    found = decide(plain, BARE, POLICY)
    assert found.sure and "for the GPU" not in found.text[0]


def test_waits_are_a_column_of_the_table():
    empty = dict.fromkeys(("subject", "note"), "")
    entries = summarize([empty | row for row in waiting(1, 1.0, 0.2, count=3)])
    (bare,) = [entry for entry in entries if entry.cell == BARE]
    assert len(bare.wait_ms) == 3 and bare.wait_ms[0] == pytest.approx(1.0, abs=0.02)
    assert bare.wait_share[0] == pytest.approx(1.0 / 4.7, rel=0.35)
    text = table.text(entries)
    assert "waits ms" in text.splitlines()[0] and max(map(len, text.splitlines())) <= 100
    assert "| waits ms |" in table.markdown(entries) and any(
        note.startswith("waits: ") for note in table.notes(entries)
    )
    none = summarize([empty | row for row in rows(*_GAIN)])
    assert "waits" not in table.markdown(none) + table.text(none)
