"""The experiment on refused launches (tests/real_gpu/memory) itself, with refused operations on the CPU."""

import argparse
import json
from pathlib import Path

import jobs
import pytest
import refused_training
import torch
from shim import CpuShim
from torch import nn


def tiny(_name: str, _device: str) -> jobs.Job:
    """Everything that a dropped micro-batch may leave a trace in: gradients, buffers, dropout, momentum."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 10)).train()
    x, labels = torch.randn(8, 8), torch.randint(0, 10, (8,))
    return jobs.Job(model, lambda: nn.functional.cross_entropy(model(x), labels), torch.optim.AdamW(model.parameters()))


@pytest.fixture
def result(monkeypatch, capsys):
    monkeypatch.setattr(jobs, "make", tiny)

    def run(gradients: str, cold: bool = False) -> dict:
        arguments = argparse.Namespace(job="tiny", device="cpu", steps=6, drops=4, gradients=gradients, cold=cold)
        with CpuShim() as shim:
            refused_training.run(arguments, shim)
        return json.loads(capsys.readouterr().out.splitlines()[0])

    return run


@pytest.mark.parametrize("gradients", ["aside", "copy"])
@pytest.mark.parametrize("cold", [False, True])
def test_refusals_leave_no_trace(result, gradients, cold):
    """A trainer that restores too little would be blamed on the driver or on PyTorch."""
    found = result(gradients, cold)
    assert found["drops"] >= 10
    assert (found["silent"], found["ghosts"]) == (0, 0)
    assert (found["undisturbed_differ"], found["disturbed_differ"], found["after_differ"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("owner", "method"), [(refused_training.Gradients, "drop"), (refused_training.State, "restore")]
)
def test_traces_are_noticed(result, monkeypatch, owner, method):
    """A comparison that cannot fail proves nothing."""
    monkeypatch.setattr(owner, method, lambda self: None)
    found = result("copy")
    assert found["undisturbed_differ"] == 0
    assert found["disturbed_differ"] > 0


def test_swallowed_refusals_are_counted(result, monkeypatch):
    """A library that ignores an error must not pass as clean."""
    whole = refused_training.attempt
    monkeypatch.setattr(refused_training, "attempt", lambda job: whole(job) and None)
    found = result("aside")
    assert found["silent"] == found["drops"] >= 10
    assert found["disturbed_differ"] == 0


def test_the_experiments_are_all_listed():
    """An experiment that memory.sh does not run or the README does not explain is lost."""
    folder = Path(refused_training.__file__).parent
    script, readme = (folder.parent / "memory.sh").read_text(), (folder / "README.md").read_text()
    programs = [path for path in folder.glob("*.py") if "__main__" in path.read_text()]
    assert len(programs) >= 5
    for path in [*programs, *folder.glob("*.cpp")]:
        assert path.name in script and path.name in readme
