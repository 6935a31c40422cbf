"""A traced run on the simulated GPU, through `sluice report`."""

import json
import os
import subprocess

import pytest
from conftest import environment
from sluice_tools.trace.reader import read_run

SLUICE = os.environ.get("SLUICE_TEST_PROGRAM", "")
pytestmark = pytest.mark.skipif(not SLUICE, reason="SLUICE_TEST_PROGRAM names no sluice; ctest does")

EXPERIMENT = {
    "models": [
        {
            "model_name": "resnet152",
            "backend": "recording",
            "recording": "resnet152_b256",
            "priority": 0,
            "output_file_name": "A",
            "control": {"control": True, "policy": "gate"},
        },
        {
            "model_name": "resnet50",
            "backend": "recording",
            "recording": "resnet50_b1",
            "priority": 1,
            "output_file_name": "B",
            "control": {"control": True},
            "arrival": {"kind": "periodic", "period_ms": 6, "jitter": 0.3, "seed": 1},
        },
    ],
    "exp_dur": 1,
}


def traced_run(folder, experiment: dict) -> dict:
    """What the report says of it."""
    (folder / "exp.json").write_text(json.dumps(experiment))
    for command in (["run", "exp.json", "--gpu", "sim", "--trace", "--out", "out"], ["report", "out", "--json"]):
        done = subprocess.run([SLUICE, *command], cwd=folder, env=environment(), text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return run


def test_jobs_with_a_target_leave_the_gates_open(tmp_path):
    """The trace of a real client: its jobs begin when the program begins them, and their gates do not close."""
    low, high = EXPERIMENT["models"]
    high = high | {"target": "p99=1s", "arrival": {"kind": "closed"}}
    for seconds in (4, 8, 16):  # a busy host may run too few jobs to learn from
        out = tmp_path / str(seconds)
        out.mkdir()
        run = traced_run(out, EXPERIMENT | {"models": [low, high], "exp_dur": seconds})
        target = next(model for model in run["models"] if model["model"] == "B")
        if target["target_state"] != "learning":
            break
    assert (target["target"], target["target_state"], target["limit_ms"]) == ("p99=1s", "kept", 1000)
    assert target["in_time"] == 1 and target["gates_open"] > 0
    clients = {client.priority: client for client in read_run(out / "out").clients}
    jobs = clients[1].jobs()
    opened = jobs[jobs["closed_ns"] > jobs["begin_ns"]]
    assert len(opened) and (opened["closed_ns"] == opened["end_ns"]).all()
    gates = clients[0].gates()
    for job in opened.itertuples():
        assert not ((gates["begin_ns"] < job.end_ns) & (gates["end_ns"] > job.begin_ns)).any()


def test_a_traced_run_is_explained(tmp_path):
    """With the queue full and only the host gated, A's kernels are what B waits for."""
    reason = "the GPU ran other work while its own was launched and waiting: A's"
    for attempt in ("1", "2", "3"):  # on a busy host the worst job may have waited for the host
        folder = tmp_path / attempt
        folder.mkdir()
        run = traced_run(folder, EXPERIMENT)
        if reason in run["answer"]:
            break
    assert run["kind"] == "simulated"
    assert "of B took" in run["answer"]
    assert reason in run["answer"]
    page = (folder / "out" / "report.html").read_text()
    assert "Queue depth" in page
    assert "Simulated GPU" in page
