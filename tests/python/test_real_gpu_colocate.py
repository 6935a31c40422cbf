"""The experiments of tests/real_gpu/colocate.sh: what they read, and a small run on the simulated GPU.

Prevents: a script that fails when a GPU is there at last, handovers that are counted for the wrong model, and a
training without a hash that counts as equal.
"""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bits
import handovers
import pytest
import stage

_PROFILE = """\
[Adjust Info]
100.0: 256.00 Mb order 0.100 drop 2.000 drain 0.500 give 1.000 take 0.300 load 4.000
900.0: 512.00 Mb order 0.100 drop 3.000 drain 0.000 give 1.000 take 0.300 load 5.000 not obeyed
5000.0: 1.00 Mb order 0.000 drop 1.000 drain 0.000 give 0.000 take 0.000 load 0.000

[Clock Info]
0.0: 1000000.000
"""


def _record(model: str, begin: float, end: float) -> dict:
    times = {"recv_time": 1e6 + begin, "finish_time": 1e6 + end, "total_cost_by_ms": end - begin}
    return {"model_name": model, "result": "ok", "cold_ms": 5.0, "train_wait_ms": 0.0, **times} | {
        "child_model_run_time": [[1e6 + begin + 3, 1e6 + end]]
    }


def test_a_handover_belongs_to_the_request_that_waited(tmp_path, capsys):
    profile = tmp_path / "profile"
    profile.write_text(_PROFILE)
    rows = [_record("m256", 10, 20), _record("m256", 99.5, 110), _record("m512", 899, 920), _record("m512", 2000, 2010)]
    server: Any = SimpleNamespace(profile=profile, records=lambda: rows)
    handovers.report("B", server, {"m256": 0.25, "m512": 0.5, "m8192": 8}, 1e6 + 50)
    found = {line["what"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    small, large = found["0.25 GiB"], found["0.5 GiB"]
    assert (small["good"], small["handovers"], small["training_gave_ms_p50"]) == (1, 1, 3.6)
    assert (large["requests"], large["handovers"], large["not_obeyed"]) == (2, 1, 1)
    assert (small["first_block_ms_p50"], small["total_ms_p50"], large["load_ms_max"]) == (3, 10.5, 5)
    assert found["8 GiB"]["handovers"] == 0
    assert found["handovers that no request waited for"]["count"] == 1


def test_the_last_hash_counts_and_none_is_no_hash():
    lines = ["trained resnet50: 1 epochs of 2 steps, loss 2.3 -> 1.1, parameters 0a1b", "other"]
    assert bits.digest(lines) == "0a1b" and bits.digest(["[resnet50 epoch 0] ..."]) is None


def test_a_failure_is_a_finding_and_not_the_end():
    found = []
    with stage.told("this", lambda what, **more: found.append((what, more))):
        raise RuntimeError("that\nfailed")
    assert found == [("this FAILED", {"error": "that failed"})]


def test_the_programs_are_all_listed():
    """A program that colocate.sh does not run or the README does not explain is lost."""
    folder = Path(stage.__file__).parent
    script, readme = (folder.parent / "colocate.sh").read_text(), (folder / "README.md").read_text()
    for path in folder.glob("*.py"):
        assert path.name in readme
        assert path.name in script or "__main__" not in path.read_text()


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_handovers_run_on_the_simulated_gpu(tmp_path):
    script = Path(stage.__file__).parent.parent / "colocate.sh"
    environment = os.environ | {"SLUICE_PROGRAM": os.environ["SLUICE_TEST_PROGRAM"], "REPEATS": "2"}
    environment.pop("PYTHONPATH", None)
    said = subprocess.run([script, "sim", tmp_path, "200", "B"], env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    found = {line["what"]: line for line in map(json.loads, (tmp_path / "findings.jsonl").read_text().splitlines())}
    for size in ("0.125 GiB", "0.25 GiB"):
        assert (found[size]["requests"], found[size]["good"], found[size]["cold"]) == (2, 2, 2), found
        assert found[size]["handovers"] >= 1 and found[size]["first_block_ms_p50"] > 0
    every = found["batch 16, all requests"]
    assert every["bad"] == 0 and every["kills"] == 0
