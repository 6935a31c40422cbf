"""The part `colocate` of `sluice bench serve`: its arrivals, its figures, and a small run on the simulated GPU.

Prevents: systems that get different arrivals, an SLO taken from the wrong run, requests without an answer that count as
kept, and published figures that leave out what speaks against us.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from conftest import environment
from sluice_tools.bench.serve import cli, colocate_plan, colocate_report, store
from sluice_tools.bench.serve.colocate_plan import INFER_ONLY, LOADS, SYSTEMS, arrivals
from sluice_tools.bench.serve.setting import Setting

_LIMITS = {f"m{i}": 2.0 + i for i in range(8)}
_SECONDS = 200


@pytest.mark.parametrize("load", LOADS)
def test_every_load_needs_its_share_of_the_device(load):
    due = arrivals(load, _LIMITS, _SECONDS, 1)
    assert due == sorted(due) == arrivals(load, _LIMITS, _SECONDS, 1) != arrivals(load, _LIMITS, _SECONDS, 2)
    assert all(0 <= at < _SECONDS * 1e3 for at, _ in due)
    busy = sum(_LIMITS[model] for _, model in due) / (_SECONDS * 1e3)
    assert busy == pytest.approx(colocate_plan._BUSY[load], rel=0.25)


def test_burst_skew_and_azure_are_what_their_names_say():
    for seconds, period in (_SECONDS, 10), (5, 5):  # a short run has a whole period, too
        due = [at / 1e3 for repeat in range(200 // seconds) for at, _ in arrivals("burst", _LIMITS, seconds, repeat)]
        burst = Counter(at % period >= 0.8 * period for at in due)
        assert burst[True] / 2 == pytest.approx(colocate_plan._BURST_TIMES * burst[False] / 8, rel=0.2)
    light, skew = (Counter(model for _, model in arrivals(load, _LIMITS, _SECONDS, 1)) for load in ("light", "skew"))
    assert max(light.values()) < 2 * min(light.values()) and max(skew.values()) > 5 * min(skew.values())
    of_one = [at for at, model in arrivals("azure", _LIMITS, _SECONDS, 1) if model == "m0"]
    spells = Counter(int(at / (_SECONDS * 1e3 / 8)) for at in of_one)
    assert 0 < len(spells) < 8  # a function is not called all the time


def _row(latencies: list, requests: int | None = None, samples: float | None = None) -> dict:
    row = {"latency_ms": {"a": latencies}, "requests": requests or len(latencies)}
    return row | ({} if samples is None else {"samples_per_s": samples})


def test_systems_of_one_server_are_measured_together_and_begin_without_training():
    servers = colocate_plan.servers()
    assert sorted(str(system) for systems in servers for system in systems) == sorted(map(str, SYSTEMS))
    assert [system.name for system in servers[0]] == [INFER_ONLY, "colocate-l1"]
    for systems in servers:
        assert len({(system.mode, system.mps, system.share, system.idle_ms) for system in systems}) == 1
        assert [system.trains for system in systems] == sorted(system.trains for system in systems)
        assert systems[0].infers or systems[0].trains


def test_a_model_that_can_be_trained_is_not_yet_one_that_can_be_served(tmp_path):
    setting = Setting("sluice", tmp_path, tmp_path, "real", 0, 1, 1)
    for formats, served, trained in ((["training"], False, True), (["torchscript"], True, False)):
        (tmp_path / "m").mkdir(exist_ok=True)
        (tmp_path / "m/model.json").write_text(json.dumps({"variants": [{"format": name} for name in formats]}))
        assert (store._has(setting, "m", False), store._has(setting, "m", True)) == (served, trained)


def test_the_slo_is_twice_the_p99_alone_and_requests_without_an_answer_miss_it():
    slo_ms = colocate_report.slos_ms([_row([1.0] * 99 + [3.0] * 2)])
    assert slo_ms == {"a": 6.0}
    assert colocate_report.slos_ms([_row([1.0, 4.0])]) == {"a": 8.0}  # too few for a p99
    assert colocate_report.compliance([_row([6.0, 6.1, 1.0], requests=4)], slo_ms) == 0.5
    assert colocate_report.compliance([_row([1.0])], {}) == 0


def test_training_is_compared_with_what_requests_leave_of_the_gpu():
    row = _row([5.0] * 100, samples=45) | {"limits_ms": {"a": 4.0}, "seconds": 1.0}
    assert colocate_report.busy_share([row, row]) == 0.4
    assert colocate_report.busy_share([_row([5.0])]) is None
    alone = [_row([5.0] * 100) | {"seconds": 1.0}]
    line = colocate_report._line("x", [row], alone, {"a": 10.0}, 100.0)
    assert dict(zip(colocate_report._HEAD, line))["% of alone"] == "45"
    assert dict(zip(colocate_report._HEAD, line))["% of the rest"] == "75"


def test_systems_without_handover_divide_the_pool():
    """Training that leaves nothing to inference, or half of what it could have, would make straw men of them."""
    system = {one.name: one for one in SYSTEMS}
    gib = 1 << 30

    def items(name: str, inference_gib: float, pool: float | None = 16) -> int:
        needs = colocate_plan.Needs(inference_gib * gib, 1 * gib, gib / 4)
        return colocate_plan.micro_batch(system[name], pool, needs, 72)

    for name in ("normal", "park", "MPS"):
        assert [items(name, need) for need in (4, 6, 8, 12)] == [44, 36, 28, 28]
        assert items(name, 12, pool=1.5) == 1 and items(name, 12, pool=None) == items(name, 1, pool=100) == 72
    assert (items("static 50 %", 1), items("static 75 %", 1)) == (28, 12)
    for name in ("colocate-l1", "task-switch-l1", "task-switch-l3", "training alone"):
        assert items(name, 12) == 72


def test_models_of_one_kind_have_one_slo():
    row = {"latency_ms": {"a-0": [1.0], "a-1": [3.0], "b-0": [5.0]}, "requests": 3}
    assert colocate_report.slos_ms([row]) == {"a": 6.0, "b": 10.0}
    assert (
        colocate_report.compliance(
            [row | {"latency_ms": {"a-0": [6.0], "a-7": [6.1], "b-0": [9.0]}}], {"a": 6.0, "b": 10.0}
        )
        == 2 / 3
    )


def test_published_figures_are_means_over_loads_and_do_not_hide_starved_training():
    slow, quick = [9.0] * 10, [1.0] * 10
    alone = [_row([1.0] * 10)]
    one = {INFER_ONLY: alone, "colocate-l1": [_row(quick, samples=40)], "normal": [_row(slow, samples=50)]}
    two = {INFER_ONLY: alone, "colocate-l1": [_row(quick, samples=40)], "normal": [_row(quick, samples=0)]}
    (normal,) = colocate_report.published_figures([one, two]).values()
    assert (normal.gains, normal.factors, normal.starved) == ([100.0, 0.0], [0.8], 1)
    worse = {INFER_ONLY: alone, "colocate-l1": [_row(slow, samples=40)], "normal": [_row(quick, samples=80)]}
    normal = colocate_report.published_figures([worse])["normal"]
    assert (normal.gains, normal.factors, normal.starved) == ([-100.0], [0.5], 0)
    both = colocate_report._figures([worse | {"MPS": [_row(slow, samples=10)]}])[1]
    assert "(up to +0.0)" in both and "(up to 4.00)" in both
    said = colocate_report._figures([one, two, worse])[1]
    assert (
        "has +0.0 percentage points" in said and "(up to +100.0)" in said and "0.65 times as fast (up to 0.80)" in said
    )


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_a_small_run_measures_all_systems_with_the_same_arrivals(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    chosen = ["--gpu", "sim", "--out", str(tmp_path), "--part", "colocate", "--seconds", "1", "--traffic", "heavy"]
    chosen += ["--pool-gb", "0.2"]  # three of four models next to training
    code = cli.main([*chosen, "--systems", "normal,task-switch-l1,task-switch-l3,colocate-l1"])
    said = capsys.readouterr()
    assert code == 0, said.err
    rows = {line["cell"]: line["rows"][0] for line in _lines(tmp_path / "colocate.jsonl")}
    assert list(rows) == [
        INFER_ONLY, "colocate-l1", "training alone", "normal", "task-switch-l1", "task-switch-l3"
    ]  # fmt: skip
    assert rows[INFER_ONLY]["ready_s"] == rows["colocate-l1"]["ready_s"]  # one server
    assert "samples_per_s" not in rows[INFER_ONLY]
    served = [row for name, row in rows.items() if name != "training alone"]
    assert len({row["requests"] for row in served}) == 1 and served[0]["requests"] > 0
    for row in served:
        answered = sum(map(len, row["latency_ms"].values()))
        assert answered + sum(row["unanswered"].values()) == row["requests"] and answered > 0
    assert rows["task-switch-l1"]["orders"] > 0 and rows["task-switch-l3"]["kills"] > 0
    assert rows["normal"]["orders"] == rows["colocate-l1"]["kills"] == 0
    assert any(row["loads"] > 0 for row in served)
    assert rows["training alone"]["samples_per_s"] > 0 and "requests" not in rows["training alone"]
    assert "### heavy, pool 0.2 GB" in said.out and "### colocate-l1 against the others" in said.out
    # What is measured is not measured again.
    assert cli.main([*chosen, "--systems", "normal"]) == 0
    assert "3 of 3 cells are measured already" in capsys.readouterr().err


def _lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]
