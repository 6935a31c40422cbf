"""`sluice bench`: what is measured, what is kept, what is shown."""

import json
from types import SimpleNamespace

import pytest
from sluice_tools.bench import cli, coverage, outputs, published
from sluice_tools.measure import experiments


def options(program):
    return SimpleNamespace(sluice=str(program), gpu="sim", device=0, seconds=1)


def how(program):
    return experiments.How(str(program), "sim", 0, 1)


def test_the_published_pair_is_that_of_the_published_files():
    content = published.experiment("event:2", {}, under_mps=False)
    low, high = content["models"]
    assert (low["priority"], low["resize_size"], low["control"]["policy"]) == (0, [1440, 2560], "event:2")
    assert (high["priority"], high["sleep_time"], high["control"]["control"]) == (1, 1, True)
    unhooked = published.experiment("no hook", {}, under_mps=True)
    assert unhooked["mps"] and not any(m["control"]["control"] for m in unhooked["models"])
    assert len(published.experiment("alone", {}, under_mps=False)["models"]) == 1


def sluice_that(folder, *lines):
    fake = folder / "sluice"
    fake.write_text("\n".join(("#!/bin/sh", *lines, "")))
    fake.chmod(0o755)
    return fake


def test_a_run_that_fails_says_why(tmp_path):
    fake = sluice_that(tmp_path, "echo loading", "echo 'sluice run: no such model' >&2", "exit 1")
    with pytest.raises(RuntimeError, match=r"exited with 1: sluice run: no such model \(.*run\.txt\)$"):
        experiments.run_models(how(fake), tmp_path / "run", {"models": []})


@pytest.mark.parametrize("bench", ["published", "checks", "programs"])
def test_without_a_gpu_nothing_is_begun(tmp_path, monkeypatch, capsys, bench):
    """Else each of a hundred cells fails by itself."""
    fake = sluice_that(tmp_path, "echo 'sluice gpus: no NVIDIA driver' >&2", "exit 1")
    monkeypatch.setenv("SLUICE_PROGRAM", str(fake))
    monkeypatch.setattr("sys.argv", ["sluice bench", bench, "--out", str(tmp_path / "out")])
    assert cli.main() == 1
    assert capsys.readouterr().err == (
        "sluice bench: no NVIDIA GPU can be used: no NVIDIA driver; --gpu sim tries the command on the CPU\n"
    )
    assert not (tmp_path / "out").exists()


def test_what_is_missing_beside_a_gpu(tmp_path, monkeypatch, capsys):
    fake = sluice_that(tmp_path, """echo '{"devices": [{"uuid": "a", "name": "A"}, {"uuid": "b", "name": "B"}]}'""")
    monkeypatch.setenv("SLUICE_PROGRAM", str(fake))
    monkeypatch.setenv("PATH", str(tmp_path))

    def refused(*arguments):
        monkeypatch.setattr("sys.argv", ["sluice bench", *arguments, "--out", str(tmp_path / "o")])
        assert cli.main() == 2
        return capsys.readouterr().err

    assert "--device: found 2, and the last GPU here is 1" in refused("programs", "--device", "2")
    for arguments in (["published"], ["published", "--mode", "MPS"], ["checks", "--part", "parked"]):
        assert "PATH; --mode time-sliced does without" in refused(*arguments)
    assert "PATH; --modes time-sliced does without" in refused("programs", "--modes", "MPS + priority")
    assert refused("pairs") == "sluice bench: pairs is gone; use sluice bench programs --mixes pairs,graph\n"


def test_rows_come_from_the_results_of_the_run(tmp_path):
    model = {
        "log": "A",
        "pid": 7,
        "jobs": 3,
        "throughput_per_s": 9.0,
        "policy": "gate",
        "on_cpu": False,
        "collided": {"mean_ms": 4.0},
        "uncollided": None,
        "log_file": "A.log",
    }
    results = {"models": [model], "real_duration_s": 2.0, "time_scale": 10, "gpu": {"name": "G"}}
    entry = {"gated": 3, "captured": 1, "waited": 2}
    client = {
        "pid": 7,
        "bypassed": 5,
        "policy": "gate",
        "launches": 9,
        "held_total_ns": 2e6,
        "max_hold_opened": 0,
        "unknown_launches": 0,
        "longest_ns": 1000,
        "ungated_graph_ns": 0,
        "coverage": [entry, entry],
    }
    fake = sluice_that(
        tmp_path,
        f"echo '{json.dumps(results)}' > results.json",
        f"echo '{json.dumps({'clients': [client]})}' > status.json",
        "printf 'jct_ms\\n50\\n1\\n2\\n6\\n' > A.csv",
    )
    (found,) = experiments.measure(how(fake), tmp_path / "run", {"models": []}, {"A": "critical"})
    assert (found["collided_ms"], found["uncollided_ms"], found["bypassed"]) == (4.0, None, 5)
    # The first row of the log is the warm-up; 9 ms of jobs in 0.2 s of the GPU's time.
    assert (found["jobs"], found["p50_ms"], found["max_ms"]) == (3, 2.0, 6.0)
    assert found["active_share"] == pytest.approx(0.045)
    assert (found["role"], found["gated"], found["held_ms"]) == ("critical", 6, 2.0)


def test_a_launch_past_the_gate_fails_the_check():
    entry = {
        "entry": "cuLaunchKernel",
        "launches": 3,
        "gated": 2,
        "captured": 0,
        "waited": 1,
        "bypassed": {"unattached": 1},
    }
    unused = {**entry, "entry": "cuGraphLaunch", "launches": 0}
    rows = coverage._rows("p", [{"priority": 0, "unhooked_asked": 0, "coverage": [entry, unused]}])
    assert [row["entry"] for row in rows] == ["cuLaunchKernel"]
    assert coverage.failures(rows) == ["p, best effort: 1 launches of cuLaunchKernel bypassed"]


def test_outputs_that_differ_fail_the_check(tmp_path):
    fake = tmp_path / "sluice"
    # Model B gives another output when it runs beside A.
    fake.write_text(
        "#!/bin/sh\n"
        "grep -q '\"A\"' experiment.json && printf '0 aa\\n1 aa\\n' > A.digest\n"
        "grep -q '\"B\"' experiment.json || exit 0\n"
        "echo 0 bb > B.digest\n"
        "[ ! -e A.digest ] || echo 1 cc >> B.digest\n"
    )
    fake.chmod(0o755)
    asked = options(fake)
    asked.out, asked.modes = tmp_path / "out", ("time-sliced",)
    rows = outputs.run(asked)
    assert [(row["model"], row["equal"]) for row in rows] == [("A", True), ("B", False)] * 2
    assert len(outputs.failures(rows)) == 2
