"""`sluice report` of runs with targets: shares and limits known in advance, and jobs that began with open gates."""

import csv
import json
import sys

import pytest
from report_runs import MS, pair, write_run
from sluice_tools.report import activity, answer, cli, runs, targets, waiting
from sluice_tools.trace import format as fmt
from trace_files import BEGIN_NS, TraceFile

_TARGET = {"target": "p99=1.5x", "state": "kept", "limit_ms": 2.0, "alone_ms": 1.3333, "open_share": 0.63}


def run_with_target(folder, **target):
    """B, critical, with a target: ten jobs of 1.1 ms, the fourth of 3.1 ms. A has 50 jobs a second."""
    critical = [(100 * i, 3.1 if i == 3 else 1.1) for i in range(10)]
    low = {"log": "A", "jobs": [(20 * i, 20.0) for i in range(50)]}
    return write_run(folder, [low, {"log": "B", "priority": 1, "jobs": critical, "target": _TARGET | target}])


def trace(folder, closed_ms: float | None):
    """Gates close in each job when it begins; in the fourth `closed_ms` after its begin, or never. In it A's
    `running` runs from 0.5 to 1.4 ms, then `queued` to 1.9 and `later` to 2.0, launched at 0.2, 1.0 and 1.3 ms."""
    low, high = TraceFile(100, 0, "gate"), TraceFile(101, 1, "gate")
    for number in range(10):
        begin, end = number * 100 * MS, number * 100 * MS + int((3.1 if number == 3 else 1.1) * MS)
        if number != 3:
            high.job(begin, end, number + 1, began=begin)
            high.kernel(begin, begin + int(0.05 * MS), begin + int(1.05 * MS), "mine")
            continue
        if closed_ms is not None:
            high.job(begin + int(closed_ms * MS), end, number + 1, began=begin)
        else:  # as the interposer writes it: the begin shortly before the end
            high.record(fmt.JOB_BEGIN, 1, 0, end - 2000, end - 2000, number + 1)
            high.record(fmt.JOB_END, 0, 0, end, end, number + 1, a=BEGIN_NS + begin)
        high.kernel(begin + int(0.1 * MS), begin + 2 * MS, begin + 3 * MS, "mine")
        for name, *times in (("running", 0.2, 0.5, 1.4), ("queued", 1.0, 1.4, 1.9), ("later", 1.3, 1.9, 2.0)):
            issue, start, stop = (begin + int(ms * MS) for ms in times)
            low.kernel(issue, start, stop, name)
    low.write(folder / "trace")
    high.write(folder / "trace")


def read(folder):
    run = runs.read_run(folder, "run")
    run.trace = activity.read(run.folder, run.models, run.notes)
    return run


@pytest.fixture
def report(monkeypatch, capsys):
    def call(*args):
        """The one line of JSON."""
        monkeypatch.setattr(sys, "argv", ["sluice-report", *map(str, args), "--json"])
        assert cli.main() == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_a_kernel_is_judged_by_when_the_gates_closed_not_by_when_the_job_began(tmp_path):
    """With a target best effort may launch after the begin of a job: nothing held it, so nothing failed."""
    folder = run_with_target(tmp_path)
    trace(folder, 1.2)
    text = answer.explain(read(folder)).line()
    assert (
        "The gates were open until 1.20 ms after its begin, because of its target p99=1.5x (2.00 ms); "
        "it was 1.10 ms late." in text
    )
    assert (
        "A's `running` for 0.90 ms, which had started before the gate closed; and `queued` for 0.50 ms, launched "
        "before the gate closed; and `later` for 0.10 ms, launched while the gate was closed." in text
    )


def test_gates_that_never_closed_are_not_called_closed(tmp_path):
    folder = run_with_target(tmp_path, limit_ms=4.0)
    trace(folder, None)
    run = read(folder)
    text = answer.explain(run).line()
    assert "The gates were open until it ended, because of its target p99=1.5x (4.00 ms); it was in time." in text
    assert "A's 3 kernels for 1.50 ms, the longest `running` (0.90 ms), which ran while the gate was open." in text
    low = next(client for client in run.trace if client.label == "A")
    begin = BEGIN_NS + 300 * MS
    assert not len(low.closed.within(begin, begin + 10 * MS)) and len(low.closed) == 9


def test_the_gate_track_begins_when_the_gates_closed(tmp_path):
    folder = run_with_target(tmp_path)
    trace(folder, 1.2)
    run = read(folder)
    low = next(client for client in run.trace if client.label == "A")
    assert int(low.closed.begin[3]) == BEGIN_NS + int(301.2 * MS)
    assert int(low.closed.end[3]) == BEGIN_NS + int(303.1 * MS)


def test_a_job_that_closed_the_gates_at_its_begin_is_not_called_open(tmp_path):
    folder = run_with_target(tmp_path)
    trace(folder, 0)
    text = answer.explain(read(folder)).line()
    assert "gates were open" not in text
    assert "3 kernels for 1.50 ms, the longest `running` (0.90 ms), launched while the gate was closed." in text


def test_of_an_announced_job_the_gates_close_before_it_begins(tmp_path):
    """What started between the closing and the begin is not excused as having run before."""
    low, high = TraceFile(100, 0, "gate"), TraceFile(101, 1, "gate")
    high.job(MS, 4 * MS, 1, began=2 * MS)
    high.kernel(2 * MS, 3 * MS, 4 * MS, "mine")
    low.kernel(int(1.2 * MS), int(1.5 * MS), 3 * MS, "slipped_through")
    for one in (low, high):
        one.write(tmp_path / "trace")
    clients = {client.pid: client for client in activity.read(tmp_path, [], [])}
    closed = int(clients[101].jobs["closed"][0])
    assert closed == BEGIN_NS + MS
    found = waiting.break_down(BEGIN_NS + 2 * MS, BEGIN_NS + 4 * MS, clients[101], [clients[100]], closed)
    assert [when for _, when in found.kernels] == ["later"]


def test_how_many_jobs_kept_the_target_and_what_best_effort_got(tmp_path, report):
    folder = run_with_target(tmp_path / "run")
    alone = write_run(tmp_path / "alone", [{"log": "A", "jobs": [(10 * i, 10.0) for i in range(50)]}])
    (run,) = report(folder, "--alone", alone, "--csv", tmp_path / "table.csv")["runs"]
    assert run["answer"].endswith(
        "B has the target p99=1.5x (2.00 ms): 90 % of its 10 jobs were in time; the gates were open for 63 % of "
        "their time. Next to it, A did 50 jobs/s (50 % of alone)."
    )
    model = run["models"][0]
    assert (model["target"], model["target_state"], model["limit_ms"]) == ("p99=1.5x", "kept", 2.0)
    assert (model["in_time"], model["gates_open"]) == (0.9, 0.63)
    assert run["models"][1]["target"] is None
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert (rows[0]["target"], rows[0]["in_time"], rows[1]["target"]) == ("p99=1.5x", "0.9", "")
    page = (folder / "report.html").read_text()
    assert "<h2>Targets</h2>" in page and "<td>can be kept</td>" in page
    assert page.count(">target p99=1.5x</text>") == 2  # over time, and in the CDF


def test_lateness_is_in_the_simulated_gpus_time():
    target = targets.Target("p99=2ms", "kept", 2.0)
    found = targets.open_gates((0, 19 * MS, 12 * MS), target, 10.0)
    assert found == [
        "The gates were open until 1.20 ms after its begin, because of its target p99=2ms; it was in time."
    ]
    assert targets.open_gates((0, 19 * MS, 12 * MS), None, 10.0) == [
        "The gates were open until 1.20 ms after its begin, because of its target."
    ]


def test_what_is_above_a_model_with_a_target_is_not_best_effort(tmp_path, report):
    models = [
        {"log": log, "priority": priority, "jobs": [(i, 1.0) for i in range(10)]}
        for log, priority in (("top", 2), ("middle", 1), ("low", 0))
    ]
    models[1]["target"] = _TARGET
    answer_text = report(write_run(tmp_path, models))["runs"][0]["answer"]
    assert "Next to it, low did" in answer_text and "top did" not in answer_text


@pytest.mark.parametrize(
    "target, said",
    [
        ({"state": "learning", "limit_ms": None}, "p99=1.5x; Sluice was still learning how long its jobs take alone"),
        ({"state": "missed"}, "it cannot be kept (its jobs take 1.33 ms alone), so the gates close at once"),
        ({"state": None, "limit_ms": None, "open_share": None}, "B has the target p99=1.5x. Next to it"),
    ],
)
def test_a_target_that_is_not_in_force_is_said(tmp_path, report, target, said):
    assert said in report(run_with_target(tmp_path, **target))["runs"][0]["answer"]


def test_without_a_target_none_is_shown(tmp_path, report):
    report(pair(tmp_path))
    assert "Targets</h2>" not in (tmp_path / "report.html").read_text()


def test_only_all_jobs_are_100_percent():
    assert [targets.percent(share) for share in (1.0, 0.99999, 0.994, 0.5)] == ["100 %", "99.9 %", "99.4 %", "50 %"]
