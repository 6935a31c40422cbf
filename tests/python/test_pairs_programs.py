"""The programs of `sluice bench pairs`, whose GPU time is too dear for errors of spelling: tiny on
the CPU, and along the path for a GPU with its calls replaced."""

import contextlib
import json
import subprocess
import sys
import time

import pytest
import torch
from conftest import environment
from sluice_tools.bench.pairs import best_effort, models, plan
from sluice_tools.models import names


def talk(module: str, model: str, *commands: dict, code: int = 0) -> list:
    program = subprocess.run(
        [sys.executable, "-m", f"sluice_tools.bench.pairs.{module}", "--model", model, "--device", "cpu"],
        input="".join(json.dumps(command) + "\n" for command in commands),
        text=True,
        capture_output=True,
        env=environment(),
        timeout=120,
    )
    assert program.returncode == code, program.stderr
    return [json.loads(line) for line in program.stdout.splitlines()]


def test_the_plan_names_the_models():
    assert set(models.CRITICAL) == set(plan.CRITICAL)
    assert set(models.BEST_EFFORT) == set(plan.BEST_EFFORT)


def test_the_critical_program_obeys_and_tells_what_goes_wrong():
    said = talk(
        "critical",
        "bert",
        {"do": "load"},
        {"do": "calibrate", "jobs": 2},
        {"do": "run", "jobs": 3, "seconds": 5, "period_ms": 20, "notice_ms": 2},
        {"do": "dance"},
        code=1,
    )
    assert [answer["event"] for answer in said] == ["imported", "loaded", "calibrated", "measuring", "done", "error"]
    assert said[1]["attached"] is False and len(said[4]["latency_ms"]) == 3
    assert said[5]["text"] == "ValueError: unknown command dance"


def test_the_best_effort_program_obeys():
    said = talk("best_effort", "bert", {"do": "load"}, {"do": "run"}, {"do": "idle"}, {"do": "capture"}, {"do": "run"})
    assert [answer["event"] for answer in said] == ["imported", "loaded", "running", "idle", "captured", "running"]
    assert len(said[3]["ends_ns"]) >= 2


@torch.inference_mode()
@pytest.mark.parametrize("name", models.CRITICAL)
def test_a_critical_model_runs(name):
    models.CriticalWork(name, "cpu")()


@pytest.mark.parametrize("name", models.BEST_EFFORT)
def test_a_best_effort_model_runs(name):
    work = models.best_effort_work(name, "cpu")
    work.capture()
    work()


class FakeStream:
    def synchronize(self):
        pass

    def wait_stream(self, other):
        assert isinstance(other, FakeStream)


class FakeGraph:
    replays = resets = 0

    def replay(self):
        FakeGraph.replays += 1

    def reset(self):
        FakeGraph.resets += 1


class FakeEvent:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.monotonic_ns()

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e6


@contextlib.contextmanager
def entered(_):
    yield


@pytest.fixture
def fake_gpu(monkeypatch):
    """The path for a GPU, with models that a CPU can run."""
    current = FakeStream()
    for name, fake in {
        "Stream": FakeStream,
        "stream": entered,
        "graph": entered,
        "current_stream": lambda: current,
        "synchronize": lambda: None,
        "CUDAGraph": FakeGraph,
        "Event": FakeEvent,
        "set_device": lambda device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    classifier, bert = models._classifier, models._bert

    def small(name, batch, device):
        model, host = classifier("resnet18", min(batch, 2), device)
        return model, host[..., :64, :64]

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(models, "_classifier", small)
    monkeypatch.setattr(models, "_bert", lambda batch, length, device: bert(1, 16, device))
    monkeypatch.setitem(names.ENCODERS, "bert_large", names.ENCODERS["bert_tiny"])
    monkeypatch.setattr(models, "_on_gpu", lambda device: True)
    monkeypatch.setattr(models, "_LOOK_S", 0)
    FakeGraph.replays = FakeGraph.resets = 0


@torch.inference_mode()
@pytest.mark.parametrize("name", ("resnet50", "bert"))
def test_a_critical_job_replays_its_graph(name, fake_gpu):
    work = models.CriticalWork(name, "cpu")
    work()
    work()
    assert FakeGraph.replays == 2


@pytest.mark.parametrize("name", models.BEST_EFFORT)
def test_the_end_of_each_best_effort_job_is_told(name, fake_gpu):
    work = models.best_effort_work(name, "cpu")
    work.capture()
    ends = best_effort.GpuEnds(work)
    ends.begin()
    for _ in range(3):
        ends.one()
    found = ends.finish()
    assert len(found) == 4 and found == sorted(found)
    graph = name == "resnet152-graph"
    # Captured at the start and again.
    assert (FakeGraph.replays, FakeGraph.resets) == ((3, 1) if graph else (0, 0))
