"""`sluice bench serve` on the CPU and the simulated GPU: what it measures, keeps and says."""

import json
import os
from pathlib import Path

import pytest
from conftest import environment
from sluice_tools.bench.serve import cli, order, plan, training

pytestmark = pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
STAND_IN = Path(__file__).parent / "programs_stand_in.py"


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setattr(order, "_ALONE_S", 0.4)
    monkeypatch.setattr(order, "_WARM_UP_S", 0.1)
    monkeypatch.setattr(training, "_WARM_UP_S", 0.4)

    def run(*arguments):
        capsys.readouterr()
        code = cli.main(["--gpu", "sim", "--out", str(tmp_path), *arguments])
        return code, capsys.readouterr()

    run.out = tmp_path
    return run


def cells(file: Path) -> dict:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {(line["subject"], line["cell"]): line["rows"] for line in lines}


def test_schedulers_are_compared_and_a_stopped_run_goes_on(bench):
    chosen = ("--part", "order", "--seconds", "4", "--loads", "0.3", "--schedulers")
    code, said = bench(*chosen, "FIFO")
    assert code == 0, said.err
    measured = cells(bench.out / "order.jsonl")
    names = list(plan._TINY.names)
    alone = {row["model"]: row for row in measured["alone", "whole models"]}
    assert list(alone) == names and all(row["execute_ms"] > 0 for row in alone.values())
    # The longest model is served in three blocks, and the next one in two.
    blocks = {row["model"]: row["blocks"] for row in measured["load 0.3", "FIFO"]}
    assert sorted(blocks.values()) == [1, 2, 3] and max(blocks, key=lambda name: alone[name]["execute_ms"]) in names
    for row in measured["alone", "in blocks"]:
        assert len(row["steps_ms"]) == row["blocks"] == blocks[row["model"]]
    for row in measured["load 0.3", "FIFO"]:
        assert len(row["latency_ms"]) == len(row["receive_ms"]) == row["sent"] > 0 and row["lost"] == 0
        assert row["limit_ms"] == alone[row["model"]]["execute_ms"]
    assert "### Load 0.3" in said.out and "| FIFO |" in said.out

    code, said = bench(*chosen, "FIFO,EDF")
    assert code == 0 and "3 of 4 cells are measured already" in said.err, said.err
    both = cells(bench.out / "order.jsonl")
    # The same arrivals, and no request is dropped although each has a deadline under EDF.
    first, second = ([row["sent"] for row in both["load 0.3", name]] for name in ("FIFO", "EDF"))
    assert first == second and all(not row["other_results"] for row in both["load 0.3", "EDF"])
    assert cli.main(["--table", str(bench.out)]) == 0


def test_training_next_to_the_server(bench):
    code, said = bench("--part", "training", "--seconds", "0.8", "--programs", str(STAND_IN))
    assert code == 0, said.err
    rows = {cell: rows[0] for (_, cell), rows in cells(bench.out / "training.jsonl").items()}
    assert list(rows) == [condition.name for condition in training.CONDITIONS]
    assert rows["training alone"]["steps_per_s"] > 0 and "steps_per_s" not in rows["server alone"]
    assert not any(rows["gate, nothing announced"]["announced_us"])
    assert max(rows["gate, announced 2 ms before"]["announced_us"]) > 1000
    target = rows["gate with a target (slo-ms)"]["target_ms"]
    assert target == pytest.approx(3 * rows["server alone"]["client_ms"]["p50"], rel=0.01)
    assert "| bare |" in said.out


def test_what_does_not_fit_into_the_time_is_said(bench):
    code, said = bench("--part", "order", "--limit-s", "0.1")
    assert code == 0 and "cells of order are left" in said.err
    assert not (bench.out / "order.jsonl").exists()


@pytest.mark.parametrize(
    "given, says",
    [
        (("--loads", "0"), "a load is above 0"),
        (("--schedulers", "LIFO"), "'LIFO' is not one of FIFO"),
        (("--seconds", "0"), "--seconds must be above 0"),
        (("--table", "/nowhere"), "no results of sluice bench serve"),
    ],
)
def test_wrong_usage(bench, capsys, given, says):
    try:
        code, said = bench(*given)
        text = said.err
    except SystemExit as ended:
        code, text = ended.code, capsys.readouterr().err
    assert code == 2 and says in text and len(text.strip().splitlines()) == 1


def test_results_of_another_gpu_are_not_mixed(bench):
    (bench.out / "settings.json").write_text('{\n  "gpu": "real"\n}\n')
    code, said = bench("--part", "order")
    assert code == 2 and "give another --out" in said.err
