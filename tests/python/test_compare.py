"""`sluice compare`: two commands of a user, on the simulated GPU."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sluice_tools.compare import cli
from sluice_tools.errors import CommandError
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows

needs_build = pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
_CRITICAL = ["sluice-example-spin", "--kernels", "20", "--kernel-us", "40", "--period-ms", "6"]
_BEST_EFFORT = ["sluice-example-spin", "--kernels", "50", "--kernel-us", "100"]


def start(folder, *options, critical=_CRITICAL, best_effort=_BEST_EFFORT) -> subprocess.Popen:
    command = [
        os.environ["SLUICE_TEST_PROGRAM"],
        "compare",
        "--gpu",
        "sim",
        "--out",
        str(folder / "out"),
        "--repeats",
        "1",
        "--seconds",
        "1.5",
        "--warm-up",
        "0.5",
        "--start-limit",
        "20",
        *options,
        "--",
        *critical,
        "--",
        *best_effort,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def compare(folder, *options, **commands):
    process = start(folder, *options, **commands)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def rows_of(folder) -> dict:
    return {(row["cell"], row["role"]): row for row in Rows(folder / "out" / "compare.csv").rows}


@needs_build
def test_two_programs_alone_bare_and_gated(tmp_path):
    code, out, err = compare(tmp_path, "--policy", "device:200us")
    assert code == 0, err
    rows = rows_of(tmp_path)
    assert rows.keys() == {
        ("alone", CRITICAL),
        ("best effort alone", BEST_EFFORT),
        ("bare", CRITICAL),
        ("bare", BEST_EFFORT),
        ("device:200us", CRITICAL),
        ("device:200us", BEST_EFFORT),
    }
    # Every job of the critical command is seen, in the GPU's time: 20 kernels of 40 us, every 6 ms.
    alone = rows["alone", CRITICAL]
    assert float(alone["p50_ms"]) == pytest.approx(0.82, abs=0.15)
    assert int(alone["jobs"]) == pytest.approx(150 / 6, abs=6)
    # Back to back, kernels of 100 us and what a launch costs.
    assert float(rows["best effort alone", BEST_EFFORT]["per_s"]) == pytest.approx(9700, rel=0.15)
    assert int(rows["device:200us", BEST_EFFORT]["waited"]) > 0
    assert rows["bare", BEST_EFFORT]["waited"] == "0"
    assert "SIMULATED" in out and "Under device:200us the critical p50 falls from" in out
    assert max(map(len, out.splitlines()[4:])) <= 100
    assert "critical latency" in (tmp_path / "out" / "compare.html").read_text()
    code, _, err = compare(tmp_path, "--policy", "device:200us")
    assert code == 0 and "4 of 4 cells are measured already" in err


@needs_build
def test_other_commands_need_another_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "commands.json").write_text("{}")
    code, _, err = compare(tmp_path)
    assert code == 2 and "holds the comparison of other commands" in err


@needs_build
def test_a_command_that_ends_by_itself_is_said(tmp_path):
    code, out, err = compare(
        tmp_path, "--policy", "device:200us", "--json", critical=["sh", "-c", "echo no such model; exit 3"]
    )
    assert code == 1
    assert "the critical command exited with 3: no such model" in err
    failed = json.loads(out)["failed"]
    assert len(failed) == 3 and failed[0].startswith("Not measured: alone")
    assert rows_of(tmp_path).keys() == {("best effort alone", BEST_EFFORT)}


@needs_build
def test_a_command_that_uses_no_gpu_is_said(tmp_path):
    code, _, err = compare(tmp_path, "--policy", "device:200us", "--start-limit", "1", best_effort=["sleep", "100"])
    assert code == 1
    assert "the best effort command has launched nothing on the GPU within 1 s" in err


@needs_build
def test_what_a_script_started_ends_with_it(tmp_path):
    marker = tmp_path / "pid"
    libexec = Path(os.environ["SLUICE_TEST_PROGRAM"]).parents[1] / "libexec" / "sluice"
    script = f"{libexec}/{' '.join(_CRITICAL)} & echo $! > {marker}; wait"
    code, _, err = compare(tmp_path, "--policy", "device:200us", critical=["sh", "-c", script])
    assert code == 0, err
    deadline = time.monotonic() + 10  # the kernel takes its memory down, and init reaps it
    while os.path.exists(f"/proc/{marker.read_text().strip()}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_build
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_both_programs(tmp_path, number, code):
    process = start(tmp_path, "--seconds", "100")
    log = tmp_path / "out" / "output" / "alone-1-critical.log"
    deadline = time.monotonic() + 20
    while not log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == code
    # Controller and simulated GPU end by themselves after their last client.
    session = ["pgrep", "-f", f"measure-{process.pid}-"]
    deadline = time.monotonic() + 10
    while subprocess.run(session, capture_output=True, check=False).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_command_line_is_three_parts():
    assert cli.split(["-x", "--", "a", "-b", "--", "c", "--", "d"]) == (["-x"], ["a", "-b"], ["c", "--", "d"])
    for wrong in ([], ["--"], ["--", "a"], ["--", "a", "--"], ["a", "--", "--", "b"]):
        with pytest.raises(CommandError):
            cli.split(wrong)


@pytest.mark.parametrize(
    "options",
    [["--policy", "none"], ["--policy", "device:2ms"], ["--target", "fast"], ["--seconds", "0"], ["--repeats", "0"]],
)
def test_wrong_usage_runs_nothing(monkeypatch, capsys, tmp_path, options):
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["compare", "--out", str(tmp_path / "out"), *options, "--", "a", "--", "b"])
    assert cli.main() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "out").exists()
