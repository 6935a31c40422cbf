"""`sluice report`: figures and answers known in advance, and folders that are not as they should be."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from report_runs import MS, pair, traced_pair, write_run
from sluice_tools.report import activity, answer, cli, figures, runs, summary, thin, timeline, waiting
from sluice_tools.trace.depth import Depth
from trace_files import BEGIN_NS, TraceFile


@pytest.fixture
def report(monkeypatch, capsys):
    def call(*args):
        """Exit code, standard output, standard error."""
        monkeypatch.setattr(sys, "argv", ["sluice-report", *map(str, args)])
        capsys.readouterr()
        try:
            code = cli.main()
        except SystemExit as usage:
            code = usage.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def one_line(found, code: int) -> str:
    assert found[0] == code
    assert found[1] == ""
    (line,) = found[2].strip().splitlines()
    assert line.startswith("sluice report: ")
    return line


def read(folder):
    run = runs.read_run(folder, "run")
    run.trace = activity.read(run.folder, run.models, run.notes)
    return run


def test_the_answer_names_the_kernel_that_was_waited_for(tmp_path):
    text = answer.explain(read(traced_pair(tmp_path))).line()
    assert text == (
        "Job 4 of B took 3.10 ms against a median of 1.10 ms. "
        "For 1.80 ms the GPU ran other work while its own was launched and waiting: A's `gemm<float, 4>` "
        "for 1.30 ms (of the 3.40 ms that it ran), which had started before the gate closed; and "
        "`queued_one` for 0.50 ms, launched before the gate closed. "
        "Its launching thread was held 0.10 ms by a closed gate, for a job of A."
    )


def test_the_pieces_of_a_job_add_up_to_it(tmp_path):
    """A piece counted twice, or left out, would make the answer wrong and still look right."""
    run = read(traced_pair(tmp_path))
    high, low = (next(c for c in run.trace if c.label == name) for name in "BA")
    begin = int(high.jobs.begin[3])
    found = waiting.break_down(begin, begin + int(3.1 * MS), high, [low])
    assert sum(found.ns) == found.total
    expected = {waiting.OTHER: 1.8, waiting.HELD: 0.1, waiting.OWN: 1.05, waiting.IDLE: 0.05, waiting.HOST: 0.1}
    assert {cause: ns / MS for cause, ns in enumerate(found.ns) if ns} == pytest.approx(expected)


def kernel_behind_another(folder):
    """A's kernel runs for 3 ms; B's is launched at 0 and runs next to it from 1.0 to 1.2 ms."""
    low, high = TraceFile(100, 0, "gate"), TraceFile(101, 1, "gate")
    low.kernel(-MS, 0, 3 * MS, "long_one")
    correlation = high.kernel(0, MS, int(1.2 * MS), "mine")
    return low, high, correlation


def clients_of(folder, *traces):
    for trace in traces:
        trace.write(folder / "trace")
    found = activity.read(folder, [], [])
    return {client.pid: client for client in found}


def test_the_steps_of_a_server_are_told_by_kind(tmp_path):
    trace, at = TraceFile(1, priority=1, time_scale=10.0), 0
    for number in range(200):
        took = 1_200_000_000 if number % 10 == 0 else 200_000_000
        trace.step(at, at + took, 2 if number % 10 == 0 else 1)
        at += took
    trace.job(0, at, 1).write(tmp_path / "trace")
    notes: list[str] = []
    activity.read(tmp_path, [], notes)
    told = "was not idle between its 200 steps: 90% take 20 ms (p99 20 ms), 10% take 120 ms (p99 120 ms)."
    assert any(note.endswith(told) for note in notes), notes


def test_work_that_waits_for_the_gpu_is_not_held_too(tmp_path):
    """While one thread is held, launched work of another waits for a kernel: the kernel is the cause."""
    low, high, correlation = kernel_behind_another(tmp_path)
    high.hold(int(0.2 * MS), int(0.6 * MS), correlation, 1, 100, tid=7)
    clients = clients_of(tmp_path, low, high)
    begin = BEGIN_NS
    found = waiting.break_down(begin, begin + MS, clients[101], [clients[100]])
    assert (found.ns[waiting.OTHER], found.ns[waiting.HELD]) == (MS, 0)


def test_a_kernel_that_is_waited_for_in_pieces_counts_whole(tmp_path):
    """A long job is broken down some of it at a time, and a kernel may reach over a cut."""
    clients = clients_of(tmp_path, *kernel_behind_another(tmp_path)[:2])
    own, other = clients[101], clients[100]
    later = int(0.4 * MS)
    own.holds.add(np.array([BEGIN_NS + later]), np.array([BEGIN_NS + later]), why=np.array([1]), holder=np.array([0]))
    found = waiting.break_down(BEGIN_NS, BEGIN_NS + MS, own, [other])
    (kernels,) = found.kernels.values()
    assert (kernels.count, kernels.waited_ns, kernels.longest.waited_ns) == (1, MS, MS)


def test_only_a_wait_for_a_gate_is_a_gate_wait(tmp_path):
    """A sync point and the end of an event group hold a thread as well."""
    trace = TraceFile(100, 0, "event:2")
    for why in (1, 2, 3):
        trace.hold(why * MS, why * MS + MS // 2, 1, why, 101)
    waits = activity.gate_waits(clients_of(tmp_path, trace)[100])
    assert (waits.begin - BEGIN_NS).tolist() == [MS]


def test_kernels_side_by_side_are_told_from_waiting(tmp_path):
    """Under time slices and MPS both run at once: nobody was waiting then."""
    run = read(traced_pair(tmp_path))
    high, low = (next(c for c in run.trace if c.label == name) for name in "BA")
    low.execs = high.execs
    begin = int(high.jobs.begin[3])
    found = waiting.break_down(begin, begin + int(3.1 * MS), high, [low])
    assert found.shared_with == {"A": int(1.05 * MS)}
    assert found.ns[waiting.OTHER] == found.ns[waiting.OWN] == 0


def test_sharing_is_no_delay_where_its_kernels_take_as_long_as_ever(tmp_path):
    """A neighbour stopped for a time slice has begun and not ended, and costs nothing then."""
    alone, beside = waiting.Breakdown(0, 100), waiting.Breakdown(0, 120)
    alone.ns[waiting.OWN], beside.ns[waiting.SHARED], beside.ns[waiting.HOST] = 100, 100, 20
    (text,) = waiting.sentences(beside, alone, {}, 1.0)
    assert "nothing launched" in text


def test_a_model_without_a_trace_is_named(tmp_path):
    """Else its kernels would pass for an idle GPU."""
    folder = traced_pair(tmp_path)
    assert not read(folder).notes
    (folder / "trace" / "100.sltrace").unlink()
    (note,) = read(folder).notes
    assert note.startswith("A wrote no trace")


def test_what_predictions_cost_is_said(tmp_path):
    folder = pair(tmp_path, scale=10.0)
    client = {"pid": 101, "predicted": 200, "predicted_hits": 190, "predicted_paid_ns": 800 * MS}
    (folder / "status.json").write_text(json.dumps({"clients": [client]}))
    (note,) = read(folder).notes
    assert "of B come regularly" in note and "95 % of 200" in note and "0.40 ms" in note


def test_without_a_gate_none_is_named(tmp_path):
    """Under policy none nothing closes."""
    run = read(traced_pair(tmp_path))
    next(client for client in run.trace if client.label == "A").policy = "none"
    text = answer.explain(run).line()
    assert "which had started before the job began" in text


def test_a_job_that_the_end_of_the_run_cut_off_may_have_run(tmp_path):
    """It is in no log."""
    jobs = [(0, 1.0), (150, 3.0)]
    models = [{"log": "A", "jobs": [(0, 90.0)]}, {"log": "B", "priority": 1, "jobs": jobs}]
    text = answer.explain(read(write_run(tmp_path, models))).line()
    assert "No job of A" not in text and "ends before" in text


def test_under_device_the_wait_is_of_outstanding_work(tmp_path):
    """There the thread is not held, so holds alone would show no wait at all."""
    run = read(traced_pair(tmp_path))
    low = next(client for client in run.trace if client.label == "A")
    low.policy = "device:4"
    waits = activity.gate_waits(low)
    at = int(np.argmax(waits.begin >= low.jobs.begin[0] + 300 * MS))
    assert (waits.end - waits.begin)[at] == int(1.9 * MS)


def test_against_alone(tmp_path, report):
    pair(tmp_path / "together")
    write_run(tmp_path / "alone", [{"log": "B", "priority": 1, "jobs": [(100 * i, 1.0) for i in range(10)]}])
    code, out, _ = report(tmp_path / "together", "--alone", tmp_path / "alone", "--json", "--csv", tmp_path / "t.csv")
    assert code == 0
    (run,) = json.loads(out)["runs"]
    high, low = run["models"]
    assert (high["model"], high["p50_x_alone"]) == ("B", pytest.approx(1.1))
    assert high["kept"] == pytest.approx(1, abs=0.01)
    assert (low["model"], low["p50_x_alone"], low["kept"]) == ("A", None, None)
    with (tmp_path / "t.csv").open() as text:
        rows = list(csv.DictReader(text))
    assert [row["p50_x_alone"] for row in rows] == ["1.1", ""]
    page = (tmp_path / "together" / "report.html").read_text()
    assert "<th>× alone</th>" in page and "<td class=none>-</td>" in page
    assert "Name runs of each model alone" not in page and "held s" not in page, "nobody was held"


def test_without_a_run_alone_there_are_no_empty_columns(tmp_path, report):
    pair(tmp_path / "together")
    code, _, _ = report(tmp_path / "together")
    page = (tmp_path / "together" / "report.html").read_text()
    assert code == 0 and "× alone</th>" not in page and "kept</th>" not in page
    assert "Name runs of each model alone, and × alone and kept are here, too." in page
    assert page.index("<h2>What was the slowest") < page.index("<h2>Summary</h2>") < page.index("<h2>Next</h2>")


def test_a_comparison_begins_with_the_table_and_hints_once(tmp_path, report):
    for name in ("one", "two"):
        pair(tmp_path / name)
    code, _, _ = report(tmp_path / "one", tmp_path / "two")
    page = (tmp_path / "one" / "report.html").read_text()
    assert code == 0 and page.index("<h2>Summary</h2>") < page.index("<h2>What was the slowest")
    assert page.index("<h2>Distributions</h2>") < page.index("<h2>Timeline</h2>")
    assert page.count("Only a trace tells") == 0 and page.count("sluice run EXPERIMENT --trace") == 1


def test_a_simulated_run_alone_is_no_base_for_a_real_one(tmp_path):
    pair(tmp_path / "real")
    write_run(tmp_path / "sim", [{"log": "B", "jobs": [(0, 10.0)]}], simulated=True, scale=10.0)
    real, alone = (runs.read_run(tmp_path / name, name) for name in ("real", "sim"))
    assert summary.alone_of(real.models[0], real, [alone]) is None


def test_times_of_a_simulated_run_are_the_simulated_gpus(tmp_path):
    write_run(tmp_path, [{"log": "A", "jobs": [(0, 10.0), (10, 10.0)]}], simulated=True, scale=10.0)
    run = runs.read_run(tmp_path, "run")
    (row,) = summary.rows([run], [])
    assert (row["p50_ms"], row["throughput_per_s"]) == (1.0, pytest.approx(1000))
    assert "Simulated GPU" in run.kind_text()


def test_a_folder_of_runs_stands_for_them_all(tmp_path, report):
    for name in ("none", "gate"):
        pair(tmp_path / "demo" / name)
    (tmp_path / "demo" / "results.json").write_text('{"alone": {}}')
    code, out, _ = report(tmp_path / "demo", "--json", "-o", tmp_path / "page.html")
    assert code == 0
    assert [run["run"] for run in json.loads(out)["runs"]] == ["none", "gate"]


def test_runs_of_strangers_are_not_shown_unasked(tmp_path, report):
    """Of a folder in which several people keep their runs; --out or the names say what is meant."""
    for name in ("mine", "theirs"):
        pair(tmp_path / "shared" / name)
    line = one_line(report(tmp_path / "shared"), 2)
    assert "name the runs to show" in line
    assert not list((tmp_path / "shared").glob("*.html"))
    (tmp_path / "shared" / ".lock").write_text("")
    assert report(tmp_path / "shared")[0] == 0


def test_the_trace_of_a_run_is_no_run_of_its_own(tmp_path):
    """It once was, of an unknown kind: a simulated sweep's page said that its GPU was real."""
    traced_pair(tmp_path / "sweep" / "queue")
    traced_pair(tmp_path / "sweep" / "sync-1" / "1")
    found = runs.find_runs([tmp_path / "sweep"])
    assert {folder.relative_to(tmp_path / "sweep").as_posix() for folder in found} == {"queue", "sync-1/1"}


def test_runs_of_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / "monday" / "out", tmp_path / "tuesday" / "out"]
    assert runs.labels(folders) == ["monday/out", "tuesday/out"]


def test_no_run(tmp_path, report):
    (tmp_path / "empty").mkdir()
    assert "neither results.json" in one_line(report(tmp_path / "empty"), 2)
    assert "is not a folder" in one_line(report(tmp_path / "missing"), 2)
    (tmp_path / "empty" / "results.json").write_text('{"models": [')
    assert "neither results.json" in one_line(report(tmp_path / "empty"), 2)


def test_a_trace_alone_is_a_run(tmp_path, report):
    """Of programs under `sluice exec --trace`, which keep no job logs."""
    folder = traced_pair(tmp_path / "run") / "trace"
    code, out, _ = report(folder, "--json")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert [(m["priority"], m["jobs"]) for m in run["models"]] == [(1, 10), (0, 1)]
    assert "gemm<float, 4>` for 1.30 ms" in run["answer"]
    assert run["kind"] == "traced"


def test_a_page_that_cannot_be_written(tmp_path, report):
    pair(tmp_path / "run")
    (tmp_path / "file").write_text("")
    assert "cannot write" in one_line(report(tmp_path / "run", "-o", tmp_path / "file" / "page.html"), 1)
    (tmp_path / "folder").mkdir()
    line = one_line(report(tmp_path / "run", "-o", tmp_path / "folder"), 1)
    assert line.endswith(f"cannot write {tmp_path / 'folder'}: Is a directory")
    assert not list(tmp_path.glob("*.part"))


def test_a_killed_runner(tmp_path, report):
    """It leaves no results.json, and a line that was being written."""
    folder = pair(tmp_path / "run", results=False, simulated=True, scale=10.0)
    with (folder / "B.csv").open("a") as text:
        text.write("17950000000")
    code, out, _ = report(folder, "--json")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert run["kind"] == "simulated"
    assert [(m["model"], m["policy"], m["jobs"]) for m in run["models"]] == [("B", "gate", 10), ("A", "gate", 50)]
    assert any("results.json is missing" in note for note in run["notes"])
    assert any("no job was left out" in note for note in run["notes"])


def test_a_run_without_jobs(tmp_path, report):
    folder = write_run(tmp_path / "run", [{"log": "A", "jobs": []}])
    code, out, _ = report(folder, "--json")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert "No job ended" in " ".join(run["notes"])
    assert run["models"][0]["p50_ms"] is None


def test_a_model_without_its_log_and_one_that_died(tmp_path, report):
    folder = write_run(
        tmp_path / "run", [{"log": "A", "jobs": [], "died": "killed by signal 9"}, {"log": "B", "jobs": [(0, 1.0)]}]
    )
    (folder / "A.csv").unlink()
    code, out, _ = report(folder, "--json")
    notes = " ".join(json.loads(out)["runs"][0]["notes"])
    assert code == 0
    assert "A.csv is missing" in notes
    assert "killed by signal 9" in notes


def test_two_models_of_one_name(tmp_path, report):
    folder = write_run(
        tmp_path / "run",
        [{"log": log, "model": "resnet50", "jobs": [(0, 1.0), (5, 1.0)]} for log in ("first", "second")],
    )
    alone = write_run(tmp_path / "alone", [{"log": "other", "model": "resnet50", "jobs": [(0, 1.0)]}])
    code, out, _ = report(folder, "--alone", alone, "--json")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert "2 models are called resnet50" in " ".join(run["notes"])
    # Which of the two ran alone cannot be known.
    assert [model["p50_x_alone"] for model in run["models"]] == [None, None]


def test_a_stepped_clock_is_said(tmp_path, report):
    folder = pair(tmp_path / "run")
    lines = (folder / "B.csv").read_text().splitlines()
    for number in range(6, len(lines)):
        start, end, *rest = lines[number].split(",")
        lines[number] = ",".join([str(int(start) - 3600 * 10**9), str(int(end) - 3600 * 10**9), *rest])
    (folder / "B.csv").write_text("\n".join(lines) + "\n")
    code, out, _ = report(folder, "--json")
    (run,) = json.loads(out)["runs"]
    assert code == 0
    assert "clock was stepped about job 5 of B" in " ".join(run["notes"])
    assert run["models"][0]["p50_ms"] == pytest.approx(1.1)
    assert run["models"][0]["throughput_per_s"] is None


def test_a_trace_that_cannot_be_read_leaves_the_rest(tmp_path, report):
    folder = traced_pair(tmp_path / "run")
    (folder / "trace" / "100.sltrace").write_bytes(b"nothing of ours")
    code, out, _ = report(folder, "--json")
    assert code == 0
    assert "trace could not be read" in " ".join(json.loads(out)["runs"][0]["notes"])


def test_the_page_holds_all_it_shows(tmp_path, report):
    """A kernel's name is no element, no script runs, and nothing is fetched from anywhere."""
    folder = traced_pair(tmp_path / "run", "void evil</script><img src=http://example.com/x>(int)")
    assert report(folder)[0] == 0
    page = (folder / "report.html").read_text()
    assert "evil&lt;/script&gt;" in page and "evil</script>" not in page
    assert not re.search(r"<(link|img|iframe|script)", page)


def test_packages_are_needed_for_a_trace_only(tmp_path):
    hide = f"import sys; sys.path[:] = {sys.path}; sys.modules |= dict.fromkeys(('numpy', 'pandas'));"
    run = "from sluice_tools.report.cli import main; sys.exit(main())"

    def made(folder):
        return subprocess.run(
            [sys.executable, "-c", f"{hide} {run}", str(folder)], capture_output=True, text=True, check=False
        )

    plain = made(pair(tmp_path / "plain"))
    assert plain.returncode == 0, plain.stderr
    assert "<svg" in (tmp_path / "plain" / "report.html").read_text()
    refused = made(traced_pair(tmp_path / "traced"))
    assert refused.returncode == 2 and "has no numpy, pandas: " in refused.stderr, refused.stderr
    assert "pip install numpy pandas" in refused.stderr and refused.stderr.count("\n") == 1


def test_thinning_keeps_what_matters():
    values = np.random.default_rng(1).exponential(size=50_000).tolist()
    curve = thin.cdf(values)
    assert len(curve) <= thin.CDF_POINTS
    assert (curve[0][0], curve[-1]) == (min(values), (max(values), 1.0))
    assert next(share for x, share in curve if x >= np.percentile(values, 99)) == pytest.approx(0.99, abs=0.002)
    assert thin.cdf([2.0, 1.0]) == [(1.0, 0.5), (2.0, 1.0)]
    chosen = thin.slowest(values)
    assert len(chosen) == thin.JOB_POINTS
    assert values.index(max(values)) in chosen
    begin = np.arange(10_000) * 10
    end = begin + 5
    end[700:705] = 7100
    intervals = Depth()
    intervals.add(begin, end)
    times, level = activity.depth_curve(intervals)
    assert len(times) <= thin.DEPTH_POINTS
    assert max(level) == 6


def test_a_line_alone_is_dashed_and_runs_have_colours_of_their_own(tmp_path):
    folders = [pair(tmp_path / name) for name in ("one", "two")]
    folders.append(write_run(tmp_path / "alone", [{"log": "B", "priority": 1, "jobs": [(0, 1.0), (9, 2.0)]}]))
    one, two, alone = (runs.read_run(folder, folder.name) for folder in folders)
    of_b, of_a = figures.jct_cdfs([one, two], [alone])
    assert [(line.name, line.line) for line in of_b.series] == [
        ("one", "solid"),
        ("two", "solid"),
        ("alone (alone)", "dash"),
    ]
    assert len({line.colour for line in of_b.series}) == 3 and len(of_a.series) == 2
    assert [(point.x, point.y) for point in of_b.series[2].points] == [(1, 0), (1, 50), (2, 100)]
    assert "Thinned" not in of_b.caption and of_b.title == "CDF of JCT: B"


def test_each_job_is_a_point_at_its_start(tmp_path):
    run = runs.read_run(pair(tmp_path, simulated=True, scale=10.0), "run")
    of_b, of_a = figures.jct_over_time(run, [run], {"A": "red", "B": "blue"}, answer.explain(run))
    line, explained = of_b.series
    assert [(point.x, point.y) for point in line.points[2:4]] == [
        (0.02, pytest.approx(0.11)),
        (0.03, pytest.approx(0.31)),
    ]
    assert explained.points == [line.points[3]] and len(of_a.series) == 1 and of_a.title == "A"
    assert of_b.x.high == of_a.x.high >= 0.098, "one clock"
    assert of_b.y.high == pytest.approx(1.05 * 0.31)


def test_the_timeline_is_around_the_job(tmp_path):
    run = read(traced_pair(tmp_path))
    (chart,) = timeline.timeline(run, answer.explain(run), {"A": "red", "B": "blue"})
    assert (chart.x.low, chart.x.high) == (pytest.approx(-0.12 * 3.1), pytest.approx(1.12 * 3.1))
    assert chart.upright == [(0, "job begins"), (pytest.approx(3.1), "job ends")]
    rows = {series.name: series for series in chart.series}
    assert list(rows) == list(chart.y.rows) and list(rows)[:3] == ["B: jobs", "B: thread held", "B: launch calls"]
    first, second = rows["A: GPU"].bars
    assert first.x == (pytest.approx(-0.372), pytest.approx(1.4)) and second.x[0] == pytest.approx(1.4)
    assert first.opacity != second.opacity, "neighbours are told apart"
    assert rows["A: GPU"].colour == "red" and rows["B: GPU"].colour == "blue" and rows["B: jobs"].bars[0].opacity < 0.5


def test_bars_that_are_one_say_how_many():
    rows = timeline._Rows(0, (0, 10 * MS), 10.0)
    short = [(at, at + 1000, f"kernel {at}") for at in range(0, 4000, 2000)]
    rows.add("GPU", [[*short, (5 * MS, 6 * MS, "long")]], "red")
    rows.add("nothing", [[]], "red")
    (series,) = rows.series
    assert [bar.text for bar in series.bars] == [
        "2 short ones together, the first: kernel 0, 0.00 ms from 0.0000 ms",
        "long, 0.10 ms from 0.5000 ms",
    ]
    assert [bar.x for bar in series.bars] == [(0, pytest.approx(0.0003)), (0.5, 0.6)] and rows.names == ["GPU"]


def test_what_a_page_lacks_is_said(tmp_path, report):
    """Runs of different kinds, a run alone among others, runs without a trace."""
    traced_pair(tmp_path / "traced")
    pair(tmp_path / "mps", sharing="MPS")
    write_run(tmp_path / "single", [{"log": "B", "priority": 1, "jobs": [(0, 1.0)]}])
    code, _, _ = report(tmp_path / "traced", tmp_path / "mps", tmp_path / "single", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert code == 0 and 'class="note">These runs are of different kinds of GPU' in page
    assert "mps: no trace, so there is no gate wait" in page and "traced: no trace" not in page
    assert "single: Around" not in page, "nothing delayed a run alone"
    assert report(tmp_path / "traced")[0] == 0
    page = (tmp_path / "traced" / "report.html").read_text()
    assert "different kinds" not in page and "no trace, so" not in page and "sluice trace RUN -o" in page


def test_a_run_in_which_nobody_waited_says_so(tmp_path, report):
    trace = TraceFile(101, 1, "gate").job(0, MS, 1)
    pair(tmp_path)
    trace.kernel(0, MS // 4, MS // 2, "mine")
    trace.write(tmp_path / "trace")
    assert report(tmp_path)[0] == 0
    assert "No wait for a closed gate was recorded" in (tmp_path / "report.html").read_text()


def test_what_no_screen_tells_apart_is_one_bar():
    """A long one, a gap, and where a long one covers a short one: each on its own."""
    short = [(at, at + 1) for at in range(0, 10, 2)]
    found = thin.joined([*short, (20, 5000), (4000, 4001), (9000, 9001), (9002, 9003)], 10_000)
    assert found == [(0, 4), (5, 5), (6, 6), (7, 8)]
    assert thin.joined([], 1) == []
