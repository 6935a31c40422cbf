"""`sluice compare`: two commands of a user, on the simulated GPU."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sluice_tools.common.errors import CommandError
from sluice_tools.common.grammar import parse_target
from sluice_tools.compare import cli, show
from sluice_tools.compare.answer import Answer, decide
from sluice_tools.measure import commands, ends, table, verdict
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.summary import Entry, summarize, wait_of
from sluice_tools.measure.watch import Judged

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
    return {(row["cell"], row["role"]): row for row in Rows(folder / "out" / "compare.csv", cli.ROW_FIELDS).rows}


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
    # Every job of the critical command is seen, in the GPU's time: 20 kernels of 40 us, every 6 ms. The bounds
    # are wide, because a busy host delays jobs; a wrong unit is ten times off.
    alone = rows["alone", CRITICAL]
    assert 0.8 <= float(alone["p50_ms"]) < 4
    assert 10 <= int(alone["jobs"]) <= 150 / 6 + 6
    # Back to back, kernels of 100 us and what a launch costs.
    assert 3000 < float(rows["best effort alone", BEST_EFFORT]["per_s"]) <= 10000
    assert int(rows["device:200us", BEST_EFFORT]["waited"]) > 0
    assert rows["bare", BEST_EFFORT]["waited"] == "0"
    # Waits are counted alike in all cells, in the time of the GPU: almost all of a job, and next to others more.
    waits = {cell: wait_of(rows[cell, CRITICAL]) or 0.0 for cell in ("alone", "bare", "device:200us")}
    assert 0.5 <= waits["alone"] < 4 and waits["bare"] > waits["alone"] + 0.1, waits
    assert rows["bare", BEST_EFFORT]["waits_ms"] == "" and "waits ms" in out
    assert "SIMULATED" in out and "PROBABLY" in out and "after 1 round: the critical p50 is" in " ".join(out.split())
    table_of = out[: out.index("next: ")].splitlines()[3:]
    assert max(map(len, table_of)) <= 100
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "Latency against speed" in page and "device:200us: best effort" in page
    assert "| device:200us |" in (tmp_path / "out" / "compare.md").read_text()
    code, out, err = compare(tmp_path, "--policy", "device:200us", "--json")
    assert code == 0 and "4 of 4 cells are measured already" in err
    told = json.loads(out)
    assert [len(cell["wait_ms"]) for cell in told["cells"]].count(1) == 3
    assert told == json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (
        told["answer"] in ("YES", "NO") and told["sure"] is False and "one round has no spread" in told["verdict"][-1]
    )
    assert told["commands"][0].endswith("exec --gpu sim --priority 1 -- " + " ".join(_CRITICAL))


@needs_build
def test_a_target_is_a_row_with_the_share_that_kept_it(tmp_path):
    """Learning takes 32 jobs: what is measured before says nothing about the target."""
    code, out, err = compare(tmp_path, "--policy", "device:200us", "--target", "p99=3x", "--target", "p99=50ms")
    assert code == 0, err
    rows = rows_of(tmp_path)
    relative, absolute = rows["target p99=3x", CRITICAL], rows["target p99=50ms", CRITICAL]
    # The simulated GPU is ten times slower: its 50 ms are 500 ms for Sluice, and 50 ms in the row.
    assert absolute["target"] == "p99=500000us" and float(absolute["limit_ms"]) == pytest.approx(50)
    # The time alone is only of jobs next to nobody, so the critical command learns it before the other one starts.
    assert 0.8 * 3 <= float(relative["limit_ms"]) < 4 * 3
    for row in (relative, absolute):
        assert row["target_state"] in ("kept", "missed")
        assert 0 < int(row["target_kept"]) <= int(row["target_jobs"])
        assert int(row["target_jobs"]) == pytest.approx(int(row["jobs"]), abs=2)
    assert rows["target p99=50ms", BEST_EFFORT]["policy"] == "device:200us"
    assert rows["device:200us", CRITICAL]["target"] == ""
    lines = out.splitlines()
    assert any(line.startswith("condition") and line.endswith("in time") for line in lines)
    assert re.search(r"With target p99=50ms [0-9.]+ % of the critical jobs are in time", " ".join(lines))
    assert "<th>in time</th>" in (tmp_path / "out" / "compare.html").read_text()


@needs_build
def test_a_target_that_is_still_being_learned_is_said(tmp_path):
    slow = ["sluice-example-spin", "--kernels", "20", "--kernel-us", "40", "--period-ms", "30"]
    code, out, err = compare(
        tmp_path, "--policy", "device:200us", "--target", "p99=2x", "--start-limit", "3", critical=slow
    )
    assert code == 0, err
    row = rows_of(tmp_path)["target p99=2x", CRITICAL]
    assert row["target_state"] == "learning"
    assert "Under target p99=2x the critical command was still learning after 3 s (--start-limit)" in row["note"]
    assert "was still learning" in out


def test_a_target_is_given_to_sluice_in_real_time():
    def given(text, scale):
        return cli._for_exec(text, parse_target(text), scale)

    assert (given("p99=50ms", 10), given("p99=50ms", 1)) == ("p99=500000us", "p99=50ms")
    assert given("p50=1.5x", 10) == "p50=1.5x"


def test_the_share_in_time_is_cut_not_rounded():
    entry = Entry("", "", "target p99=1.2x", jobs=[2000], in_time=[0.9996], share=[0.9], limit_ms=[12.0])
    assert table.cells(entry)[-1] == "99.9 %"
    bare = Entry("", "", "device:200us", jobs=[2000], share=[0.7])
    assert verdict.judge_target("p99=1.2x", entry, bare) == (
        "With target p99=1.2x (12.00 ms) 99.9 % of the critical jobs are in time, and best effort keeps 90 % of its "
        "own speed; it keeps 70 % under device:200us without a target."
    )
    assert "in time" not in table.markdown([bare]) and "| in time |" in table.markdown([entry])


def test_targets_of_all_clients_count():
    """A program may be several processes: the slowest to learn decides, and their jobs are added."""

    def client(state, jobs, limit):
        return {"target": {"state": state, "jobs": jobs, "kept": jobs - 1, "limit_ns": limit}}

    both = {1: client("kept", 10, 5), 2: client("missed", 5, 7), 3: {"target": None}}
    assert Judged.of(both) == Judged(15, 13, 7, "missed", True)
    assert not Judged.of(both | {4: client("learning", 0, None)}).learned
    assert not Judged.of(both | {4: client("none", 1, None)}).learned
    assert not Judged.of({}).learned


@needs_build
def test_other_commands_need_another_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "commands.json").write_text("{}")
    code, _, err = compare(tmp_path)
    assert code == 2 and "holds the comparison of other commands" in err


@needs_build
def test_a_command_that_ends_by_itself_is_said(tmp_path):
    """It would do so in each cell: the others are not tried."""
    code, out, err = compare(tmp_path, "--json", critical=["sh", "-c", "echo no such model; exit 3"])
    assert (code, out) == (1, "")
    assert "sluice compare: the critical command exited with 3: no such model" in err
    assert len([line for line in err.splitlines() if "[" in line]) == 1


@needs_build
def test_a_command_that_uses_no_gpu_is_said(tmp_path):
    code, out, err = compare(tmp_path, "--start-limit", "5", best_effort=["sleep", "100"])
    assert code == 1
    assert "the best effort command has launched nothing on the GPU within 5 s" in err
    assert "\nalone " in out, "what is measured is shown"


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


def test_help_fits_80_columns(monkeypatch):
    """A terminal breaks longer lines within words."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli._parser().format_help().splitlines()
    assert max(map(len, lines)) <= 80


def test_the_command_line_is_three_parts():
    assert cli.split(["-x", "--", "a", "-b", "--", "c", "--", "d"]) == (["-x"], ["a", "-b"], ["c", "--", "d"])
    for wrong in ([], ["--"], ["--", "a"], ["--", "a", "--"], ["a", "--", "--", "b"]):
        with pytest.raises(CommandError):
            cli.split(wrong)


@pytest.mark.parametrize(
    "options",
    [
        ["--policy", "none"],
        ["--policy", "device:2ms"],
        ["--target", "fast"],
        ["--target", "p99=0.9x"],
        ["--seconds", "0"],
        ["--repeats", "0"],
        ["--ready", "8000"],
        ["--latency", "took ([0-9]+)"],
        ["--load", "true", "--latency", "took ([0-9]+"],
        ["--load", "true", "--latency", "took (?:[0-9]+)"],
        ["--load", "true", "--latency", "took (?P<minutes>[0-9]+)"],
    ],
)
def test_wrong_usage_runs_nothing(monkeypatch, capsys, tmp_path, options):
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["compare", "--out", str(tmp_path / "out"), *options, "--", "a", "--", "b"])
    assert cli.main() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "out").exists()


def _critical(cell: str, jobs: int, steps: int, **more) -> dict:
    row = dict.fromkeys(("role", *cli.ROW_FIELDS), "")
    figures = {"p50_ms": "5", "step_p50_ms": "1", "active_share": "0.3", "seen_share": "0.9"}
    return row | figures | {"cell": cell, "role": CRITICAL, "jobs": str(jobs), "steps": str(steps)} | more


@pytest.mark.parametrize(
    "found, counted",
    [
        ([(100, 0), (30, 0), (90, 0)], "jobs"),  # marked jobs
        ([(100, 300), (30, 90), (90, 270)], "jobs"),  # requests of three steps each
        ([(355, 355), (111, 111), (310, 310)], "jobs"),
        ([(0, 375), (0, 200), (0, 358)], "steps"),  # never idle
        ([(76, 353), (25, 111), (90, 277)], "steps"),  # jobs of 4.6 and of 3.1 steps
        ([(76, 353), (2, 111), (76, 353)], "steps"),
        ([(10, 10), (12, 12), (11, 11)], "jobs"),  # too few of both
        ([(10, 50), (12, 60), (11, 55)], "steps"),
        ([(400, 0), (300, 5), (1, 0)], "jobs"),
        ([], "jobs"),
    ],
)
def test_cells_are_compared_by_what_is_alike_in_all(found, counted):
    cells = zip(("alone", "bare", "device:200us"), found)
    rows = [_critical(cell, *figures) for cell, figures in cells]
    was, by = ends.chosen([*rows, {"role": BEST_EFFORT, "jobs": ""}])
    assert was == counted
    for row, (jobs, steps) in zip(by, found):
        of_steps = counted == "steps"
        assert row["jobs"] == str(steps if of_steps else jobs)
        assert row["p50_ms"] == ("1" if of_steps else "5")
        assert row["active_share"] == ("0.9" if of_steps else "0.3")


def test_the_latency_of_clients_needs_no_job():
    """Of a summary, nobody says how many requests it is of."""
    latency = {"alone": "5", "bare": "9", "device:200us": "6"}
    rows = [
        _critical(cell, 0, 0) | {"latency_of": "requests", "jobs": "", "p50_ms": ms} for cell, ms in latency.items()
    ]
    rows = [row | {"repeat": "1", "mode": "", "subject": "", "note": ""} for row in rows]
    counted, rows = ends.chosen(rows)
    answer = decide(rows, "bare", "device:200us", counted)
    assert counted == "requests" and answer.word == "YES", answer.text
    entries = summarize(rows, counted)
    assert [table.cells(entry)[1] for entry in entries] == ["-", "-", "-"]
    assert table.notes(entries)[0].startswith("Latency is the load generator's own (--latency).")
    assert table.head(entries)[1] == "requests"


def test_next_steps_are_for_the_same_gpu_and_not_what_has_just_failed(monkeypatch):
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere/sluice")
    options = argparse.Namespace(commands={CRITICAL: ["a"], BEST_EFFORT: ["b"]}, gpu="sim", json=False)
    answer = Answer("YES", True, ["YES"], ["start the two as below"])
    shown = show.Shown(options, ["GPU"], [], answer, [], [])
    assert [line.strip().split(" exec ")[1] for line in shown.text().splitlines() if " exec " in line] == [
        "--gpu sim --priority 1 -- a",
        "--gpu sim --priority 0 -- b",
    ]
    failed = show.Shown(options, ["GPU"], [], answer, [], ["Not measured: bare: exited with 7"])
    assert " exec " not in failed.text() + failed.markdown() + failed.page() and "mend" in failed.text()
    assert json.loads(failed.json())["commands"] == []


def test_a_command_that_is_waited_for_is_said(capsys, monkeypatch):
    """Prevents: silence for 300 s, because a best-effort command never uses the GPU."""
    monkeypatch.setattr(commands, "_SILENT_S", 0.0)

    class Nothing:
        counters = staticmethod(lambda role: {"launches": 0})
        check = staticmethod(lambda: None)

    class Runs:
        describe_end = staticmethod(lambda: "")
        said = staticmethod(lambda: "it said nothing")

    found = commands.Commands.__new__(commands.Commands)
    timing = commands.Timing(1, 1, 0.3)
    vars(found).update(_worked={BEST_EFFORT}, _running={BEST_EFFORT: Runs()}, _load=None, _timing=timing)
    with pytest.raises(CellError, match="has launched nothing on the GPU within"):
        found._wait_until_working((BEST_EFFORT,), Nothing())
    said = capsys.readouterr().err
    assert "the best effort command has launched nothing on the GPU yet; waits" in said and len(said.splitlines()) == 1
