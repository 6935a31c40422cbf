"""`sluice demo` as a whole, with phases too short for its figures to mean anything."""

import json
import os
import signal
import subprocess
import time

import pytest
from sluice_tools.demo.plan import DEFAULT, PHASES, experiment
from sluice_tools.measure.rows import BEST_EFFORT, Rows

pytestmark = pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")


def demo(folder, *arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [os.environ["SLUICE_TEST_PROGRAM"], "demo", "--gpu", "sim", "--out", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder.parent,
    )


def test_it_ends_with_a_table_of_all_policies_and_a_verdict(tmp_path):
    process = demo(tmp_path / "demo", "--seconds-per-phase", "3")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert max(map(len, out.splitlines())) <= 100
    assert "SIMULATED" in out and "\nnext: " in out and "sluice report " in " ".join(out.split())
    page = (tmp_path / "demo" / "demo.html").read_text()
    assert page.index(f"Under {DEFAULT}") < page.index("<table>") < page.index("<svg") < page.index("<h2>Next</h2>")
    assert f"Under {DEFAULT} the critical p50 falls from" in out
    rows = Rows(tmp_path / "demo" / "rows.csv").rows
    assert all(int(row["jobs"]) > 0 for row in rows)
    hooked = {row["cell"]: row for row in rows if row["role"] == BEST_EFFORT and row["launches"]}
    assert list(hooked) == [phase.name for phase in PHASES if phase.policy]
    for cell, row in hooked.items():
        assert f"\n{cell} " in out
        # Every launch is either subject to the gate or bypassed for a reason.
        assert int(row["launches"]) == int(row["gated"]) + int(row["captured"]) + int(row["bypassed"])
        assert (row["bypassed"] == "0") == (cell != "none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo"]


# Prevents: a run that goes on when the demo was ended with SIGTERM, as services and `timeout` do.
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_and_ctrl_c_prints_the_finished_phases(tmp_path, number, code):
    process = demo(tmp_path / "demo", "--seconds-per-phase", "2")
    log = tmp_path / "demo" / "best-effort-alone" / "best_effort.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and "\nJCT " in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert ("\nalone " in out) == (code == 130) and "best effort alone" not in out
    pids = json.loads((log.parent / "models_pid.json").read_text())
    assert not any(os.path.exists(f"/proc/{pid}") for _, pid in pids)


def test_an_announced_phase_announces():
    models = [experiment(phase)["models"][-1].get("announce_ms") for phase in PHASES]
    assert models == [None] * (len(PHASES) - 1) + [2]
