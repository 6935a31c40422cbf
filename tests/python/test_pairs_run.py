"""`sluice bench pairs` as it runs: its programs, sessions and daemons, replaced by stand-ins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE
from pairs_stand_ins import StandIns
from sluice_tools.bench.pairs import cli, stage, talker
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    stand_ins = StandIns(tmp_path / "stand-ins")
    monkeypatch.setenv("SLUICE_PROGRAM", str(stand_ins.sluice))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv("PATH", f"{stand_ins.folder}:{os.environ['PATH']}")
    for name, seconds in (("_SKIPPED_S", 0.02), ("_BEST_EFFORT_ALONE_S", 0.1), ("_LEARNING_S", 0.01)):
        monkeypatch.setattr(stage, name, seconds)

    def run(*arguments):
        capsys.readouterr()
        code = cli.main(
            [
                "--programs",
                str(stand_ins.programs),
                "--jobs",
                "5",
                "--repeats",
                "1",
                "--out",
                str(tmp_path / "out"),
                *arguments,
            ]
        )
        return code, capsys.readouterr()

    run.stand_ins, run.out = stand_ins, tmp_path / "out"
    return run


def gone(pids):
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def rows_of(bench) -> Rows:
    return Rows(bench.out / "pairs.csv")


def by_cell(bench, role) -> dict:
    return {row["cell"]: row for row in rows_of(bench).rows if row["role"] == role}


def test_a_pair_is_measured_and_not_measured_again(bench):
    code, said = bench("--pairs", "bert+bert", "--modes", "time-sliced")
    assert code == 0, said.err
    assert "[3/11] bert+bert, time-sliced, best effort alone, device:200us" in said.err
    critical, best_effort = by_cell(bench, CRITICAL), by_cell(bench, BEST_EFFORT)
    assert len(critical) == 9 and critical["gate"]["jobs"] == "5" and critical["gate"]["p99_ms"] == ""
    assert float(critical["alone"]["p50_ms"]) >= 1 and "alone" not in best_effort
    assert 1 < float(best_effort["best effort alone"]["per_s"]) < 500
    assert int(best_effort["none"]["launches"]) > 0 and best_effort["none"]["gated"] != ""
    assert critical["none"]["sluice"] == "9.9" and critical["none"]["gpu"] == "stand-in"
    assert (bench.out / "pairs.html").exists()
    # In the order of the cells; three of them have `device:200us`, and programs of its own a fourth.
    assert bench.stand_ins.policies_set() == [
        "device:200us",
        "none",
        "event:1",
        "event:2",
        "gate",
        "sync:1",
        "device:200us",
    ]
    pids = bench.stand_ins.client_pids()
    assert len(pids) == 4 and gone(pids)
    assert bench("--pairs", "bert+bert", "--modes", "time-sliced")[0] == 0
    assert bench.stand_ins.client_pids() == pids


def test_a_program_that_dies_fails_its_pair_only(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_DIES", "resnet50")
    code, said = bench("--pairs", "resnet50+training,bert+bert", "--modes", "time-sliced", "--policies", "none")
    assert code == 1 and "resnet50 (critical) ended before 'measuring'" in said.err
    rows = rows_of(bench)
    assert [(row["subject"], row["cell"]) for row in rows.errors] == [("resnet50+training", "alone")]
    assert {row["subject"] for row in rows.rows} == {"bert+bert"}
    assert gone(bench.stand_ins.client_pids())


def test_a_cell_that_cannot_be_measured_leaves_the_others(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_OLD", "1")
    code, said = bench("--pairs", "bert+bert", "--modes", "time-sliced", "--policies", "announced,none")
    assert code == 1 and "no sluice_v1_job_announce" in said.err
    rows = rows_of(bench)
    assert [row["cell"] for row in rows.errors] == ["device:200us, announced"]
    assert "none" in [row["cell"] for row in rows.rows]


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_policies_and_counters_are_those_of_sluice(bench, monkeypatch):
    """With the real `sluice exec`, `set` and `status`, and kernels on the simulated GPU."""
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setattr(stage, "_LEARNING_S", 0.2)
    monkeypatch.setattr(cli, "gpus", lambda *_: None)  # the simulated one will do
    code, said = bench(
        "--programs",
        str(Path(__file__).parent / "pairs_simulated"),
        "--exec-gpu",
        "sim",
        "--pairs",
        "bert+bert",
        "--modes",
        "time-sliced",
        "--jobs",
        "10",
        "--policies",
        "none,gate,device:200us,announced",
    )
    assert code == 0, said.err
    best_effort = by_cell(bench, BEST_EFFORT)
    assert best_effort.keys() == {"best effort alone", "none", "gate", "device:200us", "device:200us, announced"}
    assert min(int(row["launches"]) for row in best_effort.values()) > 0
    assert best_effort["none"]["gated"] == "0" and int(best_effort["gate"]["gated"]) > 0
    for cell in ("device:200us", "device:200us, announced"):
        assert int(best_effort[cell]["waited"]) > 0
        assert best_effort[cell]["bypassed"] == "0"


def test_the_programs_of_mps_get_a_daemon_that_ends(bench):
    code, said = bench("--pairs", "bert+bert", "--modes", "MPS + priority,MPS", "--policies", "none")
    assert code == 0, said.err
    found = [(row["mode"], row["cell"]) for row in rows_of(bench).rows if row["role"] == CRITICAL]
    assert found == [("MPS + priority", "alone"), ("MPS + priority", "none"), ("MPS", "alone"), ("MPS", "none")]
    daemons = bench.stand_ins.daemon_pids()
    assert len(daemons) == 2 and gone(daemons) and gone(bench.stand_ins.client_pids())


def test_nothing_is_begun_that_would_end_after_the_limit(bench):
    code, said = bench("--pairs", "bert+bert", "--limit-s", "10")
    assert code == 0 and "cells are left" in said.err
    assert not rows_of(bench).rows


def test_a_signal_ends_the_programs(bench, tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sluice_tools.bench",
            "pairs",
            "--programs",
            str(bench.stand_ins.programs),
            "--pairs",
            "bert+bert",
            "--out",
            str(bench.out),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert "[1/" in process.stderr.readline()
    assert "critical:" in process.stderr.readline()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert gone(bench.stand_ins.client_pids()) and len(rows_of(bench).rows) == 1


def test_a_program_that_does_not_answer_is_an_error():
    silent = talker.Talker([sys.executable, "-c", "import sys; sys.stdin.read()"], {})
    try:
        with pytest.raises(RuntimeError, match="no 'loaded' in 0 s"):
            silent.ask("load", "loaded", 0.1)
        silent.process.stdin.close()
        with pytest.raises(RuntimeError, match="ended before"):
            silent.hear("loaded", 10)
    finally:
        silent.process.kill()
        silent.process.wait()
