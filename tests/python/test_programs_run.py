"""`sluice bench programs` as it runs: its programs, sessions and daemons, replaced by stand-ins."""

import json
import os
from pathlib import Path

import pytest
from conftest import PACKAGE
from pairs_stand_ins import StandIns
from sluice_tools.bench.pairs import talker
from sluice_tools.bench.programs import cli, plan, stage, starting, workers
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.measure import programs
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows

MIX = "vit-graph+prefill"


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    stand_ins = StandIns(tmp_path / "stand-ins")
    monkeypatch.setenv("SLUICE_PROGRAM", str(stand_ins.sluice))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv("PATH", f"{stand_ins.folder}:{os.environ['PATH']}")
    for name in ("_SETTLE_S", "_SKIPPED_S", "_LEARNING_STEPS_S"):
        monkeypatch.setattr(stage, name, 0.05)
    monkeypatch.setattr(stage, "_LEARNING_REQUESTS", 5)
    monkeypatch.setattr(talker, "_QUIT_S", 0.5)
    monkeypatch.setattr(programs, "_END_S", 0.5)

    def run(*arguments, out=tmp_path / "out"):
        capsys.readouterr()
        stand_in = Path(__file__).parent / "programs_stand_in.py"
        given = ("--mixes", MIX, "--modes", "time-sliced", "--seconds", "0.3", "--repeats", "1")
        code = cli.main([*given, "--programs", str(stand_in), "--out", str(out), *arguments])
        return code, capsys.readouterr()

    run.stand_ins, run.out = stand_ins, tmp_path / "out"
    return run


def rows_of(bench) -> Rows:
    return Rows(bench.out / "programs.csv", FIELDS)


def measured(bench) -> list:
    return [(row["cell"], row["repeat"], row["client"]) for row in rows_of(bench).rows]


def gone(pids) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_mix_is_measured_and_not_measured_again(bench):
    code, said = bench("--targets", "p99=50ms", "--repeats", "2")
    assert code == 0, said.err
    together = [(cell, client) for cell in ("bare", "device:200us", "target p99=50ms") for client in MIX.split("+")]
    assert measured(bench) == [
        ("alone", "1", "vit-graph"),
        ("best effort alone", "1", "prefill"),
        *((cell, "1", client) for cell, client in together),
        *((cell, "2", client) for cell, client in together),
    ]
    rows = {(row["cell"], row["role"]): row for row in rows_of(bench).rows}
    assert float(rows["alone", CRITICAL]["p50_ms"]) >= 1 and int(rows["bare", CRITICAL]["jobs"]) > 10
    assert 50 < float(rows["best effort alone", BEST_EFFORT]["per_s"]) < 500
    # Only what runs under Sluice is counted by it.
    assert rows["bare", BEST_EFFORT]["launches"] == ""
    assert int(rows["device:200us", BEST_EFFORT]["launches"]) > 0
    assert rows["device:200us", CRITICAL]["priority"] == "1" and rows["device:200us", CRITICAL]["gpu"] == "stand-in"
    # The best-effort program is the same process with and without a target.
    pids = bench.stand_ins.client_pids()
    assert len(pids) == 3 and gone(pids)
    assert "of 1 are nowhere worse" in said.out and "equal to the bit in 1 of 1" in said.out
    assert bench("--targets", "p99=50ms", "--repeats", "2")[0] == 0
    assert bench.stand_ins.client_pids() == pids


def test_only_what_is_missing_is_loaded(bench):
    assert bench()[0] == 0
    assert len(bench.stand_ins.client_pids()) == 2
    lines = (bench.out / "programs.csv").read_text().splitlines()
    kept = [line for line in lines if ",device:200us,1," not in line]
    (bench.out / "programs.csv").write_text("\n".join(kept) + "\n")
    code, said = bench()
    assert code == 0 and "3 of 4 cells are measured already" in said.err
    assert len(bench.stand_ins.client_pids()) == 4 and "device:200us" in {cell for cell, _, _ in measured(bench)}


@pytest.mark.parametrize("fault, says", [("DIES", "ended before"), ("LACKS", "No module named 'gone'")])
def test_a_program_that_fails_is_a_line_in_the_table(bench, monkeypatch, fault, says):
    monkeypatch.setenv(f"STAND_IN_{fault}", "jax-gradient")
    code, said = bench("--mixes", f"resnet50+jax-gradient,{MIX}", "--targets", "none")
    assert code == 1
    (line,) = [line for line in said.out.splitlines() if line.startswith("Not measured")]
    assert "jax-gradient" in line and says in line
    assert {row["subject"] for row in rows_of(bench).rows if row["cell"] == "bare"} == {MIX}
    log = (bench.out / "jax-gradient.log").read_text()
    assert ("out of memory" if fault == "DIES" else "ModuleNotFoundError") in log
    assert gone(bench.stand_ins.client_pids())


def test_a_program_that_hangs_ends_at_the_limit(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_HANGS", "prefill")
    monkeypatch.setattr(starting, "ANSWER_S", 1)
    code, said = bench("--targets", "none")
    assert code == 1 and "prefill: no 'running' in 1 s" in said.out
    assert [cell for cell, _, _ in measured(bench)] == ["alone"]
    assert gone(bench.stand_ins.client_pids())


def test_other_outputs_are_found(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_WRONG", "vit-graph")
    _, said = bench("--targets", "none")
    assert "OUTPUTS DIFFER in device:200us" in said.out and "equal to the bit in 0 of 1" in said.out


def test_three_priorities_and_two_best_effort_programs(bench):
    code, said = bench("--mixes", "vit-graph+resnet50+prefill+cupy-arrays")
    assert code == 0, said.err
    rows = [row for row in rows_of(bench).rows if row["cell"] == "device:200us"]
    assert {row["client"]: (row["role"], row["priority"]) for row in rows} == {
        "vit-graph": (CRITICAL, "2"),
        "resnet50": ("middle", "1"),
        "prefill": (BEST_EFFORT, "0"),
        "cupy-arrays": (BEST_EFFORT, "0"),
    }
    assert "resnet50 p50" in said.out


def test_under_mps_best_effort_has_the_lower_priority(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_NOTES", str(notes := tmp_path / "notes.txt"))
    code, said = bench("--modes", "MPS + priority", "--targets", "p90=2x")
    assert code == 0, said.err
    # Bare, under the default, and the critical program once more with its target.
    assert sorted(notes.read_text().splitlines()) == [
        *["prefill 1 -"] * 2, "vit-graph 0 -", "vit-graph 0 -", "vit-graph 0 p90=2x"
    ]  # fmt: skip
    assert {row["mode"] for row in rows_of(bench).rows} == {"MPS + priority"}
    assert len(bench.stand_ins.daemon_pids()) == 1 and gone(bench.stand_ins.daemon_pids())


def test_workers_measure_into_one_file(bench, monkeypatch):
    monkeypatch.setattr(cli, "gpus", lambda *_: {"devices": [{"name": "stand-in", "uuid": "GPU-0"}]})
    code, said = bench("--mixes", f"{MIX},vit-graph+cupy-arrays", "--gpus", "2", "--targets", "none", "--gpu", "sim")
    assert code == 0, said.err
    assert {row["subject"] for row in rows_of(bench).rows} == {MIX, "vit-graph+cupy-arrays"}
    assert len(rows_of(bench).rows) == 12 and "of 2 are nowhere worse" in said.out


def test_the_mixes_are_spread_evenly():
    sizes = [len(part) for part in workers.parts(list(plan.MIXES), 5)]
    assert sum(sizes) == len(plan.MIXES) and max(sizes) - min(sizes) <= 1
    assert workers.parts([1], 3) == [[1]]


def test_smoke_says_of_each_program_whether_it_works(bench, monkeypatch):
    monkeypatch.setattr("sluice_tools.bench.programs.smoke._SECONDS", 0.1)
    monkeypatch.setattr("sluice_tools.bench.programs.smoke._AT_ONCE", 15)
    monkeypatch.setenv("STAND_IN_LACKS", "gpt2")
    code, said = bench("--smoke")
    lines = {line.split()[0]: line for line in said.out.splitlines()}
    assert code == 1 and set(plan.PROGRAMS) <= lines.keys()
    assert "FAILED: ModuleNotFoundError: No module named 'gone'" in lines["gpt2"] and "gpt2.log" in lines["gpt2"]
    assert "p50" in lines["decode"] and "steps/s" in lines["prefill"]
    assert f"{len(plan.PROGRAMS) - 1} of {len(plan.PROGRAMS)} programs work" in said.out
    assert not (bench.out / "programs.csv").exists()


def test_the_table_is_made_again_without_a_gpu(bench, monkeypatch, capsys):
    assert bench("--targets", "none")[0] == 0
    before = (bench.out / "programs.md").read_text()
    (bench.out / "programs.md").unlink()
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere")
    assert cli.main(["--table", str(bench.out)]) == 0
    assert (bench.out / "programs.md").read_text() == before == capsys.readouterr().out.split("rows:")[0]
    assert cli.main(["--table", str(bench.out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["subject"] == MIX


# Prevents: a traceback for the CSV of a version with other programs.
def test_the_table_of_an_unknown_program(bench, capsys):
    assert bench("--targets", "none")[0] == 0
    table = bench.out / "programs.csv"
    table.write_text(table.read_text().replace("prefill", "prefill-of-tomorrow"))
    assert cli.main(["--table", str(bench.out)]) == 0
    assert "- `prefill-of-tomorrow`: not a program of this version" in capsys.readouterr().out


def test_more_gpus_than_there_are(bench):
    code, said = bench("--gpus", "2")
    assert (code, said.err) == (2, "sluice bench: --gpus: found 2, and there are 1 GPUs here\n")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--mixes", "prefill+vit-graph"], "'prefill+vit-graph': prefill serves no requests, so it cannot come first"),
        (["--mixes", "vit-graph"], "'vit-graph' does not name two or more different programs"),
        (["--mixes", "vit-graph+vit"], "'vit' is not one of"),
        (["--modes", "MPS"], "'MPS' is not one of time-sliced, MPS + priority"),
        (["--targets", "p95=50ms"], "'p95=50ms' is not about one of p50, p90, p99"),
        (["--targets", "p99=0.5x"], "'p99=0.5x' is not a target: p99=50ms"),
        (["--seconds", "0"], "--seconds must be above 0"),
        (["--repeats", "0"], "--repeats must be above 0"),
        (["--gpus", "0"], "--gpus must be above 0"),
        (["--gpus", "2", "--device", "1"], "--gpus takes the first N GPUs"),
        (["--table", "/nowhere"], "no programs.csv in /nowhere"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, says):
    try:
        code = cli.main(arguments)
    except SystemExit as ended:
        code = ended.code
    line = capsys.readouterr().err
    assert code == 2 and says in line and line.count("\n") == 1, line
