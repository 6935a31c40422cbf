"""What the slowest request waited for, on requests whose steps are known; and the figures of the page."""

import json
import lzma
from pathlib import Path

import pytest
from request_records import ZERO, lasting, record, refused, sitting
from sluice_tools.records import figures, over_time, reader, waiting
from sluice_tools.records.profile import Handover, Profile

# 4 s of `sluice serve --scheduler DLIR` with four recordings on the simulated GPU.
RECORDED = Path(__file__).with_name("requests_simulated.jsonl.xz")


def explained(tmp_path, *records):
    """The breakdown of the slowest, and all that is said about it."""
    found = sitting(tmp_path, list(records))
    slowest = waiting.slowest(found)
    head, more = waiting.explain(found)
    return waiting.break_down(slowest, found), " ".join([head, *more])


def parts(breakdown) -> dict:
    names = ("other_models", "same_model", "preempted", "unexplained", "own", "shared")
    return {name: round(getattr(breakdown, name), 3) for name in names if abs(getattr(breakdown, name)) > 1e-3}


def test_behind_other_models(tmp_path):
    """b runs from 5 ms before to 30 ms after the arrival, then another model; 2 ms are nobody's."""
    breakdown, text = explained(
        tmp_path,
        record(100, [(142, 152)]),
        record(90, [(95, 130)], model="b", limit=35),
        record(91, [(130, 140)], model="c"),
    )
    assert parts(breakdown) == {"other_models": 40, "unexplained": 2, "own": 10}
    assert "Request 1 of a took 52.0 ms, 5.2 times the limit of 10.0 ms (median 52.0 ms): " in text
    assert "40.0 ms behind other models, 2.00 ms unexplained and 10.0 ms in its own steps." in text
    assert "1 step of b for 30.0 ms and 1 step of c for 10.0 ms ran between its arrival and its first step" in text
    assert "; 1 step had begun before it arrived." in text


def test_behind_its_own_model(tmp_path):
    breakdown, text = explained(
        tmp_path, record(0, [(0, 10)]), record(1, [(10, 20)]), record(2, [(20, 30)], id="slow"), record(25, [(31, 35)])
    )
    assert parts(breakdown) == {"same_model": 18, "own": 10}
    assert "Request 3 (slow) of a" in text and "18.0 ms behind requests of its own model" in text
    assert "2 steps of a for 18.0 ms ran between its arrival and its first step; 1 step had begun" in text
    assert "preempted" not in text


def test_preempted_between_its_blocks(tmp_path):
    """Of two pauses one has a step of another request: a pause in which nothing ran is no preemption."""
    breakdown, text = explained(
        tmp_path, record(0, [(0, 4), (24, 27), (29, 32)]), record(3, [(4, 14), (14, 23)], model="b", limit=19)
    )
    assert parts(breakdown) == {"preempted": 19, "unexplained": 3, "own": 10}
    assert breakdown.preemptions == 1
    assert "19.0 ms preempted between its blocks" in text
    assert "It was preempted 1 time between its 3 steps, by 2 steps of b for 19.0 ms." in text
    assert "No other step ran between its arrival and its first step." in text
    assert "For 3.00 ms no step ran: the request was read" in text


def test_a_wait_for_training_is_named(tmp_path):
    """Else the page blames the server for what the mode asks for."""
    _, text = explained(tmp_path, record(0, [(9, 12)], train_wait_ms=8.5))
    assert "For 9.00 ms no step ran: its batch waited 8.50 ms for training to leave." in text


def test_requests_of_its_batch_are_not_waited_for(tmp_path):
    """They share its steps, and a batch ahead of it is one step, not one for each of its requests."""
    ahead = [record(0, [(1, 21)], batch=2), record(0, [(1, 21)], batch=2)]
    both = [record(2, [(21, 51)], batch=2), record(3, [(21, 51)], batch=2)]
    breakdown, text = explained(tmp_path, *ahead, *both)
    assert parts(breakdown) == {"same_model": 19, "own": 30}
    assert "1 step of a for 19.0 ms ran" in text
    assert "Its own steps took 20.0 ms longer than the limit: its execution had 2 items." in text


def test_steps_at_the_same_time(tmp_path):
    """Under PARALLER: a moment counts once, first for its own model, and beside its own step not as a wait."""
    breakdown, text = explained(
        tmp_path,
        record(0, [(10, 40)]),
        record(0, [(0, 8)], model="b", limit=8),
        record(0, [(4, 10)], limit=6),
        record(12, [(15, 20)], model="b", limit=8),
    )
    assert parts(breakdown) == {"other_models": 4, "same_model": 6, "own": 30, "shared": 5}
    assert "longer than the limit: steps of other requests ran at the same time for 5.00 ms." in text


def test_a_slow_device(tmp_path):
    _, text = explained(tmp_path, record(0, [(0, 25)]))
    assert "took 15.0 ms longer than the limit: the device was shared, or slower than when" in text


def test_the_slowest_is_held_against_its_limit(tmp_path):
    """Of unlike models the longest is not the slowest; and one without an answer is not explained."""
    found = sitting(
        tmp_path, [*lasting(100, limit=90), *lasting(50, model="b", limit=10), refused(0, 9000, "cancelled")]
    )
    assert waiting.slowest(found).model == "b"
    assert waiting.explain(sitting(tmp_path, [refused(0, 1, "cancelled")])) == ("No request was answered.", [])


def test_what_the_server_writes(tmp_path):
    """The records of a real run: times that add up, and a wait that is explained."""
    text = lzma.decompress(RECORDED.read_bytes())
    (tmp_path / "requests.jsonl").write_bytes(text)
    (found,) = reader.read([tmp_path / "requests.jsonl"])
    raw = [json.loads(line) for line in text.splitlines()]
    assert (found.scheduler, found.device, len(found.requests)) == ("DLIR", "simulated", len(raw))
    for one, request in zip(raw, found.requests):
        assert request.ended - request.arrived == pytest.approx(request.total, abs=0.01)
        assert one["execute_cost"] + one["wait_cost"] == pytest.approx(request.total)
    breakdown = waiting.break_down(waiting.slowest(found), found)
    assert breakdown.other_models + breakdown.same_model + breakdown.preempted > 0
    assert breakdown.unexplained < 0.1 * breakdown.request.total


def test_the_queue_over_time(tmp_path):
    """From arrival to first step; a request that never ran waits until its refusal."""
    found = sitting(
        tmp_path,
        [record(0, [(0, 10)]), record(2, [(10, 20)]), record(4, [(20, 30)]), refused(5, 8, "deadline_exceeded")],
    )
    (drawn,) = figures.waiting_requests(found, figures.colours([found]), "")
    steps = {round(1000 * point.x, 3): point.y for point in drawn.series[0].points}
    assert {at: steps[at] for at in (2, 4, 5, 8, 10, 20)} == {2: 1, 4: 2, 5: 3, 8: 2, 10: 1, 20: 0}


def test_batch_sizes_are_those_of_executions(tmp_path):
    """A batch of three is one execution, though three requests name it."""
    batch = [record(0, [(5, 9)], batch=3) for _ in range(3)]
    found = sitting(tmp_path, [*batch, record(20, [(20, 25)]), record(40, [(40, 45), (50, 55)])])
    (chart,) = figures.batch_sizes(found, figures.colours([found]))
    ones, threes = chart.series[0].bars
    assert "1 items: 66.7 %, 2 executions" in ones.text and "3 items: 33.3 %, 1 executions" in threes.text
    assert ones.x[0] < 1 < ones.x[1] and threes.x[0] < 3 < threes.x[1]
    assert figures.batch_sizes(sitting(tmp_path, lasting(5, 6)), {"a": ""}) == []


def test_nobody_waits_in_a_queue_that_is_empty(tmp_path):
    assert figures.waiting_requests(sitting(tmp_path, [record(0, [(0, 10)])]), {"a": ""}, "") == []


def test_cdfs_hold_answered_requests_only(tmp_path):
    one = sitting(tmp_path, [*lasting(20, 40), *lasting(30, model="b"), refused(0, 9000, "cancelled")])
    (latency, _) = figures.latency_cdfs([one], "")
    assert [(point.x, point.y) for point in latency.series[0].points] == [(20, 0), (20, 50), (40, 100)]
    (ratios,) = figures.ratio_cdfs([one], figures.colours([one]))
    assert [line.name for line in ratios.series] == ["a", "b", "all models"]
    assert [point.x for point in ratios.series[2].points] == [2, 2, 3, 4]


def test_latency_and_deadlines_are_where_requests_arrived(tmp_path):
    """A second in which every deadline was missed must not be drawn as a calm one."""
    late = [record(at, [(at, at + 30)], deadline_ms=20) for at in range(1000, 1100, 50)]
    good = [record(at, [(at, at + 10)], deadline_ms=20) for at in range(0, 900, 50)]
    found = sitting(tmp_path, [*good, *late, refused(2000, 2001, "resource_exhausted") | {"deadline_ms": 20}])
    latency, kept = over_time.latency_over_time(found, dict.fromkeys(found.models, "red"), "")
    assert [(point.x, point.y) for point in latency.series[0].points][::19] == [(0, 10), (1.05, 30)]
    shares = {round(point.x, 2): point.y for point in kept.series[0].points}
    assert {share for at, share in shares.items() if at < 0.95} == {100}
    assert {share for at, share in shares.items() if at > 0.95} == {0} and max(shares) > 1.9
    assert latency.x.high == kept.x.high == pytest.approx(2.1)


def test_memory_and_handovers_are_in_their_places(tmp_path):
    at = ZERO + 1000
    one = Handover(at + 100, 400, (0.01, 2, 1, 0.5, 0.25, 4), True)
    two = Handover(at + 300, 0, (0.02, 9, 0, 0, 0, 0), False)
    found = Profile([(at, 100, 800, 900), (at + 400, 500, 400, 900)], [two, one])
    (memory,) = over_time.memory_over_time(found, at, "")
    assert {line.name: [(point.x, point.y) for point in line.points] for line in memory.series} == {
        "inference": [(0, 100), (0.4, 500)],
        "training": [(0, 800), (0.4, 400)],
        "all clients": [(0, 900), (0.4, 900)],
    }
    assert [x for x, _ in memory.upright] == [pytest.approx(0.3), pytest.approx(0.1)]
    (chart,) = over_time.handovers(found, at, "")
    bars = {line.name: [bar.y for bar in line.bars] for line in chart.series}
    assert bars["order"] == [(0, 0.01), (0, 0.02)] and bars["drop"] == [(0.01, 2.01), (0.02, 9.02)]
    assert bars["load"] == [(pytest.approx(3.76), pytest.approx(7.76))], "parts are on top of each other"
    assert [round(sum(bar.x) / 2, 6) for bar in chart.series[1].bars] == [1, 2], "in the order of time"
    assert "0 MB, 9.02 ms, not obeyed" in chart.series[1].bars[1].text
    assert over_time.memory_over_time(Profile(), at, "") == over_time.handovers(Profile(), at, "") == []


def test_around_the_slowest_each_step_has_its_row(tmp_path):
    steps = [record(0, [(0, 10)], model="b"), record(1, [(10, 30)], limit=1), record(2, [(30, 35)], limit=90)]
    found = sitting(tmp_path, steps)
    (chart,) = figures.around_slowest(found, figures.colours([found]), "")
    assert list(chart.y.rows) == ["a, this request", "b"]
    placed = {(bar.x, int(bar.y[0])) for line in chart.series for bar in line.bars}
    assert placed == {((-1, 9), 1), ((9, 29), 0)} and chart.upright == [(0, "arrival"), (29, "answer")]
    assert (chart.x.low, chart.x.high) == (-1, 29)
    nobody = sitting(tmp_path, [refused(0, 1, "cancelled")])
    assert figures.around_slowest(nobody, {}, "") == figures.latency_cdfs([nobody], "") == []
    assert over_time.latency_over_time(nobody, {}, "") == figures.ratio_cdfs([nobody], {}) == []
