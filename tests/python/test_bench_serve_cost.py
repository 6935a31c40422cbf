"""The part `cost` of `sluice bench serve`: its counters, clients and tables, and a run without a GPU."""

import os
import subprocess
import sys
import time

import pytest
from conftest import environment
from sluice_tools.bench.serve import cli, cost, cost_clients, cost_report, counters, peers
from sluice_tools.bench.serve.lines import Lines
from sluice_tools.measure.rows import Cell

MACHINE = {"gpu": "H", "driver": "1", "torch": "2", "sluice": "0", "date": "2026-11-22T20:00:00"}
METRICS = """\
sluice_serve_queue_seconds_sum{model="dummy",version="1"} 0.25
sluice_serve_compute_seconds_sum{model="dummy",version="1"} 0.5
sluice_serve_request_seconds_sum{model="dummy",version="1"} 1.0
sluice_serve_request_seconds_sum{model="dummy-1",version="1"} 7.0
"""
# As perf_analyzer 2.60.0 wrote it.
PERF_ANALYZER = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
2,1998.67,2,193,101,13,153,87,1,484,682,739,1128
"""


def test_receiving_is_what_is_neither_queue_nor_compute():
    assert counters.receive_s(METRICS, "dummy") == pytest.approx(0.25)


def test_counters_are_of_the_time_between():
    before = counters.Counters(100, 100, 100, 5.0, 1.0, 3.0)
    after = counters.Counters(300, 500, 150, 5.4, 1.1, 3.6)
    assert after.since(before) == pytest.approx(
        {"batch": 8, "compute_ms": 2.0, "receive_ms": 0.5, "processor_s_per_1000": 3.0}
    )
    assert set(after.since(after).values()) == {None}
    no_receiving = counters.Counters(300, 500, 150, 5.4, None, 3.6)
    assert no_receiving.since(no_receiving)["receive_ms"] is None
    assert counters.Counters(400, 600, 160, 5.4, None, 3.6).since(no_receiving)["receive_ms"] is None


def test_processor_time_is_that_of_all_processes_below():
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
    started = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {spin!r}]); input()",
        ],
        stdin=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 20
        while counters.processor_s(started.pid) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert counters.processor_s(started.pid) >= 0.3
    finally:
        started.communicate(b"\n")


def test_the_csv_of_perf_analyzer():
    assert cost_clients.read_perf_analyzer(PERF_ANALYZER) == {"p50_ms": 0.484, "p99_ms": 1.128, "per_s": 1998.67}


def test_both_servers_get_the_same_bytes():
    peer = peers.PeerModel("echo", "echo", 8, ("INPUT0", (-1,)), ("OUTPUT0", (-1,)))
    for subject, size in zip(cost._DUMMIES, (1024, 600_000), strict=True):
        ours, theirs = subject.requests(None), subject.requests(peer)
        assert ours.values and 4 * ours.values == size and theirs.values == ours.values
        assert (ours.model, ours.input, theirs.model, theirs.input) == ("dummy", "input0", "echo", "INPUT0")
        assert 4 * subject.sent == 4 * subject.answered == size, "the empty server gets and gives the same"


def test_requests_are_shared_by_the_connections():
    for concurrency in (*cost.CONCURRENCY, 3, 7):
        parts = min(concurrency, cost_clients._CONNECTIONS)
        assert sum(cost_clients._part(concurrency, parts, number) for number in range(parts)) == concurrency
        assert all(cost_clients._part(concurrency, parts, number) for number in range(parts))


def measured(lines: Lines, server: str, concurrency: int, per_s: float, repeat: int = 1, **more) -> None:
    client = cost_report.WORKLOAD
    row = MACHINE | {
        "client": client, "concurrency": concurrency, "echo": False, "backend": "", "mean_ms": 2.0, "p50_ms": 1.9,
        "p99_ms": 3.0, "per_s": per_s, "batch": 1.0, "compute_ms": 1.5, "receive_ms": None,
        "processor_s_per_1000": 0.4,
    } | more  # fmt: skip
    lines.add(Cell("resnet50, batch 1", server, cost_report.cell_name(client, concurrency), repeat), [row])


def test_the_goals_are_judged(tmp_path):
    lines = Lines(tmp_path / cost.FILE)
    measured(lines, cost_report.SLUICE, 1, 500, receive_ms=0.3)
    measured(lines, cost_report.TRITON, 1, 400, mean_ms=2.2, backend="torch_script")
    text = "\n".join(cost.tables(tmp_path))
    assert "| 1 | sluice serve | 1.900 | 3.000 | 500 | 0.400 | 1.0 | 1.500 | 0.300 | 0.500 | - |" in text
    assert "beyond computing" not in text, "without the empty server nothing is known of our own time"

    measured(lines, cost_report.EMPTY, 1, 2500, mean_ms=0.4, batch=None, compute_ms=None, processor_s_per_1000=None)
    measured(lines, cost_report.EMPTY, 64, 9000, mean_ms=1.0, batch=None, compute_ms=None, processor_s_per_1000=None)
    text = "\n".join(cost.tables(tmp_path))
    assert "| 1 | sluice serve | 1.900 | 3.000 | 500 | 0.400 | 1.0 | 1.500 | 0.300 | 0.500 | 0.100 |" in text
    assert "| 1 | tritonserver | 1.900 | 3.000 | 400 | 0.400 | 1.0 | 1.500 | - | 0.700 | 0.300 |" in text
    assert "| 1 | empty server | 1.900 | 3.000 | 2500 | - | - | - | - | - | - |" in text
    assert "tritonserver: Python backend with PyTorch" in text
    assert "0.100 ms beyond computing and the empty server; the goal of 0.15 holds." in text
    assert "1.25 to 1.25 times tritonserver's requests/s; the goal of 1 holds." in text

    measured(lines, cost_report.SLUICE, 64, 900)
    measured(lines, cost_report.TRITON, 64, 1000, backend="torch_script")
    for repeat in (2, 3):
        measured(lines, cost_report.SLUICE, 1, 450 + repeat, repeat, mean_ms=2.2)
    text = "\n".join(cost.tables(tmp_path))
    assert "0.300 ms beyond computing and the empty server; the goal of 0.15 is missed." in text
    assert "0.90 to 1.13 times tritonserver's requests/s; the goal of 1 is missed (64 outstanding: 0.90)." in text
    assert "| 453 [452-500] |" in text


def test_an_answer_of_600_kb_is_not_judged_by_the_goal(tmp_path):
    lines = Lines(tmp_path / cost.FILE)
    measured(lines, cost_report.SLUICE, 1, 500, echo=True)
    measured(lines, cost_report.EMPTY, 1, 2500, mean_ms=0.1, echo=True)
    assert "goal" not in "\n".join(cost.tables(tmp_path))


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_without_tritonserver_our_server_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv(cost_clients.VARIABLE, "no-such-program")
    monkeypatch.setattr(peers, "find", lambda named: None)
    monkeypatch.setattr(cost, "_models", lambda setting: (cost._DUMMIES,))
    monkeypatch.setattr(cost, "_WARM_UP_S", 0.2)
    code = cli.main(["--gpu", "sim", "--part", "cost", "--seconds", "0.5", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "no tritonserver, so only sluice serve is measured" in said.err
    assert "no perf_analyzer here" in said.err
    rows = Lines(tmp_path / cost.FILE).rows
    of_each = [
        (subject.name, client, concurrency)
        for subject in cost._DUMMIES
        for client in cost_report.OWN_CLIENTS
        for concurrency in cost._TINY
    ]
    assert [(row["subject"], row["client"], row["concurrency"]) for row in rows] == 2 * of_each
    for row in rows:
        assert row["jobs"] > 0 and row["per_s"] > 0 and row["p50_ms"] > 0
    empty, ours = rows[: len(of_each)], rows[len(of_each) :]
    assert {row["mode"] for row in empty} == {cost_report.EMPTY}
    for row in ours:
        assert row["batch"] >= 1 and row["receive_ms"] > 0
    # The kernel counts processor time in steps of 10 ms: a cell may have had less.
    assert any(row["processor_s_per_1000"] > 0 for row in ours)
    assert "### echo, 600 KB, hybrid_workload over HTTP" in said.out


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_a_server_that_dies_is_a_failed_cell(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv(cost_clients.VARIABLE, "no-such-program")
    monkeypatch.setattr(cost, "_models", lambda setting: (cost._DUMMIES[:1],))
    false = tmp_path / "bin/tritonserver"
    for folder in (false.parent, tmp_path / "backends/python", tmp_path / "backends/identity"):
        folder.mkdir(parents=True)
    (tmp_path / "backends/python/triton_python_backend_stub").touch()
    (tmp_path / "backends/identity/libtriton_identity.so").touch()
    false.write_text("#!/bin/sh\necho no GPU here\nexit 1\n")
    false.chmod(0o755)
    arguments = ["--gpu", "sim", "--part", "cost", "--seconds", "0.3", "--out", str(tmp_path / "out")]
    assert cli.main([*arguments, "--triton", str(false)]) == 1
    said = capsys.readouterr()
    assert "tritonserver exited with 1: no GPU here" in said.out
    assert "| 1 | sluice serve |" in said.out
