"""`sluice bench pairs`: what is measured in which order, what is kept, what is made of it."""

import json
import time

import pytest

from sluice_tools.bench.pairs import cli, jobs, numbers, picture, plan, sitting
from sluice_tools.bench.pairs.records import FIELDS, Records
from sluice_tools.bench.pairs.summary import goals, ideal_share, summary
from sluice_tools.bench.pairs.table import table
from sluice_tools.errors import CommandError

PAIR = "resnet50+training"


def row(cell, mode="time-sliced", repeat=1, pair=PAIR, **figures):
    given = {"pair": pair, "mode": mode, "cell": cell, "arrivals": "periodic", "load": "0.15",
             "repeat": repeat, "date": "2026-11-21T10:00:00+00:00", **figures}
    return {name: str(given.get(name, "")) for name in FIELDS}


def critical_row(cell, p50, p99, active, speed, **more):
    return row(cell, p50_ms=p50, p99_ms=p99, active_share=active, be_jobs_per_s=speed, n=500,
               p99_is_max=0, dropped=0, **more)


def time_sliced(notice_speed=8.3):
    """Alone: 1 ms / 2 ms and 10 jobs/s."""
    return [critical_row("alone", 1.0, 2.0, 0.15, ""), row("be-alone", be_jobs_per_s=10),
            critical_row("device:200us", 1.04, 2.4, 0.16, 8.2),
            critical_row("device:200us+notice", 1.01, 2.08, 0.15, notice_speed),
            critical_row("event:1", 1.1, 3.0, 0.17, 8.0),
            row("be-alone:device:200us", be_jobs_per_s=9.9)]


# What is measured

def test_the_named_pairs_come_first_and_again_last():
    groups = plan.groups(repeats=3)
    first = [(group.pair, group.mode) for group in groups[:8]]
    assert first == [(pair, mode) for pair in plan.NAMED for mode in plan.MODES]
    assert all(group.repeat == 1 for group in groups if group.pair not in plan.NAMED)
    repeats = [group.repeat for group in groups]
    assert repeats == sorted(repeats) and repeats[-1] == 3
    assert len({group.pair for group in groups}) == 12


def test_every_policy_of_the_issue_has_a_cell():
    names = {(group.mode, cell.name) for group in plan.groups(repeats=1) for cell in group.cells}
    for policy in ("none", "gate", "sync:1", "event:1", "event:2", "device:200us",
                   "device:200us+notice"):
        assert ("time-sliced", policy) in names
    for policy in ("none", "priority", "priority+event:1", "priority+device:200us",
                   "priority+device:200us+notice", "alone"):
        assert ("MPS", policy) in names


def test_mps_without_priorities_has_programs_of_its_own():
    plain = [group for group in plan.groups(repeats=1) if not group.priorities]
    assert len(plain) == 12 and all([cell.name for cell in group.cells] == ["none"]
                                    for group in plain)


def test_prediction_has_programs_of_its_own():
    predicting = [group for group in plan.groups(repeats=1) if group.predicts]
    assert [(group.pair, group.mode) for group in predicting] == [
        (pair, mode) for pair in plan.NAMED for mode in plan.MODES]
    assert all(cell.name.endswith("+predicted") for group in predicting for cell in group.cells)
    assert not any(cell.name.endswith("+predicted") for group in plan.groups(repeats=1)
                   for cell in group.cells if not group.predicts)


def test_chosen_policies_bring_what_they_are_held_against():
    (group,) = plan.groups(("bert+bert",), ("time-sliced",), ["event:1"], 1)
    assert [cell.name for cell in group.cells] == ["alone", "be-alone", "event:1"]


# Numbers

def test_below_300_jobs_the_maximum_stands_in_for_p99():
    assert numbers.tail(list(range(299))) == (298, True)
    assert numbers.tail(list(range(300))) == (297, False)


def test_parts_of_jobs_count():
    ends = [0, 100, 200, 400]
    assert numbers.jobs_between(ends, 50, 300) == pytest.approx(2.0)
    assert numbers.jobs_between(ends, -5, 10) == pytest.approx(0.1)
    assert numbers.jobs_between(ends, 300, 900) == pytest.approx(0.5)


def test_the_ideal_is_the_time_without_critical_jobs():
    assert ideal_share(0.15) == pytest.approx(0.85)
    notice = next(entry for entry in summary(time_sliced()) if entry["cell"].endswith("notice"))
    assert notice["share"] == [pytest.approx(0.83)]
    assert notice["of_ideal"] == [pytest.approx(0.83 / 0.85)]
    assert notice["p99_x"] == [pytest.approx(1.04)]


def test_no_ideal_where_jobs_are_always_active():
    rows = [dict(row) for row in time_sliced()]
    for row in rows:
        row["active_share"] = "0.99" if row["active_share"] else ""
    assert all(entry["of_ideal"] == [] for entry in summary(rows))


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
    done = jobs.serve(lambda: time.sleep(0.001), NoSluice(),
                      {"jobs": 5, "seconds": 9, "period_ms": 10, "skip_s": 0.02}, lambda: None)
    assert len(done["latency_ms"]) == 5 and min(done["latency_ms"]) >= 1
    assert done["end_ns"] - done["begin_ns"] >= 5 * 10e6


def test_jobs_that_cannot_keep_up_are_dropped_and_counted():
    done = jobs.serve(lambda: time.sleep(0.02), NoSluice(),
                      {"jobs": 5, "seconds": 9, "period_ms": 5}, lambda: None)
    assert done["dropped"] >= 8 and len(done["latency_ms"]) == 5


def test_notice_is_given_before_the_arrival():
    sluice = NoSluice()
    jobs.serve(lambda: None, sluice, {"jobs": 3, "seconds": 9, "period_ms": 20, "notice_ms": 5},
               lambda: None)
    assert len(sluice.announced) >= 3
    assert all(at < start for at, start in sluice.announced)


def test_poisson_arrivals_are_the_same_for_every_policy():
    def first(seed):
        arrivals = jobs.arrivals_ns("poisson", 1e6, seed)
        return [next(arrivals) for _ in range(2000)]

    assert first(1) == first(1) != first(2)
    assert first(1)[-1] / 1999 == pytest.approx(1e6, rel=0.1)


# Records

def group_and_cell(cell="none"):
    (group,) = plan.groups((PAIR,), ("time-sliced",), [cell], 1)
    return group, next(one for one in group.cells if one.name == cell)


def test_a_measured_cell_is_known_to_the_next_call(tmp_path):
    group, cell = group_and_cell()
    Records(tmp_path).add(group, cell, {"p50_ms": 1.5, "period_ms": 10}, [1.5, 2.5])
    again = Records(tmp_path)
    assert again.has(group, cell) and again.base_ms(PAIR) == pytest.approx(1.5)
    assert [file.read_text() for file in (tmp_path / "samples").iterdir()] == ["1.5\n2.5\n"]


def test_a_cell_that_failed_is_measured_again(tmp_path):
    group, cell = group_and_cell()
    records = Records(tmp_path)
    records.add(group, cell, {"error": "it\nfell"})
    assert not Records(tmp_path).has(group, cell)
    assert Records(tmp_path).errors[0]["error"] == "it fell"
    records.add(group, cell, {"p50_ms": 1})
    assert Records(tmp_path).has(group, cell) and not Records(tmp_path).errors


def test_a_row_that_was_cut_off_is_measured_again_and_the_next_is_whole(tmp_path):
    group, cell = group_and_cell()
    records = Records(tmp_path)
    records.add(group, cell, {"p50_ms": 1})
    whole = records.file.read_bytes()
    records.file.write_bytes(whole[:-20])
    again = Records(tmp_path)
    assert not again.has(group, cell)
    again.add(group, cell, {"p50_ms": 2})
    assert Records(tmp_path).rows[0]["p50_ms"] == "2"


def test_a_csv_of_other_columns_is_refused(tmp_path):
    (tmp_path / "pairs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CommandError, match="other columns"):
        Records(tmp_path)


# Table and picture

def test_the_table_shows_ratios_and_the_range_over_repeats():
    rows = time_sliced() + [critical_row("alone", 2.0, 4.0, 0.15, "", repeat=2),
                            row("be-alone", be_jobs_per_s=10, repeat=2),
                            critical_row("event:1", 2.4, 6.0, 0.17, 9.0, repeat=2)]
    text = table(rows, [], summary(rows))
    assert "| `event:1` | 500 | 1.750 [1.100-2.400] | 1.150 [1.100-1.200] |" in text
    assert "85.0% [80.0%-90.0%]" in text
    assert "| `be-alone` | - | - | - | - | - | 100.0% [100.0%-100.0%] | - |" in text


def test_the_maximum_and_dropped_jobs_are_marked():
    rows = time_sliced() + [critical_row("none", 3, 9, 0.5, 7) | {"p99_is_max": "1", "dropped": "4"}]
    text = table(rows, [row("gate", error="it fell")], summary(rows))
    assert "| `none` † 4 | 500 | 3.000 | 3.000 | 9.000* | 4.500 |" in text
    assert "`gate`: it fell" in text


def test_goals_met_and_not_met():
    met = {goal["goal"][:14]: goal["met"] for goal in goals(PAIR, summary(time_sliced()))}
    assert met == {"with 2 ms noti": True, "without notice": True, "no other polic": True,
                   "best effort al": True}
    slow = {goal["goal"][:14]: goal["met"] for goal in goals(PAIR, summary(time_sliced(8.0)))}
    assert slow["with 2 ms noti"] is False


def test_a_policy_that_is_better_on_both_axes_is_named():
    rows = time_sliced() + [critical_row("event:2", 1.03, 2.6, 0.16, 8.4)]
    (found,) = [goal for goal in goals(PAIR, summary(rows)) if "both axes" in goal["goal"]]
    assert found["met"] is False and "event:2 (time-sliced, p50)" in found["seen"]
    assert "p99" not in found["seen"]


def test_the_picture_has_a_point_per_policy(tmp_path):
    entries = summary(time_sliced() + [critical_row("priority", 3.0, 4.0, 0.3, 9)])
    assert [point[1] for point in picture.points(entries)] == [
        "device:200us", "device:200us+notice", "event:1", "priority"]
    assert picture.points(entries)[0][2:] == (pytest.approx(82), pytest.approx(1.04),
                                              pytest.approx(1.2))
    png, svg = picture.draw(entries, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG") and b"<svg" in svg.read_bytes()


def test_the_table_is_drawn_again_without_a_gpu(tmp_path, capsys):
    records = Records(tmp_path)
    group, cell = group_and_cell()
    records.add(group, cell, {"p50_ms": 1, "p99_ms": 2, "n": 500, "date": "2026-11-21"})
    assert cli.main(["--table", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["p50_ms"] == [1.0]
    assert (tmp_path / "pairs.md").exists()
    assert cli.main(["--table", str(tmp_path / "nowhere")]) == 2


def test_wrong_names_are_usage_errors(capsys):
    for wrong in (["--pairs", "bert"], ["--policies", "fast"], ["--modes", "both"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(wrong)
        assert ended.value.code == 2
    assert "is none of" in capsys.readouterr().err


def test_sitting_knows_every_critical_model():
    assert set(sitting._ABOUT_MS) == set(plan.CRITICAL)
