"""serve.py and train.py on the CPU, with tiny settings."""

import csv
import importlib.util
import json
import signal
import sys

import pytest
import torch
from conftest import PACKAGE, spawn
from sluice_tools.measure.statistics import percentile

TINY = ("--model", "squeezenet1_1", "--size", "64", "--device", "cpu")


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Runs an example in this process, which has paid for the import of torch already."""

    def run(name: str, *args: str) -> dict:
        path = PACKAGE / "examples" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", [str(path), *TINY, *args])
        module.main()
        return json.loads(capsys.readouterr().out)

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    torch.use_deterministic_algorithms(False)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_serve(run_here, tmp_path):
    log = tmp_path / "latencies.csv"
    said = run_here("serve", "--seconds", "0.3", "--period-ms", "20", "--warm-up", "1", "--digest", "--csv", str(log))
    rows = list(csv.DictReader(log.open()))
    assert said["requests"] == len(rows) > 0
    assert said["distinct_outputs"] == 1 and len(said["digest"]) == 64
    latencies = [float(row["latency_ms"]) for row in rows]
    by_rule = {name: percentile(latencies, share) for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
    assert {name: said["latency_ms"][name] for name in by_rule} == pytest.approx(by_rule, abs=0.001)
    # A request never begins before it is due.
    assert all(int(row["due_ns"]) <= int(row["start_ns"]) < int(row["end_ns"]) for row in rows)


def test_training_gives_the_same_parameters_twice(run_here):
    """Bitwise equality alone and beside another process is claimed with this digest."""
    said = [
        run_here("train", "--batch", "2", "--warm-up", "0", "--digest", "--max-steps", steps)
        for steps in ("2", "2", "1")
    ]
    assert [one["steps"] for one in said] == [2, 2, 1]
    assert said[0]["digest"] == said[1]["digest"] != said[2]["digest"]


def test_training_in_mixed_precision(run_here):
    assert (
        run_here("train", "--batch", "1", "--size", "32", "--warm-up", "0", "--amp", "bf16", "--max-steps", "1")[
            "steps"
        ]
        == 1
    )


def test_training_that_is_stopped_says_what_it_did():
    """Beside a server it is ended by a signal; its figures would be lost."""
    program = str(PACKAGE / "examples" / "train.py")
    run = spawn(sys.executable, program, *TINY, "--batch", "2", "--seconds", "600", "--log-every", "1")
    for line in run.stderr:
        if line.startswith("step 1:"):
            break
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=100)
    assert run.returncode == 0
    assert json.loads(out)["steps"] >= 1
