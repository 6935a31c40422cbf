"""A traced run on the simulated GPU of which the numbers are known in advance: one model alone, which
replays recorded kernels, so that every kernel takes as long as the recording says."""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas", reason="./x reports fetches it")
SLUICE = os.environ.get("SLUICE_TEST_PROGRAM", "")
pytestmark = pytest.mark.skipif(not SLUICE, reason="SLUICE_TEST_PROGRAM names no sluice; ctest does")

RECORDING = Path(__file__).resolve().parents[2] / "engine" / "recording" / "recordings" / "resnet50_b1.json"
EXPERIMENT = {
    "exp_dur": 1,
    "device_id": 0,
    "models": [
        {
            "model_name": "resnet50",
            "backend": "recording",
            "recording": "resnet50_b1",
            "sleep_time": 0,
            "input_file_path": "none.png",
            "output_file_path": "./seen",
            "output_file_name": "model_A",
            "priority": 1,
            "control": {"control": True, "policy": "none"},
        }
    ],
}


def recorded_kernels() -> list[dict]:
    recording = json.loads(RECORDING.read_text())
    rows = [dict(zip(recording["columns"], row, strict=True)) for row in recording["rows"]]
    return [row for row in rows if row["kind"] == "kernel"]


def replayed_names(kernels: list[dict]) -> list[str]:
    """`sluice_spin_` and the recorded name, numbered where grid or block differ from the first."""
    numbers: dict[str, list[tuple]] = {}
    names = []
    for kernel in kernels:
        name = "sluice_spin_" + re.sub(r"\W+", "_", kernel["name"]).strip("_")
        shape = math.prod(kernel["grid"]), math.prod(kernel["block"])
        seen = numbers.setdefault(name, [])
        if shape not in seen:
            seen.append(shape)
        number = seen.index(shape) + 1
        names.append(name if number == 1 else f"{name}_{number}")
    return names


def test_numbers_of_a_run_are_those_of_the_recording(tmp_path, capsys):
    from sluice_tools.parse.cli import main as parse
    from sluice_tools.trace.cli import main as trace

    (tmp_path / "one.json").write_text(json.dumps(EXPERIMENT))
    run = subprocess.run(
        [SLUICE, "run", "one.json", "--gpu", "sim", "--trace"],
        cwd=tmp_path,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    capsys.readouterr()
    given = ["--json", "--no-pictures", "--out", str(tmp_path / "out")]
    assert parse([str(tmp_path / "seen"), *given]) == 0
    figures = json.loads(capsys.readouterr().out)
    (model,) = figures["models"]
    kernels = pd.read_csv(Path(figures["folder"]) / f"resnet50_{model['pid']}.csv")

    # SIGKILL at the end of the run may cut the last job off, and its last kernel.
    recorded = recorded_kernels()
    per_job = [kernel["duration_ns"] for kernel in recorded]
    durations = kernels["KernelDur"].tolist()
    jobs = model["jobs"] + 1  # the warm-up too
    assert jobs * len(per_job) <= len(durations) == model["kernels"]
    expected = (per_job * (len(durations) // len(per_job) + 1))[: len(durations)]
    assert durations[:-1] == expected[:-1]
    assert model["median_kernel_ns"] == pytest.approx(pd.Series(expected).median(), rel=0.02)
    assert (kernels["ExecutionStart"] >= kernels["IssueStart"]).all()
    # Real times are divided by ten: a begin and an end may be rounded apart by 1 ns.
    gaps = kernels["ExecutionStart"].iloc[1:].to_numpy() - kernels["ExecutionEnd"].iloc[:-1]
    assert (gaps >= -1).all()
    assert model["queue_depth_max"] <= len(per_job)

    assert trace([str(tmp_path / "seen"), "--csv", str(tmp_path / "seen.csv")]) == 0
    # Whoever reads a trace learns which of the model's kernels ran.
    shown = pd.read_csv(tmp_path / "seen.csv").sort_values("Kernel Start (ns)")["Kernel Name"]
    assert shown.tolist()[: len(recorded)] == replayed_names(recorded)
    assert parse(["-f", str(tmp_path / "seen.csv"), "-p", str(tmp_path / "seen" / "models_pid.json"), *given]) == 0
    again = json.loads(capsys.readouterr().out)["models"][0]
    same = [name for name in model if not name.startswith("j")]
    assert {name: again[name] for name in same} == {name: model[name] for name in same}
