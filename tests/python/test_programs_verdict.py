"""`sluice bench programs`: which programs run together, and the verdict on what was measured."""

import time

import pytest
from sluice_tools.bench.programs import figures, plan, requests, steps
from sluice_tools.bench.programs.results import cells_with_other_outputs, summarize
from sluice_tools.bench.programs.targets import limit_ms, parse_target
from sluice_tools.bench.programs.verdict import BETTER, EQUAL, WORSE, counted, verdicts
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

MIX = "vit-graph+prefill"
TARGET = "target p99=1.3x"


def row(cell, role, client, repeat=1, **given):
    empty = dict.fromkeys(figures.FIELDS, "")
    key = {"subject": MIX, "mode": "time-sliced", "cell": cell, "repeat": str(repeat), "role": role, "client": client}
    return empty | key | {name: str(value) for name, value in given.items()}


def critical(cell, p50, p99, repeat=1, jobs=500, outputs="0:a 1:b", **given):
    """Work takes half of the latency."""
    work = {f"work_{name}_ms": value / 2 for name, value in (("p50", p50), ("p99", p99))}
    latency = {"p50_ms": p50, "p90_ms": p99 * 0.9, "max_ms": p99 * 2, **({"p99_ms": p99} if jobs >= 100 else {})}
    return row(cell, CRITICAL, "vit-graph", repeat, jobs=jobs, outputs=outputs, **latency, **work, **given)


def cell(name, *repeats, jobs=500, **given):
    """repeats: (critical p50, p99, best-effort steps/s)."""
    found = []
    for number, (p50, p99, speed) in enumerate(repeats, 1):
        found.append(critical(name, p50, p99, number, jobs))
        found.append(row(name, BEST_EFFORT, "prefill", number, per_s=speed, window_s=8, **given))
    return found


APART = [critical(ALONE, 10, 20), row(BEST_EFFORT_ALONE, BEST_EFFORT, "prefill", per_s=100)]
BARE = cell("bare", (20, 40, 80), (21, 42, 81))


def judged(*cells, bare=BARE):
    (found,) = verdicts(summarize([*APART, *bare, *(row for rows in cells for row in rows)]))
    return found


def changes(verdict):
    return {axis.name: axis.change for axis in verdict.judgments[0].axes}


# The verdict


def test_equal_on_all_axes_is_not_worse():
    found = judged(cell("device:200us", (20, 40, 80), (21, 42, 81)))
    assert set(changes(found).values()) == {EQUAL} and not found.worse
    assert found.judgments[0].word == "not worse"


@pytest.mark.parametrize(
    "repeats, axis",
    [
        (((30, 40, 80), (31, 42, 81)), "critical p50"),
        (((20, 60, 80), (21, 61, 81)), "critical p99"),
        (((20, 40, 40), (21, 42, 41)), "best effort"),
    ],
)
def test_worse_on_one_axis_names_it(repeats, axis):
    found = judged(cell("device:200us", *repeats))
    assert found.worse and found.judgments[0].worse == [axis]
    assert {name for name, change in changes(found).items() if change == WORSE} == {axis}
    assert f"WORSE ({axis})" in found.text()


def test_within_the_spread_of_the_repeats_is_equal():
    """The medians differ by 15 %, but the ranges overlap."""
    found = judged(cell("device:200us", (20.5, 40, 80), (27, 42, 81)))
    assert changes(found)["critical p50"] == EQUAL and not found.worse


@pytest.mark.parametrize("p50, p99, speed", [(20.9, 41.8, 79), (20.9, 44, 80), (21, 41, 79.5)])
def test_small_differences_are_none_without_any_spread(p50, p99, speed):
    found = judged(cell("device:200us", (p50, p99, speed)), bare=cell("bare", (20.5, 42, 80)))
    assert not found.worse, found.text()


def test_less_best_effort_for_a_lower_latency_is_not_worse():
    found = judged(cell("device:200us", (12, 40, 40), (13, 42, 41)))
    assert changes(found) == {"critical p50": BETTER, "critical p99": EQUAL, "best effort": WORSE}
    assert not found.worse


def test_a_lower_p50_does_not_excuse_a_higher_p99():
    assert judged(cell("device:200us", (12, 60, 80), (13, 61, 81))).judgments[0].worse == ["critical p99"]


def test_with_few_requests_p90_is_the_tail_and_with_fewer_there_is_no_verdict():
    few = judged(cell("device:200us", (20, 60, 80), jobs=50), bare=cell("bare", (20, 40, 80), jobs=500))
    assert few.judgments[0].worse == ["critical p90"]
    fewer = judged(cell("device:200us", (90, 99, 1), jobs=19), bare=cell("bare", (20, 40, 80)))
    assert not fewer.worse and fewer.judgments[0].word == "too few requests to judge"


def test_a_middle_program_is_an_axis_too():
    bare = [*cell("bare", (20, 40, 80)), row("bare", figures.MIDDLE, "resnet50", p50_ms=10)]
    here = [*cell("device:200us", (20, 40, 80)), row("device:200us", figures.MIDDLE, "resnet50", p50_ms=15)]
    assert judged(here, bare=bare).judgments[0].worse == ["resnet50 p50"]


# Targets: the limit is 1.3 times the 10 ms that the work takes alone at p99, and the figures below are latencies.


def with_target(*repeat, bare=(20, 25, 80), more=()):
    here = cell(TARGET, repeat, *more)
    return judged(cell("device:200us", (20, 25, 80)), here, bare=cell("bare", bare)).judgments[1]


def test_a_latency_within_the_target_is_good_enough():
    found = with_target(24, 25.9, 80)
    assert found.kept and not found.worse
    assert with_target(24, 25.9, 80, more=[(24, 26.1, 80)]).kept is False


def test_a_kept_target_costs_no_speed_that_bare_has_with_the_same_target():
    assert with_target(20, 25, 60).worse == ["best effort"]
    # Bare does not keep the target, so its speed is not at equal latency.
    assert with_target(20, 25, 60, bare=(20, 40, 80)).worse == []


def test_a_missed_target_is_worse_only_if_bare_keeps_it():
    missed = with_target(20, 26.1, 99)
    assert missed.kept is False and missed.worse == ["p99=1.3x"]
    assert with_target(20, 30, 80, bare=(20, 40, 80)).worse == []
    assert with_target(20, 50, 80, bare=(20, 40, 80)).worse == ["critical p99"]


def test_targets_are_read_in_all_units():
    (alone,) = summarize([critical(ALONE, 10, 20)])
    limits = [limit_ms(parse_target(text), alone) for text in ("p99=50ms", "p50=800us", "p90=0.5s", "p99=1.5x")]
    assert limits == pytest.approx([50, 0.8, 500, 15])


# Why


def test_the_reasons_are_what_the_interposer_counted():
    counted_here = {
        "held_ms": 3680,
        "waited": 8000,
        "launches": 1000,
        "bypassed": 12,
        "longest_us": 5100,
        "ungated_graph_us": 14000,
        "unknown_launches": 200,
        "max_hold_opened": 3,
    }
    found = judged(cell("device:200us", (20, 40, 80), **counted_here))
    (why,) = found.judgments[0].why
    assert why == (
        "prefill: held 46 % of the time, 1000 launches/s waited, max_hold opened the gate 3 times, launches of up to "
        "5.1 ms, graphs without waits of up to 14.0 ms, 12 launches ungated, 20 % of launches of unknown duration"
    )


def test_jobs_in_time_are_those_of_the_window():
    def client(jobs, kept):
        zeros = ("launches", "bypassed", "max_hold_opened", "unknown_launches", "longest_ns", "ungated_graph_ns")
        zeros += ("held_total_ns",)
        target = {"state": "kept", "jobs": jobs, "kept": kept, "limit_ns": 65e6, "open_ns": kept * 10e6}
        return dict.fromkeys(zeros, 0) | {"coverage": [], "target": target}

    done = {
        "latency_ms": [1.0] * 200,
        "work_ms": [0.5] * 200,
        "dropped": 0,
        "outputs": "",
        "begin_ns": 0,
        "end_ns": 8_000_000_000,
    }
    made = figures.serving_row(figures.Seen("vit-graph", 1, client(100, 90), client(300, 288)), done, True)
    assert (made["target_jobs"], made["target_kept"], made["target_state"]) == (200, 198, "kept")
    assert (made["per_s"], made["active_share"], made["work_p99_ms"]) == (25, pytest.approx(0.0125), 0.5)
    found = judged([row("device:200us", **made), *cell("device:200us", (1, 2, 3))[1:]])
    said = "99.0 % of 200 jobs in 65.0 ms by its own count (kept), gates open in jobs for 25 % of the time"
    assert said in found.text()


# Speed and outputs


def test_several_best_effort_programs_count_together():
    alone = row(BEST_EFFORT_ALONE, BEST_EFFORT, "cupy-arrays", per_s=10)
    here = [*cell("bare", (20, 40, 50)), row("bare", BEST_EFFORT, "cupy-arrays", per_s=3)]
    assert summarize([*APART, alone, *here])[-1].share == [pytest.approx(0.8)]
    assert summarize([*APART, *here])[-1].share == []  # one has no speed alone


def test_outputs_are_compared_by_input():
    """A cell may end before all inputs were used."""
    same = [critical(ALONE, 1, 2), critical("bare", 1, 2, outputs="1:b"), critical("x", 1, 2, outputs="1:b 2:c")]
    assert cells_with_other_outputs(summarize(same)) == []
    other = [*same, critical("y", 1, 2, outputs="0:a 2:d"), critical("z", 1, 2, outputs="0:a/b")]
    assert cells_with_other_outputs(summarize(other)) == ["y", "z"]
    assert cells_with_other_outputs(summarize([critical("bare", 1, 2, outputs="")])) is None
    changing = [critical("bare", 1, 2, outputs="0:a/b"), critical("x", 1, 2, outputs="0:a/b")]
    assert cells_with_other_outputs(summarize(changing)) == ["bare", "x"]


def test_the_first_sentence_counts_mixes():
    better = judged(cell("device:200us", (12, 40, 80)))
    worse = judged(cell("device:200us", (30, 40, 80), (30, 40, 80)))
    assert counted([better, worse]).startswith("1 of 2 are nowhere worse than without Sluice")


# What is run


def test_every_program_is_in_a_mix_and_host_bound_ones_have_a_target():
    assert {program.name for mix in plan.MIXES for program in mix.programs} >= set(plan.PROGRAMS)
    for mix in plan.MIXES:
        names = [condition.name for condition in plan.conditions(mix, None)]
        assert (f"target {plan.TARGET}" in names) == mix.critical.host_bound
        assert names[:4] == [ALONE, BEST_EFFORT_ALONE, "bare", "device:200us"]
    assert any(len(mix.programs) == 4 for mix in plan.MIXES)
    assert sum(mix.critical.arrivals == plan.BUSY for mix in plan.MIXES) >= 3
    assert any({mix.priority(program) for program in mix.programs} == {2, 1, 0} for mix in plan.MIXES)


def test_a_busy_program_is_the_same_with_its_requests_back_to_back():
    decode, busy = plan.program_of("decode"), plan.program_of("decode-busy")
    assert (busy.name, busy.arrivals, busy.every_ms) == ("decode-busy", plan.BUSY, 0)
    assert (busy.place, busy.host_bound, decode.arrivals) == (decode.place, decode.host_bound, plan.POISSON)
    for name in ("prefill-busy", "diffusion-busy", "vit-busy", "-busy"):
        with pytest.raises(ValueError, match="is not one of"):
            plan.program_of(name)


def serve(request, **given):
    command = {"arrivals": "busy", "period_ms": 0, "jobs": 6, "seconds": 5, "skip_s": 0, "seed": 1}
    return requests.serve(request, command | given, lambda: None)


def test_requests_take_the_inputs_in_turn_and_their_outputs_are_told_apart():
    answers = serve(lambda index: bytes([index]))
    told = answers["outputs"].split()
    assert [part[0] for part in told] == ["0", "1", "2", "3"] and len({part[2:] for part in told}) == 4
    assert "/" not in answers["outputs"] and len(answers["latency_ms"]) == len(answers["work_ms"]) == 6
    changing = iter(range(100))
    assert "/" in serve(lambda index: bytes([next(changing)]))["outputs"]


def test_latency_counts_from_the_arrival_and_late_requests_are_dropped():
    answers = serve(lambda index: time.sleep(0.01) or b"", arrivals="poisson", period_ms=0.5, jobs=20, seconds=0.3)
    assert answers["dropped"] > 0
    assert max(answers["latency_ms"]) > max(answers["work_ms"]) >= 10
    assert max(answers["latency_ms"]) < 10 * 0.5 + max(answers["work_ms"]) + 5


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
