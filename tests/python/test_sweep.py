"""`sluice sweep`: what is run, which value is best, and the delay model on figures made by it."""

import json
import re
import sys

import numpy as np
import pytest
from report_runs import MS, traced_pair
from sluice_tools.common.errors import CommandError
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.sweep import cli, delay, figures, objective, outcome, plan
from trace_files import TraceFile

EXPERIMENT = {
    "models": [
        {
            "model_name": "big",
            "output_file_name": "model_A",
            "priority": 0,
            "recording": "t",
            "control": {"control": True, "controlsync": True, "queue_limit": {"sync": 1}},
        },
        {
            "model_name": "small",
            "output_file_name": "model_B",
            "priority": 1,
            "recording": "t",
            "control": {"control": True},
        },
    ],
    "exp_dur": 5,
}


def test_values():
    assert plan.values(["sync:{1,2, 10}"]) == ["sync:1", "sync:2", "sync:10"]
    assert plan.values(["device:{50,200}us"]) == ["device:50us", "device:200us"]
    assert plan.values(["device:{50,200}us,ahead:2ms"]) == ["device:50us,ahead:2ms", "device:200us,ahead:2ms"]
    # bash makes words of braces that are not quoted.
    assert plan.values(["sync:1", "sync:2", "gate"]) == ["sync:1", "sync:2", "gate"]
    for wrong in ("sync:{}", "sync:0", "sink:1", "sync:{1,x}", "sync", "sync:2us", "device:2ms"):
        with pytest.raises(CommandError):
            plan.values([wrong])


def test_the_cells_change_one_model_only():
    cells = dict(plan.cells(EXPERIMENT, "model_A", "model_B", ["sync:4"]))
    assert list(cells) == ["alone", "best effort alone", "sync:4"]
    assert [m["output_file_name"] for m in cells["alone"]["models"]] == ["model_B"]
    assert [m["output_file_name"] for m in cells["best effort alone"]["models"]] == ["model_A"]
    assert cells["alone"]["models"][0]["control"] == {"control": False}
    low, high = cells["sync:4"]["models"]
    assert low["control"] == {"control": True, "policy": "sync:4"}
    assert high == EXPERIMENT["models"][1]


@pytest.mark.parametrize("name", ["model_A", "A", "big"])
def test_the_model_is_found(name):
    assert plan.pick(EXPERIMENT, name)["output_file_name"] == "model_A"


def test_a_sweep_that_could_show_nothing_is_refused():
    """Of the model of the highest priority: no policy of it holds anything back."""
    with pytest.raises(CommandError):
        plan.critical(EXPERIMENT, plan.pick(EXPERIMENT, "B"))
    with pytest.raises(CommandError):
        plan.pick(EXPERIMENT, "C")


def words(p50, slowdown):
    return {"p50": p50, "p99": 2.0, "mean": p50, "slowdown": slowdown}


def test_the_best_value():
    found = {"sync:1": words(1.05, 1.3), "sync:2": words(1.15, 1.2), "sync:8": words(1.5, 1.1)}
    assert objective.best(found, objective.parse(objective.DEFAULT)) == ("sync:2", True)
    assert objective.best(found, objective.parse("p50 with slowdown <= 1.25")) == ("sync:2", True)
    assert objective.best(found, objective.parse("p50")) == ("sync:1", True)
    assert objective.best(found, objective.parse("slowdown with p50 <= 1.0")) == ("sync:1", False)
    assert objective.best({}, objective.parse("p50")) == (None, False)


@pytest.mark.parametrize("text", ["", "speed", "slowdown with p50 < 1", "p50 with kept <= 1", "p50 with "])
def test_an_objective_that_is_none(text):
    with pytest.raises(CommandError):
        objective.parse(text)


def test_the_fits_find_what_the_figures_were_made_of():
    n = np.array([1, 2, 4, 8, 100])
    assert delay.execution_fit(n, 6 / n + 0.5) == pytest.approx((6, 0.5))
    assert delay.fitted_depth(n, np.minimum(n, 6) * 0.1, 0.1) == pytest.approx(6, rel=0.01)
    assert delay.error_percent([1.1, 0.9], [1, 1]) == pytest.approx(10)


def test_what_is_queued_comes_from_the_trace(tmp_path):
    """Two launches of A are not done when the slow job of B begins, and none at any other."""
    found = delay.measured_queue(traced_pair(tmp_path), "A", "B")
    # Its first job begins before A's first launch, so nothing is known of it.
    assert sorted(found.depths) == [0] * 8 + [2]
    assert found.delay_ms([1])[0] == pytest.approx(found.kernel_ms / 9)
    assert found.delay_ms([100])[0] == pytest.approx(2 * found.kernel_ms / 9)


def test_a_trace_without_executions_gives_no_queue(tmp_path):
    traced_pair(tmp_path)
    bare = TraceFile(100, 0, "gate", exec_source=0)
    bare.launch(0, MS)
    bare.write(tmp_path / "trace")
    assert delay.measured_queue(tmp_path, "A", "B") is None


def rows(policies, jobs=100):
    """B: 1 ms alone, + 0.1 ms for each of min(N, 5); A: 10 ms alone, + 4 ms / N."""

    def row(cell, role, mean, repeat):
        return {
            "subject": "A",
            "mode": "",
            "cell": cell,
            "role": role,
            "repeat": str(repeat),
            "note": "",
            "jobs": str(jobs),
            "per_s": str(1000 / mean),
            "unit": "jobs",
            **{f"{name}_ms": str(mean) for name in ("mean", "p50", "p99")},
        }

    for repeat in (1, 2):
        yield row("best effort alone", BEST_EFFORT, 10, repeat)
        yield row("alone", CRITICAL, 1, repeat)
        for policy in policies:
            n = plan.policy(policy).number or 1000
            yield row(policy, BEST_EFFORT, 10 + 4 / n + 0.001 * repeat, repeat)
            yield row(policy, CRITICAL, 1 + 0.1 * min(n, 5), repeat)


def test_the_outcome():
    policies = ["sync:1", "sync:2", "sync:4", "sync:10", "gate"]
    queue = delay.Queue(np.array([5, 5]), 0.1)
    found = outcome.judge(list(rows(policies)), "A", "B", policies, objective.parse(objective.DEFAULT), queue)
    assert (found.best, found.kept) == ("sync:2", True)
    assert found.errors == pytest.approx((0, 0), abs=0.01)
    assert found.execution[0] == pytest.approx(4)
    assert "gate" not in found.predicted
    text = outcome.markdown(found, "kind")
    assert "| sync:2 | 100 | 1.200 [1.200-1.200] | 1.20 |" in text
    assert "Best for 'slowdown with p50 <= 1.2': sync:2" in text
    assert "off by 0.0 %" in text


def test_no_value_is_named_best_from_a_few_jobs():
    policies = ["sync:1", "sync:2", "sync:4"]
    found = outcome.judge(list(rows(policies, jobs=1)), "A", "B", policies, objective.parse(objective.DEFAULT), None)
    assert found.answer().startswith("No value is named best: a cell has 1 job of a model")
    (chart,) = figures.inflation(found, "")
    assert chart.upright == [], "a winner is drawn that the text denies"
    assert outcome.following(found) == ["enough jobs for an answer: the same command with a longer `--duration`"]


def test_no_dominated_value_is_named_best():
    words = {"sync:1": (1.1, 1.5), "sync:2": (1.1, 1.5), "sync:4": (1.0, 1.5)}
    found = {policy: {"p50": p50, "p99": 2, "mean": p50, "slowdown": slow} for policy, (p50, slow) in words.items()}
    assert objective.best(found, objective.parse("slowdown")) == ("sync:4", True)
    assert objective.best(found, objective.parse("slowdown with p99 <= 1.5")) == ("sync:4", False)


@pytest.mark.parametrize("off", [1, 30])
def test_the_charts_cut_nothing(off):
    """A prediction far off, a bar, and the limit of the objective are all inside."""
    policies = ["sync:1", "sync:2", "sync:4", "sync:10"]
    queue = delay.Queue(np.array([5 * off, 5 * off]), 0.1 * off)
    found = outcome.judge(list(rows(policies)), "A", "B", policies, objective.parse("slowdown with p50 <= 3"), queue)
    charts = [*figures.inflation(found, ""), *figures.delays(found, "")]
    assert len(charts) == 3
    assert charts[0].upright == [(plan.policy(found.best).number, found.best)]
    for chart in charts:
        places = [
            (float(x), float(y))
            for points in re.findall(r'points="([^"]+)"', chart.html())
            for x, _, y in (point.partition(",") for point in points.split())
        ]
        places += [(72, float(y)) for y in re.findall(r'(?:cy|y1|y2)="([0-9.-]+)"', chart.html())]
        assert len(places) > 8
        assert all(72 <= x <= 604 and 28 <= y <= 334.05 for x, y in places), places


def test_a_cell_in_which_no_job_ended(tmp_path):
    policies = ["sync:1", "sync:2", "sync:4"]
    some = [
        row
        | (
            {"p50_ms": "", "mean_ms": "", "p99_ms": "", "jobs": "0"}
            if (row["cell"], row["role"]) == ("sync:2", CRITICAL)
            else {}
        )
        for row in rows(policies)
    ]
    found = outcome.judge(some, "A", "B", policies, objective.parse(objective.DEFAULT), None)
    assert (found.best, found.errors) == (None, None)
    assert "| sync:2 | 0 | - | - |" in outcome.markdown(found, "kind")


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    """The command with a `sluice run` that takes no time; `runs` holds a line for each run."""
    log = tmp_path / "runs"
    script = tmp_path / "sluice"
    script.write_text(f"""#!{sys.executable}
import json, os, sys
if sys.argv[1] == "gpus": sys.exit("sluice gpus: no NVIDIA driver")
content = json.load(open("experiment.json"))
open({str(log)!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
low = content["models"][0].get("control", {{}}).get("policy", "")
if low == "sync:666": sys.exit(1)
models = [{{"log": m["output_file_name"], "model": m["model_name"], "pid": i, "jobs": 3, "priority": i,
           "policy": "gate", "mean_ms": 2.0, "p50_ms": 2.0, "p99_ms": 2.5, "throughput_per_s": 9.0,
           "collided": None, "uncollided": None, "on_cpu": False,
           "log_file": m["output_file_name"] + ".log"}} for i, m in enumerate(content["models"])]
for model in models:
    open(model["log"] + ".csv", "w").write("jct_ms\\n" + "9.0\\n" + "2.0\\n" * 30)
json.dump({{"models": models, "simulated": True, "time_scale": 10, "real_duration_s": 5,
           "gpu": {{"name": os.environ.get("STAND_IN_GPU", "Some GPU")}}}}, open("results.json", "w"))
""")
    script.chmod(0o755)
    monkeypatch.setenv("SLUICE_PROGRAM", str(script))
    (tmp_path / "exp.json").write_text(json.dumps(EXPERIMENT))

    def call(*args):
        monkeypatch.setattr(
            sys,
            "argv",
            ["sluice-sweep", str(tmp_path / "exp.json"), "--model", "A", "--out", str(tmp_path / "out"), *args],
        )
        capsys.readouterr()
        log.write_text("")
        try:
            code = cli.main()
        except SystemExit as usage:
            code = usage.code
        return code, capsys.readouterr(), log.read_text().splitlines()

    call.folder = tmp_path
    return call


def test_a_sweep_goes_on_where_it_was_stopped(sweep):
    code, said, runs = sweep("--policy", "sync:{1,2}")
    assert (code, len(runs)) == (0, 5), said.err  # two alone, two values, one traced
    assert "--trace" in runs[-1]
    assert "--duration 5" in runs[0]
    code, said, runs = sweep("--policy", "sync:{1,2,4}", "--repeats", "1")
    assert (code, len(runs)) == (0, 1), said.err
    page = (sweep.folder / "out" / "sweep.html").read_text()
    assert "Simulated GPU" in page
    assert "| sync:4 |" in (sweep.folder / "out" / "sweep.md").read_text()


def test_another_experiment_needs_another_folder(sweep):
    assert sweep("--policy", "sync:1")[0] == 0
    (sweep.folder / "exp.json").write_text(json.dumps(EXPERIMENT | {"exp_dur": 6}))
    code, said, runs = sweep("--policy", "sync:1")
    assert (code, runs) == (2, [])
    assert "another experiment" in said.err


def test_another_gpu_needs_another_folder(sweep, monkeypatch):
    """The best value would be that of the faster GPU."""
    assert sweep("--policy", "sync:1")[0] == 0
    before = (sweep.folder / "out" / "sweep.csv").read_text()
    monkeypatch.setenv("STAND_IN_GPU", "Another GPU")
    code, said, runs = sweep("--policy", "sync:{1,2,4}")
    assert (code, len(runs)) == (2, 1)
    assert said.err.splitlines()[-1].startswith("sluice sweep: this run was on Another GPU, those of ")
    assert (sweep.folder / "out" / "sweep.csv").read_text() == before
    assert sweep("--policy", "sync:1")[0] == 0, "nothing is left to measure"


def test_a_run_that_fails_does_not_end_the_sweep(sweep):
    code, said, _ = sweep("--policy", "sync:{1,666,2}")
    assert code == 1
    assert "sync:666: sluice run exited with 1" in said.err
    text = (sweep.folder / "out" / "sweep.md").read_text()
    assert "Not measured: sync:666" in text
    assert "| sync:2 | 30 | 2.000 |" in text


@pytest.mark.parametrize(
    "args",
    [
        ("--policy", "sink:1"),
        ("--policy", "sync:1", "--objective", "speed"),
        ("--policy", "sync:1", "--repeats", "0"),
        ("--policy", "sync:1", "--duration", "0"),
        ("--policy", "sync:1", "--model", "C"),
    ],
)
def test_wrong_usage_runs_nothing(sweep, args):
    code, said, runs = sweep(*args)
    assert (code, runs) == (2, [])
    assert len(said.err.strip().splitlines()) == 1


def test_a_missing_gpu_is_said_once(sweep):
    """Not by every run of the sweep."""
    code, said, runs = sweep("--policy", "sync:{1,2}", "--gpu", "real")
    assert (code, runs) == (1, [])
    assert said.err == (
        "sluice sweep: no NVIDIA GPU can be used: no NVIDIA driver; --gpu sim takes the simulated one\n"
    )
