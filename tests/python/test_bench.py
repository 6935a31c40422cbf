"""`sluice bench`: what is measured, what is kept, what is shown."""

import csv
import json
from types import SimpleNamespace

import pytest

from sluice_tools.bench import cli, coverage, experiments, outputs, programs
from sluice_tools.bench.results import Results, table


def options(program):
    return SimpleNamespace(sluice=str(program), gpu="sim", device=0, seconds=1)


def row(cell, repeat, model, **figures):
    return {"part": "p", "mode": "MPS", "cell": cell, "repeat": repeat, "model": model, **figures}


def test_a_cell_that_was_measured_is_not_measured_again(tmp_path):
    results = Results(tmp_path / "r.csv")
    results.add([row("none", 1, "A", mean_ms=1.5), row("none", 1, "B", mean_ms=None)])
    again = Results(tmp_path / "r.csv")
    assert again.has("p", "MPS", "none", 1)
    assert not again.has("p", "MPS", "none", 2)
    assert not again.has("p", "time-sliced", "none", 1)


def test_the_table_shows_median_and_range(tmp_path):
    results = Results(tmp_path / "r.csv")
    for repeat, mean in enumerate((3.0, 1.0, 2.0), 1):
        results.add([row("gate", repeat, "B", jobs=10, mean_ms=mean)])
    text = table(results.rows)
    assert "### p, MPS, 3 repeats" in text
    assert "| gate | B | 10 [10-10] | 2.00 [1.00-3.00] | - |" in text


def test_the_published_pair_is_that_of_the_published_files():
    content = experiments.experiment("event:2", {}, mps=False)
    low, high = content["models"]
    assert (low["priority"], low["resize_size"], low["control"]["policy"]) == (0, [1440, 2560], "event:2")
    assert (high["priority"], high["sleep_time"], high["control"]["control"]) == (1, 1, True)
    unhooked = experiments.experiment("no hook", {}, mps=True)
    assert unhooked["mps"] and not any(m["control"]["control"] for m in unhooked["models"])
    assert len(experiments.experiment("B alone", {}, mps=False)["models"]) == 1


def sluice_that(folder, *lines):
    fake = folder / "sluice"
    fake.write_text("\n".join(("#!/bin/sh", *lines, "")))
    fake.chmod(0o755)
    return fake


def test_a_run_that_fails_says_why(tmp_path):
    fake = sluice_that(tmp_path, "echo loading", "echo 'sluice run: no such model' >&2", "exit 1")
    with pytest.raises(RuntimeError, match=r"exited with 1: sluice run: no such model \(.*run\.txt\)$"):
        experiments.run(options(fake), tmp_path / "run", {"models": []})


@pytest.mark.parametrize("bench", ["published", "checks", "pairs"])
def test_without_a_gpu_nothing_is_begun(tmp_path, monkeypatch, capsys, bench):
    """Else each of a hundred cells fails by itself."""
    fake = sluice_that(tmp_path, "echo 'sluice gpus: no NVIDIA driver' >&2", "exit 1")
    monkeypatch.setenv("SLUICE_PROGRAM", str(fake))
    monkeypatch.setattr("sys.argv", ["sluice bench", bench, "--out", str(tmp_path / "out")])
    assert cli.main() == 1
    assert capsys.readouterr().err == (
        "sluice bench: it needs an NVIDIA GPU: no NVIDIA driver; --gpu sim tries the command on "
        "the CPU\n")
    assert not (tmp_path / "out").exists()


def test_what_is_missing_beside_a_gpu(tmp_path, monkeypatch, capsys):
    fake = sluice_that(tmp_path, """echo '{"devices": [{}, {}]}'""")
    monkeypatch.setenv("SLUICE_PROGRAM", str(fake))
    monkeypatch.setenv("PATH", str(tmp_path))

    def refused(*arguments):
        monkeypatch.setattr("sys.argv", ["sluice bench", *arguments, "--out", str(tmp_path / "o")])
        assert cli.main() == 2
        return capsys.readouterr().err

    assert "--device 2: of 2 GPUs here the last is 1" in refused("pairs", "--device", "2")
    for arguments in (["published"], ["published", "--mode", "MPS"], ["checks", "--part", "parked"]):
        assert "PATH; --mode time-sliced does without" in refused(*arguments)
    assert "PATH; --modes time-sliced does without" in refused("pairs")


def test_rows_come_from_the_results_of_the_run(tmp_path):
    model = {"log": "A", "pid": 7, "jobs": 3, "mean_ms": 2.0, "p50_ms": 2.0, "p99_ms": 2.5,
             "throughput_per_s": 9.0, "collided": {"mean_ms": 4.0}, "uncollided": None}
    client = {"pid": 7, "bypassed": 5, "policy": "gate"}
    fake = sluice_that(tmp_path,
                       f"echo '{json.dumps({'models': [model]})}' > results.json",
                       f"echo '{json.dumps({'clients': [client]})}' > status.json")
    (found,) = experiments.run(options(fake), tmp_path / "run", {"models": []})
    assert (found["collided_ms"], found["uncollided_ms"], found["bypassed"]) == (4.0, None, 5)


def test_the_time_of_a_step_is_that_between_two_moments():
    class Training:
        lines = [(1.0, "step 10: loss 3"), (2.0, "step 20: loss 3"), (3.0, "x"), (4.0, "step 40: l")]

    assert programs._step_ms(Training, 1.5, 5.0) == (100.0, 20)
    assert programs._step_ms(Training, 3.5, 5.0) == (None, 0)


def test_the_csv_can_be_read_by_others(tmp_path):
    results = Results(tmp_path / "r.csv")
    results.add([row("none", 1, "A", mean_ms=1.5)])
    with (tmp_path / "r.csv").open() as text:
        (read,) = csv.DictReader(text)
    assert (read["cell"], read["mean_ms"], read["p99_ms"]) == ("none", "1.5", "")


def test_a_launch_past_the_gate_fails_the_check():
    entry = {"entry": "cuLaunchKernel", "launches": 3, "gated": 2, "captured": 0, "waited": 1,
             "bypassed": {"unattached": 1}}
    unused = {**entry, "entry": "cuGraphLaunch", "launches": 0}
    rows = coverage._rows("p", [{"priority": 0, "unhooked_asked": 0, "coverage": [entry, unused]}])
    assert [row["entry"] for row in rows] == ["cuLaunchKernel"]
    assert coverage.failures(rows) == ["p, best effort: 1 launches of cuLaunchKernel bypassed"]


def test_outputs_that_differ_fail_the_check(tmp_path):
    fake = tmp_path / "sluice"
    # Model B gives another output when it runs beside A.
    fake.write_text("#!/bin/sh\n"
                    "grep -q '\"A\"' experiment.json && printf '0 aa\\n1 aa\\n' > A.digest\n"
                    "grep -q '\"B\"' experiment.json || exit 0\n"
                    "echo 0 bb > B.digest\n"
                    "[ ! -e A.digest ] || echo 1 cc >> B.digest\n")
    fake.chmod(0o755)
    asked = options(fake)
    asked.out, asked.modes = tmp_path / "out", ("time-sliced",)
    rows = outputs.run(asked)
    assert [(row["model"], row["equal"]) for row in rows] == [("A", True), ("B", False)] * 2
    assert len(outputs.failures(rows)) == 2
