"""`sluice bench programs`: which programs run together, and the verdict on what was measured."""

import pytest
from sluice_tools.bench.common.numbers import jobs_between
from sluice_tools.bench.llm.plan import BEST_EFFORT as OF_LLM
from sluice_tools.bench.programs import conditions, figures, plan, steps
from sluice_tools.bench.programs.results import cells_with_other_outputs, summarize
from sluice_tools.bench.programs.verdict import BETTER, EQUAL, WORSE, counted, verdicts
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

MIX = "vit-graph+prefill"
ROUNDS = range(1, 6)
DRIFT = (1.0, 1.3, 1.1, 1.8, 1.5)  # of the host, by round
NOISE = (0.995, 1.004, 1.0, 0.998, 1.003)


def row(cell, role, client, repeat=1, loaded="1-1", **given):
    empty = dict.fromkeys(figures.FIELDS, "")
    key = {"subject": MIX, "mode": "time-sliced", "cell": cell, "repeat": str(repeat), "role": role, "client": client}
    return empty | key | {"loaded": loaded} | {name: str(value) for name, value in given.items()}


def critical(cell, p50, p99, repeat=1, jobs=500, outputs="0:a 1:b", **given):
    latency = {"p50_ms": p50, "p90_ms": p99 * 0.9, "max_ms": p99 * 2, **({"p99_ms": p99} if jobs >= 100 else {})}
    return row(cell, CRITICAL, "vit-graph", repeat, jobs=jobs, outputs=outputs, **latency, **given)


def cell(name, p50, p99, speed, jobs=500, noise=NOISE, rounds=ROUNDS, **given):
    """speed: of best effort. Everything drifts with the host, and has a noise of its own."""
    found = []
    for place, number in enumerate(rounds):
        slow, own = DRIFT[place], noise[place]
        found.append(critical(name, p50 * slow * own, p99 * slow * own, number, jobs))
        found.append(row(name, BEST_EFFORT, "prefill", number, per_s=speed * own, window_s=1, counted_s=1, **given))
    return found


def alone():
    found = [critical(ALONE, 10 * slow, 20 * slow, number) for number, slow in zip(ROUNDS, DRIFT)]
    return found + [row(BEST_EFFORT_ALONE, BEST_EFFORT, "prefill", number, per_s=100) for number in ROUNDS]


BARE = cell("bare", 20, 40, 80)
OTHER_NOISE = (1.003, 0.997, 1.001, 1.002, 0.996)


def judged(*cells, bare=BARE):
    (found,) = verdicts(summarize([*alone(), *bare, *(row for rows in cells for row in rows)]))
    return found


def here(p50, p99, speed, name="default", **given):
    return cell(name, p50, p99, speed, noise=OTHER_NOISE, **given)


def changes(verdict):
    return {axis.name: axis.verdict for axis in verdict.judgments[0].axes}


# The verdict


def test_equal_on_all_axes_is_shown_not_to_be_worse():
    """The host drifts by a factor of 1.8 between the rounds; unpaired, nothing could be said."""
    found = judged(here(20, 40, 80))
    assert set(changes(found).values()) == {EQUAL} and not found.worse
    assert found.judgments[0].word == "not worse"


@pytest.mark.parametrize(
    "figures, axis", [((22, 40, 80), "critical p50"), ((20, 46, 80), "critical p99"), ((20, 40, 72), "best effort")]
)
def test_worse_on_one_axis_names_it(figures, axis):
    found = judged(here(*figures))
    assert found.worse and found.judgments[0].worse == [axis]
    assert {name for name, change in changes(found).items() if change == WORSE} == {axis}
    assert f"WORSE ({axis})" in found.text()


def test_the_change_is_stated_with_its_interval():
    (p50, *_) = judged(here(22, 40, 80)).judgments[0].axes
    assert p50.change.low < 0.1 < p50.change.high and p50.change.high - p50.change.low < 0.02
    assert p50.text().startswith("+10.0 % (+9.") and p50.text().endswith("p < 0.001")


def test_what_varies_too_much_is_not_called_equal():
    wild = (0.8, 1.3, 0.9, 1.25, 0.85)
    found = judged(cell("default", 20, 40, 80, noise=wild))
    assert not found.worse and found.judgments[0].word.startswith("not shown to be worse (critical p50, critical p99")


@pytest.mark.parametrize("p50, p99, speed", [(20.4, 41.5, 79), (20.4, 40, 80), (20, 40, 78.5)])
def test_small_differences_are_none_however_significant(p50, p99, speed):
    assert not judged(here(p50, p99, speed)).worse


def test_many_tests_need_more_evidence():
    """A difference that one test calls significant is none among forty (Holm)."""
    shifts = (1.02, 1.14, 1.03, 1.12, 1.04)
    doubtful = cell("default", 20, 40, 80, noise=tuple(a * b for a, b in zip(shifts, NOISE)))
    (axis,) = [axis for axis in judged(doubtful).judgments[0].axes if axis.name == "critical p50"]
    assert 0.01 < axis.change.p < 0.05
    assert axis.adjusted == pytest.approx(3 * axis.change.p, rel=0.7)
    many = judged(doubtful, *(here(20, 40, 80, name=f"slice={number}ms") for number in range(13)))
    (axis,) = [axis for axis in many.judgments[0].axes if axis.name == "critical p50"]
    assert axis.adjusted > 0.3 and not many.worse


def test_less_best_effort_for_a_lower_latency_is_not_worse():
    found = judged(here(12, 40, 40))
    assert changes(found) == {"critical p50": BETTER, "critical p99": EQUAL, "best effort": WORSE}
    assert not found.worse and found.judgments[0].word == "less best effort for a lower critical p50"
    assert counted([found]).startswith("0 of 1 are worse than without Sluice somewhere, 0 are shown not to be, 1 pay")


def test_what_best_effort_pays_for_need_not_pass_the_correction():
    """Else the same payment is a loss in a large table, and none in a small one."""
    shifts = (1.03, 1.16, 1.05, 1.14, 1.06)
    faster = cell("default", 20, 40, 40, noise=tuple(own / shift for own, shift in zip(NOISE, shifts)))
    many = judged(faster, *(here(20, 40, 80, name=f"slice={number}ms") for number in range(13)))
    (p50, *_) = many.judgments[0].axes
    assert p50.verdict == EQUAL and p50.change.high < 0
    assert not many.worse and many.judgments[0].lower == ["critical p50", "critical p99"]


def test_less_best_effort_for_a_latency_that_may_be_the_same_is_worse():
    wild = (0.8, 1.3, 0.9, 1.25, 0.85)
    found = judged(cell("default", 19, 38, 20, noise=wild))
    assert found.judgments[0].worse == ["best effort"]


def test_a_lower_p50_does_not_excuse_a_higher_p99():
    assert judged(here(12, 60, 80)).judgments[0].worse == ["critical p99"]


def test_with_few_requests_p90_is_the_tail_and_with_fewer_there_is_no_verdict():
    few = judged(here(20, 60, 80, jobs=50))
    assert few.judgments[0].worse == ["critical p90"]
    fewer = judged(here(90, 99, 1, jobs=3))
    assert not fewer.worse and fewer.judgments[0].word == "too few requests to judge"


def test_one_round_has_no_spread():
    found = judged(here(90, 99, 1, rounds=[1]))
    assert not found.worse and found.judgments[0].word == "no spread: --rounds 2 or more"


def test_rounds_of_other_processes_are_not_paired():
    """An interrupted call goes on with other processes, which the host treats differently."""
    other = [one | {"loaded": "2-1"} for one in [*alone(), *here(40, 80, 40)]]
    assert judged(other).judgments[0].word == "no spread: --rounds 2 or more"


def test_a_process_of_its_own_is_compared_with_itself_alone():
    """It is twice as slow as the other process from the start, so bare and it are equal."""
    own = [critical("alone, give=0", 20 * slow, 40 * slow, number) for number, slow in zip(ROUNDS, DRIFT)]
    found = judged([*own, *here(40, 80, 80, name="give=0")])
    assert set(changes(found).values()) == {EQUAL}


def test_a_middle_program_is_an_axis_too():
    bare = [*BARE, *(row("bare", figures.MIDDLE, "resnet50", number, p50_ms=10) for number in ROUNDS)]
    now = [row("default", figures.MIDDLE, "resnet50", n, p50_ms=15 + n / 100) for n in ROUNDS]
    assert judged([*here(20, 40, 80), *now], bare=bare).judgments[0].worse == ["resnet50 p50"]


# Why


def test_the_reasons_are_what_the_interposer_counted():
    counted_here = {
        "held_ms": 460,
        "waited": 1000,
        "launches": 1000,
        "bypassed": 12,
        "longest_us": 5100,
        "ungated_graph_us": 14000,
        "unknown_launches": 200,
        "slice": "short",
    }
    (why,) = judged(here(20, 40, 80, **counted_here)).judgments[0].why
    assert why == (
        "prefill: held 46 % of the time, 1000 launches/s waited, launches of up to 5.1 ms, "
        "graphs without waits of up to 14.0 ms, 60 launches ungated, 20 % of launches of unknown duration, slice short"
    )


SEEN = figures.Seen("vit-graph", 1)


def serving(seen=SEEN, **given):
    answer = {"served_ns": [], "dropped_ns": [], "outputs": ""} | given
    return figures.serving_row(seen, answer, 1_000_000_000, 3_000_000_000, True)


def test_the_requests_that_arrive_in_the_window_count_whenever_they_end():
    """To count those that end in it would leave out the long ones."""
    arrived = (950_000_000, 1_000_000_000, 2_950_000_000, 2_999_000_000, 3_000_000_000)
    served = [(at, at + 1_000_000, at + 101_000_000) for at in arrived]
    made = serving(served_ns=served, dropped_ns=[999_999_999, 1_500_000_000])
    assert (made["jobs"], made["dropped"], made["p50_ms"], made["work_p50_ms"]) == (3, 1, 101, 100)
    assert (made["per_s"], made["active_share"]) == (1.5, pytest.approx(0.15))


def test_jobs_in_time_are_those_of_the_window():
    def client(jobs, kept):
        zeros = ("launches", "bypassed", "max_hold_opened", "unknown_launches", "longest_ns", "ungated_graph_ns")
        zeros += ("held_total_ns",)
        target = {"state": "kept", "jobs": jobs, "kept": kept, "limit_ns": 65e6, "open_ns": kept * 10e6}
        return dict.fromkeys(zeros, 0) | {"coverage": [], "target": target}

    made = serving(figures.Seen("vit-graph", 1, client(100, 90), client(300, 288), 8.0))
    assert (made["target_jobs"], made["target_kept"], made["target_state"]) == (200, 198, "kept")
    found = judged(
        [
            *here(1, 2, 3),
            critical("default", 1, 2, 9) | {key: str(value) for key, value in made.items() if value is not None},
        ]
    )
    said = "99.0 % of 200 jobs in 65.0 ms by its own count (kept), gates open in jobs for 25 % of the time"
    assert said in found.text()


def test_announcements_are_those_of_the_window():
    answer = {"served_ns": [(at, at, at + 1) for at in (999_999_999, 1_000_000_000, 2_000_000_000)]}
    made = serving(**answer, announced_ns=[999_999_999, 2_000_000_000, 3_000_000_000])
    assert made["announced"] == 1 and "announced" not in serving(**answer)
    told = [critical("default", 20, 40, 1, announced=480), critical("default", 20, 40, 2, announced=500)]
    assert "980 of 1000 requests announced in time" in judged([*here(20, 40, 80, rounds=[3]), *told]).text()


# Speed and outputs


def test_several_best_effort_programs_count_together():
    other = row(BEST_EFFORT_ALONE, BEST_EFFORT, "cupy-arrays", per_s=10)
    both = [*cell("bare", 20, 40, 50, rounds=[1], noise=(1,)), row("bare", BEST_EFFORT, "cupy-arrays", per_s=3)]
    result = summarize([*alone(), other, *both])[-1]
    assert result.share == [pytest.approx(0.8)] and list(result.shares.values()) == pytest.approx([0.5, 0.3])
    assert summarize([*alone(), *both])[-1].share == []  # one has no speed alone


def test_outputs_are_compared_by_input():
    """A window may end before all inputs were used."""
    same = [critical(ALONE, 1, 2), critical("bare", 1, 2, outputs="1:b"), critical("x", 1, 2, outputs="1:b 2:c")]
    assert cells_with_other_outputs(summarize(same)) == []
    other = [*same, critical("y", 1, 2, outputs="0:a 2:d"), critical("z", 1, 2, outputs="0:a/b")]
    assert cells_with_other_outputs(summarize(other)) == ["y", "z"]
    assert cells_with_other_outputs(summarize([critical("bare", 1, 2, outputs="")])) is None
    changing = [critical("bare", 1, 2, outputs="0:a/b"), critical("x", 1, 2, outputs="0:a/b")]
    assert cells_with_other_outputs(summarize(changing)) == ["bare", "x"]


def test_outputs_that_differ_alone_are_no_fault():
    rows = [critical(ALONE, 1, 2, outputs="0:a/b"), *alone(), *here(12, 40, 80)]
    verdict = judged(rows)
    assert verdict.outputs_vary and "Outputs of the critical program differ alone, too." in verdict.text()
    assert "OUTPUTS DIFFER" not in verdict.text()
    assert counted([verdict]).endswith("; in 1 they differ alone, too.")


def test_the_first_sentence_counts_mixes():
    found = [judged(here(12, 40, 80)), judged(here(30, 40, 80))]
    assert counted(found).startswith("1 of 2 are worse than without Sluice somewhere, 1 are shown not to be;")


# What is run


def test_the_mixes_are_of_all_kinds():
    assert {program.name for mix in plan.MIXES for program in mix.programs} | set(OF_LLM) >= set(plan.PROGRAMS)
    assert len(set(plan.MIXES)) == len(plan.MIXES)
    assert {len(mix.best_effort) for mix in plan.MIXES} >= {1, 2, 3}
    assert sum(mix.critical.arrivals == plan.BUSY for mix in plan.MIXES) >= 5
    assert any({mix.priority(program) for program in mix.programs} == {2, 1, 0} for mix in plan.MIXES)
    assert plan.mixes_of("gang") and all(mix.gpus == 2 for mix in plan.mixes_of("gang"))
    assert plan.mixes_of("all") == plan.MIXES and plan.mixes_of(MIX) == (plan.mix_of(MIX),)


def test_a_round_has_each_process_alone_and_the_conditions():
    wanted = [conditions.condition_of(text) for text in ("bare", "default", "slice=off", "give=0")]
    named = [condition.name for condition in conditions.cells(plan.mix_of(MIX), wanted)]
    assert named == [ALONE, BEST_EFFORT_ALONE, "alone, give=0", "bare", "default", "slice=off", "give=0"]
    announcing = conditions.condition_of("give=0 announce=1500us policy=event:1")
    assert (announcing.own, announcing.policy) == ((("--give", "0"), 1.5), "event:1")
    together = conditions.condition_of("give=2.5%+target=p99=50ms")
    assert together.own.options == ("--give", "2.5%", "--target", "p99=50ms")
    for wrong in ("give=5", "give=60%", "give="):
        with pytest.raises(ValueError, match="is not a condition"):
            conditions.condition_of(wrong)
    both = conditions.condition_of("sms=50%+target=step p99=1.2x policy=none")
    assert (both.width, both.policy, both.own) == (50, "none", (("--target", "step p99=1.2x"), 0.0))
    assert conditions.condition_of("default+sms=7%").hooked and not conditions.condition_of("sms=7% bare").hooked
    narrow = [conditions.condition_of("bare"), both, conditions.condition_of("sms=all")]
    named = [one.name for one in conditions.cells(plan.mix_of(MIX), narrow, plan.TIME_SLICED)]
    assert named == [ALONE, BEST_EFFORT_ALONE, "bare", "sms=all"]
    without = conditions.cells(plan.mix_of("kernels-1ms+kernels-5ms"), wanted)
    assert [condition.name for condition in without] == [BEST_EFFORT_ALONE, "bare", "default", "slice=off"]


def test_only_the_first_rank_of_a_gang_is_held():
    """What a held rank does to the GPU of another one shows only where that other one is not held itself."""
    mix, gang = plan.mix_of("resnet50+ddp-training"), plan.program_of("ddp-training")
    first = conditions.condition_of("ranks=first")
    policies = [first.settings(mix, gang, rank)[3] for rank in range(3)]
    assert policies == ["device:200us", "none", "none"]
    every = conditions.condition_of("default")
    assert every.settings(mix, gang, 1) == every.settings(mix, gang, 0)


def test_variants_of_a_program():
    decode, busy = plan.program_of("decode"), plan.program_of("decode-busy")
    assert (busy.name, busy.arrivals, busy.every_ms) == ("decode-busy", plan.BUSY, 0)
    assert (busy.place, decode.arrivals) == (decode.place, plan.POISSON)
    other = plan.program_of("decode-busy@1:2")
    assert (other.place, other.arrivals, list(other.devices)) == (decode.place, plan.BUSY, [1])
    for name in ("prefill-busy", "diffusion-busy", "vit-busy", "-busy", "decode@2", "decode@", "decode:x", "decode:"):
        with pytest.raises(ValueError, match="is not one of"):
            plan.program_of(name)


def test_parts_of_steps_count():
    ends = [0, 100, 200, 400]
    assert jobs_between(ends, 50, 300) == pytest.approx(2.0)
    assert jobs_between(ends, -5, 10) == pytest.approx(0.1)
    assert jobs_between(ends, 300, 900) == pytest.approx(0.5)


def test_steps_are_counted_when_they_have_ended():
    begun, ended = [], []

    def step():
        begun.append(len(begun))
        return lambda: ended.append(len(begun))

    made = steps.Steps(step)
    made.begin()
    for _ in range(5):
        made.one()
    assert ended == [3, 4, 5]  # two steps are launched before the oldest is waited for
    assert len(made.finish()) == 6 and len(ended) == 5
