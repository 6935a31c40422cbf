"""`sluice bench pairs`: what is measured in which order, and which goals are met."""

import json
import time

import pytest
from sluice_tools.bench.pairs import cli, jobs, numbers, plan
from sluice_tools.bench.pairs.goals import goals
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Cell, Rows
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, summarize

PAIR = "resnet50+training"


def row(cell, role, **figures):
    given = {"subject": PAIR, "mode": "time-sliced", "cell": cell, "role": role, "repeat": "1", "note": ""}
    return given | {name: str(value) for name, value in figures.items()}


def together(cell, p50, p99, active, speed):
    return [
        row(cell, CRITICAL, p50_ms=p50, p99_ms=p99, active_share=active, jobs=500),
        row(cell, BEST_EFFORT, per_s=speed),
    ]


def time_sliced(announced_speed=8.3):
    """Alone: 1 ms / 2 ms and 10 jobs/s."""
    return [
        row(ALONE, CRITICAL, p50_ms=1.0, p99_ms=2.0, active_share=0.15, jobs=500),
        row(BEST_EFFORT_ALONE, BEST_EFFORT, per_s=10),
        *together("device:200us", 1.04, 2.4, 0.16, 8.2),
        *together(plan.ANNOUNCED, 1.01, 2.08, 0.15, announced_speed),
        *together("event:1", 1.1, 3.0, 0.17, 8.0),
        row(plan.BEST_EFFORT_ALONE_DEVICE, BEST_EFFORT, per_s=9.9),
    ]


# What is measured


def test_the_named_pairs_come_first_and_again_last():
    variants = plan.variants(repeats=3)
    first = list(dict.fromkeys((one.pair, one.mode) for one in variants))[:12]
    assert first == [(pair, mode) for pair in plan.NAMED for mode in plan.MODES]
    assert all(one.repeat == 1 for one in variants if one.pair not in plan.NAMED)
    repeats = [one.repeat for one in variants]
    assert repeats == sorted(repeats) and repeats[-1] == 3
    assert len({one.pair for one in variants}) == 12


def test_every_policy_has_a_cell_in_every_mode_that_it_is_for():
    names = {(one.mode, condition.name) for one in plan.variants(repeats=1) for condition in one.conditions}
    for policy in ("none", "gate", "sync:1", "event:1", "event:2", "device:200us", plan.ANNOUNCED):
        assert ("time-sliced", policy) in names
    for policy in ("none", "event:1", "device:200us", plan.ANNOUNCED, ALONE):
        assert ("MPS + priority", policy) in names
    assert {("MPS", "none"), ("MPS", ALONE)} <= names


def test_every_cell_is_measured_next_to_what_it_is_compared_with():
    for one in plan.variants(repeats=1):
        names = {condition.name for condition in one.conditions}
        assert one.predicts or {ALONE, BEST_EFFORT_ALONE} <= names, one


def test_prediction_has_programs_of_its_own():
    predicting = [one for one in plan.variants(repeats=1) if one.predicts]
    assert [(one.pair, one.mode) for one in predicting] == [
        (pair, mode) for pair in plan.NAMED for mode in ("time-sliced", "MPS + priority")
    ]
    assert all(condition.name == plan.PREDICTED for one in predicting for condition in one.conditions)
    assert not any(
        condition.name == plan.PREDICTED
        for one in plan.variants(repeats=1)
        for condition in one.conditions
        if not one.predicts
    )


def test_chosen_policies_bring_what_they_are_compared_with():
    (one,) = plan.variants(("bert+bert",), ("time-sliced",), ["event:1"], 1)
    assert [condition.name for condition in one.conditions] == [ALONE, BEST_EFFORT_ALONE, "event:1"]


def test_a_policy_of_the_user_is_measured_where_the_default_is():
    policies = cli._policies("event:1,device:200us,ahead:2ms, predicted")
    assert policies == ["event:1", "device:200us,ahead:2ms", plan.PREDICTED]
    modes = {one.mode: one.conditions for one in plan.variants(("bert+bert",), policies=policies[1:2], repeats=1)}
    assert list(modes) == [plan.TIME_SLICED, plan.MPS_PRIORITY]
    for conditions in modes.values():
        assert conditions[-1] == plan.Condition("device:200us,ahead:2ms", "device:200us,ahead:2ms")


# Numbers


def test_parts_of_jobs_count():
    ends = [0, 100, 200, 400]
    assert numbers.jobs_between(ends, 50, 300) == pytest.approx(2.0)
    assert numbers.jobs_between(ends, -5, 10) == pytest.approx(0.1)
    assert numbers.jobs_between(ends, 300, 900) == pytest.approx(0.5)


# The arrival of jobs


class NoSluice:
    def __init__(self):
        self.announced = []

    def begin(self, announced):
        return announced

    def end(self, job):
        pass

    def announce(self, start):
        self.announced.append((time.monotonic_ns(), start))
        return 1


def test_latency_is_counted_from_the_arrival_and_the_window_holds_whole_periods():
    done = jobs.serve(
        lambda: time.sleep(0.001), NoSluice(), {"jobs": 5, "seconds": 9, "period_ms": 10, "skip_s": 0.02}, lambda: None
    )
    assert len(done["latency_ms"]) == 5 and min(done["latency_ms"]) >= 1
    assert done["end_ns"] - done["begin_ns"] >= 5 * 10e6


def test_jobs_that_cannot_keep_up_are_dropped_and_counted():
    done = jobs.serve(lambda: time.sleep(0.02), NoSluice(), {"jobs": 5, "seconds": 9, "period_ms": 5}, lambda: None)
    assert done["dropped"] >= 8 and len(done["latency_ms"]) == 5


def test_jobs_are_announced_before_the_arrival():
    sluice = NoSluice()
    # A job that a busy host begins too late is not announced.
    jobs.serve(lambda: None, sluice, {"jobs": 30, "seconds": 9, "period_ms": 20, "announce_ms": 5}, lambda: None)
    assert len(sluice.announced) >= 3
    assert all(at < start for at, start in sluice.announced)


def test_poisson_arrivals_are_the_same_for_every_policy():
    def first(seed):
        arrivals = jobs.arrivals_ns("poisson", 1e6, seed)
        return [next(arrivals) for _ in range(2000)]

    assert first(1) == first(1) != first(2)
    assert first(1)[-1] / 1999 == pytest.approx(1e6, rel=0.1)


# Goals, table and page


def test_goals_met_and_not_met():
    met = {goal["goal"][:14]: goal["met"] for goal in goals(PAIR, summarize(time_sliced()))}
    assert met == {"announced 2 ms": True, "not announced,": True, "no other polic": True, "best effort al": True}
    slow = {goal["goal"][:14]: goal["met"] for goal in goals(PAIR, summarize(time_sliced(8.0)))}
    assert slow["announced 2 ms"] is False


def test_a_policy_that_is_better_on_both_axes_is_named():
    rows = time_sliced() + together("event:2", 1.03, 2.6, 0.16, 8.4)
    (found,) = [goal for goal in goals(PAIR, summarize(rows)) if "both axes" in goal["goal"]]
    assert found["met"] is False and "event:2 (time-sliced, p50)" in found["seen"]
    assert "p99" not in found["seen"]


def test_table_and_page_are_made_again_without_a_gpu(tmp_path, capsys):
    rows = Rows(tmp_path / "pairs.csv")
    for given in time_sliced():
        figures = {
            name: value for name, value in given.items() if name not in ("subject", "mode", "cell", "repeat", "note")
        }
        cell = Cell(PAIR, "time-sliced", given["cell"])
        if given["role"] == CRITICAL or not rows.has(cell):
            rows.add(cell, [figures | {"gpu": "Some GPU", "date": "2026-11-21T10:00:00+00:00"}])
    assert cli.main(["--table", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["ms"]["p50"] == [1.0]
    assert "Some GPU" in (tmp_path / "pairs.md").read_text()
    assert "not announced, in the better mode" in (tmp_path / "pairs.html").read_text()
    assert cli.main(["--table", str(tmp_path / "nowhere")]) == 2


def test_wrong_names_are_usage_errors(capsys):
    for wrong in (["--pairs", "bert"], ["--policies", "fast"], ["--modes", "both"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(wrong)
        assert ended.value.code == 2
        assert "is not one of" in (said := capsys.readouterr().err) or "'fast' is not a policy" in said
