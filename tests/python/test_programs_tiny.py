"""The programs of `sluice bench programs`, whose GPU time is too dear for errors of spelling: tiny, on the CPU."""

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time

import pytest
from conftest import environment
from sluice_tools.bench.programs import cli
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.bench.programs.plan import PROGRAMS
from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.measure.rows import Rows

SETTING = Setting("cpu", tiny=True)
NEEDS = {"generation": "transformers", "llama": "transformers", "jax_programs": "jax", "loader": "timm"}


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


# The kernels need a driver; ddp-training runs below, in a process of its own.
ELSEWHERE = ("triton-kernels", "ddp-training", *(name for name, one in PROGRAMS.items() if one.simulated))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ELSEWHERE])
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


def ran(name, *commands):
    """What a program answered."""
    program = subprocess.Popen(
        [sys.executable, "-m", "sluice_tools.bench.programs.program", name, "--device", "cpu", "--tiny"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    said, waits_for = [], "imported"
    for command, then in (({"do": "load"}, "loaded"), *commands, ({"do": "quit"}, None)):
        for line in program.stdout:
            said.append(json.loads(line)) if line.startswith("{") else None
            if said and said[-1]["event"] in (waits_for, "error"):
                break
        if then == "idle":
            time.sleep(1)
        with contextlib.suppress(BrokenPipeError):  # it ended with an error, which was read
            program.stdin.write(json.dumps(command) + "\n")
            program.stdin.flush()
        waits_for = then
    _, err = program.communicate(timeout=120)
    return said, program.returncode, err


def test_the_process_obeys():
    run = {"do": "run", "period_ms": 5, "arrivals": "poisson", "seed": 1}
    said, code, err = ran("vit-graph", (run, "running"), ({"do": "idle", "until_ns": 0}, "idle"))
    assert [answer["event"] for answer in said] == ["imported", "loaded", "running", "idle"], err
    assert len(said[3]["served_ns"]) > 0 and code == 0


def test_the_process_tells_what_goes_wrong():
    said, code, err = ran("vit-graph", ({"do": "run"}, "running"), ({"do": "idle", "until_ns": 0}, "idle"))
    assert said[-1]["event"] == "error" and "period_ms" in said[-1]["text"] and code == 1, err


def test_both_ranks_of_a_training_make_its_steps():
    said, code, err = ran("ddp-training", ({"do": "run"}, "running"), ({"do": "idle"}, "idle"))
    assert [answer["event"] for answer in said] == ["imported", "loaded", "running", "idle"], err
    assert len(said[3]["ends_ns"]) > 1 and code == 0


@pytest.fixture
def built_sluice(monkeypatch):
    """The commands of this build, for programs that are started by them, too."""
    if "SLUICE_TEST_PROGRAM" not in os.environ:
        pytest.skip("needs a build of Sluice")
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.mark.usefixtures("built_sluice")
def test_a_mix_is_measured_under_the_real_sluice(tmp_path, capsys):
    given = ["--gpu", "sim", "--mixes", "vit-graph+prefill", "--window", "1.4", "--learn", "0"]
    code = cli.main([*given, "--rounds", "2:2", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "critical outputs are equal to the bit in 1 of 1" in said.out


@pytest.mark.usefixtures("built_sluice")
def test_waits_for_the_simulated_gpu_are_an_axis(tmp_path, monkeypatch, capsys):
    """A request is 5 ms of GPU work. Bare, half of the time is of kernels of 5 ms, and nothing is held or watched."""
    monkeypatch.setenv("SLUICE_SIM_SCALE", "1")
    given = ["--gpu", "sim", "--mixes", "kernels-250us+kernels-5ms", "--learn", "0", "--rounds", "2:2"]
    code = cli.main([*given, "--window", "1.9", "--json", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    told = json.loads(said.out)
    waits = {cell["cell"]: min(cell["wait_ms"]) for cell in told["cells"] if cell["wait_ms"]}
    assert 2 < waits["alone"] < 12 and waits["bare"] > waits["alone"] + 1, waits
    (judgment,) = told["verdicts"][0]["judgments"]
    (axis,) = [axis for axis in judgment["axes"] if axis["name"] == "waits"]
    assert judgment["waits_count"] and axis["change"]["mean"] < -0.1
    assert any(f"waits {waits['bare']:.3g} ms" in line for line in said.err.splitlines())


@pytest.mark.usefixtures("built_sluice")
def test_conditions_are_switched_on_the_simulated_gpu(tmp_path, monkeypatch, capsys):
    """Settings that do not arrive would make all conditions equal."""
    monkeypatch.setenv("SLUICE_SIM_SCALE", "1")
    given = ["--gpu", "sim", "--mixes", "kernels-50us+kernels-5ms", "--learn", "0", "--rounds", "1:1"]
    wanted = "default,slice=off,policy=event:1 announce=2ms"
    code = cli.main([*given, "--conditions", wanted, "--window", "1.9", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    rows = {(row["cell"], row["role"]): row for row in Rows(tmp_path / "programs.csv", FIELDS).rows}
    for condition in ("default", "slice=off"):
        assert int(rows[condition, "best effort"]["waited"]) > 0
        assert rows[condition, "best effort"]["policy"] == "device:200us"
    assert rows["slice=off", "best effort"]["slice"] == "off"
    assert rows["default", "best effort"]["slice"] != "off"
    # Announced by the C API, to the interposer; by nobody else.
    told = rows["policy=event:1 announce=2ms", "critical"]
    assert 0 < int(told["announced"]) <= int(told["jobs"]) and rows["default", "critical"]["announced"] == ""
    assert rows["policy=event:1 announce=2ms", "best effort"]["policy"] == "event:1"
    assert int(rows["policy=event:1 announce=2ms", "best effort"]["gated"]) > 0
