"""A traced run on the simulated GPU, through `sluice report`."""

import json
import os
import subprocess

import pytest
from conftest import environment

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


def test_a_traced_run_is_explained(tmp_path):
    """With the queue full and only the host gated, A's kernels are what B waits for."""
    (tmp_path / "exp.json").write_text(json.dumps(EXPERIMENT))
    for command in (["run", "exp.json", "--gpu", "sim", "--trace", "--out", "out"], ["report", "out", "--json"]):
        done = subprocess.run([SLUICE, *command], cwd=tmp_path, env=environment(), text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["kind"] == "simulated"
    assert "of B took" in run["answer"]
    assert "the GPU ran other work while its own was launched and waiting: A's" in run["answer"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Queue depth" in page
    assert "Simulated GPU" in page
