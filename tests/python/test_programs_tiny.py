"""The programs of `sluice bench programs`, whose GPU time is too dear for errors of spelling: tiny, on the CPU."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys

import pytest
from conftest import environment
from sluice_tools.bench.programs import cli
from sluice_tools.bench.programs.plan import PROGRAMS
from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting

SETTING = Setting("cpu", tiny=True)
NEEDS = {"generation": "transformers", "jax_programs": "jax", "loader": "timm"}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def test_the_triton_program_works():
    """In a process of its own: TRITON_INTERPRET counts when Triton is imported, which another test may have done."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton-kernels needs triton")
    code = (
        "from sluice_tools.bench.programs import triton_kernels\n"
        "from sluice_tools.bench.programs.setting import Setting\n"
        "triton_kernels.steps(Setting('cpu', tiny=True))()()"
    )
    program = subprocess.run(
        [sys.executable, "-c", code],
        env=environment() | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert program.returncode == 0, program.stderr


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "triton-kernels"])
def test_a_program_works(name):
    module, function = PROGRAMS[name].place.split(":")
    package = NEEDS.get(module, "torch")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{name} needs {package}")
    made = getattr(importlib.import_module(f"sluice_tools.bench.programs.{module}"), function)(SETTING)
    if PROGRAMS[name].serves:
        first = [bytes(memoryview(made(index))) for index in range(INPUTS)]
        assert len(set(first)) == INPUTS and [bytes(memoryview(made(index))) for index in range(INPUTS)] == first
    else:
        for _ in range(2):
            made()()


def test_the_process_obeys_and_tells_what_goes_wrong():
    command = {"do": "run", "jobs": 3, "seconds": 5, "skip_s": 0, "period_ms": 5, "arrivals": "poisson", "seed": 1}
    commands = [{"do": "load"}, command, {"do": "run"}]
    program = subprocess.run(
        [sys.executable, "-m", "sluice_tools.bench.programs.program", "vit-graph", "--device", "cpu", "--tiny"],
        input="".join(json.dumps(command) + "\n" for command in commands),
        text=True,
        capture_output=True,
        env=environment(),
        timeout=120,
    )
    said = [json.loads(line) for line in program.stdout.splitlines()]
    assert [answer["event"] for answer in said] == ["imported", "loaded", "measuring", "done", "error"]
    assert len(said[3]["latency_ms"]) == 3 and program.returncode == 1


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_a_mix_is_measured_under_the_real_sluice(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    given = ["--gpu", "sim", "--mixes", "vit-graph+prefill", "--modes", "time-sliced"]
    code = cli.main([*given, "--seconds", "0.5", "--repeats", "1", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "critical outputs are equal to the bit in 1 of 1" in said.out
