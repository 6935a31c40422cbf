"""`sluice bench programs` as it runs: its programs, sessions and daemons, replaced by stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE
from sluice_stand_in import StandIns
from sluice_tools.bench.common import talker
from sluice_tools.bench.programs import cli, plan, stage, starting, workers
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.measure import programs
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows

MIX = "vit-graph+prefill"


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    stand_ins = StandIns(tmp_path / "stand-ins")
    monkeypatch.setenv("SLUICE_PROGRAM", str(stand_ins.sluice))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv("PATH", f"{stand_ins.folder}:{os.environ['PATH']}")
    for module, name in (
        (stage, "SETTLE_S"),
        (stage, "_ASK_S"),
        (stage, "_FORGET_S"),
        (stage, "MORE_FOR_SEVERAL_S"),
        (cli, "SETTLE_S"),
    ):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(talker, "_QUIT_S", 0.5)
    monkeypatch.setattr(programs, "_END_S", 0.5)

    def run(*arguments, out=tmp_path / "out"):
        capsys.readouterr()
        stand_in = Path(__file__).parent / "programs_stand_in.py"
        given = ("--mixes", MIX, "--window", "0.3", "--rounds", "1:1", "--learn", "0", "--commit", "c0ffee")
        code = cli.main([*given, "--programs", str(stand_in), "--out", str(out), *arguments])
        return code, capsys.readouterr()

    run.stand_ins, run.out = stand_ins, tmp_path / "out"
    return run


def rows_of(bench) -> Rows:
    return Rows(bench.out / "programs.csv", FIELDS)


def measured(bench) -> list:
    return [(row["cell"], row["repeat"], row["client"]) for row in rows_of(bench).rows]


def gone(pids) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_mix_is_measured_in_turns_and_not_measured_again(bench):
    code, said = bench("--rounds", "2:2")
    assert code == 0, said.err
    cells = ["alone", "best effort alone", "bare", "default"]
    assert list(dict.fromkeys((cell, round_) for cell, round_, _ in measured(bench))) == [
        *((cell, "1") for cell in cells),
        *((cell, "2") for cell in reversed(cells)),
    ]
    rows = {(row["cell"], row["role"]): row for row in rows_of(bench).rows}
    assert float(rows["alone", CRITICAL]["p50_ms"]) >= 1 and int(rows["bare", CRITICAL]["jobs"]) > 0
    assert 1 < float(rows["best effort alone", BEST_EFFORT]["per_s"]) < 500
    # Only what may be held is counted.
    assert rows["bare", BEST_EFFORT]["launches"] == ""
    assert int(rows["default", BEST_EFFORT]["launches"]) > 0 and rows["default", BEST_EFFORT]["slice"] == "short"
    assert rows["default", CRITICAL]["closes"] == "later:5" and rows["default", CRITICAL]["commit"] == "c0ffee"
    assert rows["default", CRITICAL]["priority"] == "1" and rows["default", CRITICAL]["gpu"] == "stand-in"
    # All conditions are in the same two processes.
    pids = bench.stand_ins.client_pids()
    assert len(pids) == 2 and gone(pids) and len({row["loaded"] for row in rows_of(bench).rows}) == 1
    assert "equal to the bit in 1 of 1" in said.out and "commit c0ffee" in said.out
    assert "1 mixes and modes, 2 rounds: about" in said.err
    assert bench("--rounds", "2:2")[0] == 0
    assert bench.stand_ins.client_pids() == pids


def test_rounds_go_on_in_the_same_processes_until_all_is_decided(bench, monkeypatch):
    def undecided(rows):
        return {"default": ["critical p50", "waits"]} if max(int(row["repeat"]) for row in rows) < wanted else {}

    monkeypatch.setattr(cli.rounds, "undecided", undecided)
    wanted = 3
    code, said = bench("--rounds", "2:4")
    assert code == 0, said.err
    assert [repeat for cell, repeat, _ in measured(bench) if cell == "alone"] == ["1", "2", "3"]
    assert "round 3 of at most 4, because undecided: default: critical p50, waits" in said.err
    assert len(bench.stand_ins.client_pids()) == 2
    assert "rounds go on until each axis is decided, at most 4" in said.err
    # All is decided; then it is not any more, and at last there are the most rounds.
    assert bench("--rounds", "2:4")[0] == 0 and len(bench.stand_ins.client_pids()) == 2
    wanted = 9
    code, said = bench("--rounds", "2:4")
    assert code == 0 and "round 4 of at most 4" in said.err and len(bench.stand_ins.client_pids()) == 4
    assert max(repeat for _, repeat, _ in measured(bench)) == "4"
    assert bench("--rounds", "2:4")[0] == 0 and len(bench.stand_ins.client_pids()) == 4


def test_a_round_that_was_begun_is_ended(bench, monkeypatch):
    monkeypatch.setattr(cli.rounds, "undecided", lambda rows: {})
    assert bench("--rounds", "2:2")[0] == 0
    lines = (bench.out / "programs.csv").read_text().splitlines()
    kept = [line for line in lines if ",default,2," not in line]
    (bench.out / "programs.csv").write_text("\n".join(kept) + "\n")
    assert bench("--rounds", "1:2")[0] == 0
    assert ("default", "2") in {(cell, repeat) for cell, repeat, _ in measured(bench)}


def test_a_cell_that_fails_in_a_further_round_ends_the_mix(bench, monkeypatch):
    """Or it would be tried again and again."""
    monkeypatch.setattr(cli.rounds, "undecided", lambda rows: {"default": ["waits"]})
    monkeypatch.setenv("STAND_IN_DIES", "prefill")
    code, said = bench("--rounds", "1:3")
    assert code == 1 and said.err.count("ended before") == 1


def test_conditions_are_settings_of_the_running_programs(bench):
    code, said = bench(
        "--conditions", "default,slice=off policy=device:400us,weights=3:1", "--mixes", MIX + "+unet-batch"
    )
    assert code == 0, said.err
    bare = "--priority 0 --policy none --slice off --weight none"
    of = {name: [line.removeprefix(name).strip() for line in bench.stand_ins.settings() if line.startswith(name)]
          for name in ("vit-graph#0", "prefill", "unet-batch")}  # fmt: skip
    assert of["vit-graph#0"] == [bare, "--priority 1 --policy device:200us --slice auto --weight none"]
    best = "--priority 0 --policy device:200us --slice auto --weight"
    off = "--priority 0 --policy device:400us --slice off --weight none"
    assert of["prefill"] == [bare, f"{best} none", off, f"{best} 3"]
    assert of["unet-batch"] == [bare, f"{best} none", off, f"{best} 1"]


def test_what_cannot_be_set_has_a_process_of_its_own_and_is_compared_with_itself(bench):
    code, said = bench("--conditions", "default,target=p99=50ms,give=0", "--rounds", "2:2")
    assert code == 0, said.err
    assert len(bench.stand_ins.client_pids()) == 4  # the best-effort program once
    cells = {cell for cell, _, _ in measured(bench)}
    assert {"alone, target=p99=50ms", "alone, give=0", "target=p99=50ms", "give=0"} < cells
    # Nobody else's process holds anybody meanwhile.
    assert "vit-graph#1 --priority 0" in bench.stand_ins.settings()


def test_a_program_that_announces_is_a_process_of_its_own(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_NOTES", str(notes := tmp_path / "notes.txt"))
    mixes = "resnet50-graph+prefill,resnet50-graph-busy+prefill"
    code, said = bench("--conditions", "announce=2ms,give=0,announce=1500us give=0", "--mixes", mixes)
    assert code == 0, said.err
    told = [line for line in notes.read_text().splitlines() if line.startswith("resnet50-graph ")]
    assert sorted(line.split()[-1] for line in told) == ["0.0", "0.0", "1.5", "2.0"]
    cells = {row["cell"]: row["announced"] for row in rows_of(bench).rows if row["client"] == "resnet50-graph"}
    # The stand-in is not under Sluice, so Sluice is told of nothing.
    assert cells["alone, announce=2ms"] == cells["announce=2ms"] == "0" and cells["bare"] == cells["give=0"] == ""
    # Nobody knows when a request comes that is sent back to back.
    busy = {row["cell"] for row in rows_of(bench).rows if row["client"] == "resnet50-graph-busy"}
    assert busy == {"alone", "alone, give=0", "bare", "give=0"}


def test_only_the_missing_windows_are_measured(bench):
    assert bench()[0] == 0
    lines = (bench.out / "programs.csv").read_text().splitlines()
    kept = [line for line in lines if ",default,1," not in line]
    (bench.out / "programs.csv").write_text("\n".join(kept) + "\n")
    code, said = bench()
    assert code == 0 and "3 of 4 cells are measured already" in said.err
    assert len(bench.stand_ins.client_pids()) == 4 and "default" in {cell for cell, _, _ in measured(bench)}


@pytest.mark.parametrize("fault, says", [("DIES", "ended before"), ("LACKS", "No module named 'gone'")])
def test_a_program_that_fails_is_a_line_in_the_table(bench, monkeypatch, fault, says):
    monkeypatch.setenv(f"STAND_IN_{fault}", "jax-gradient")
    code, said = bench("--mixes", f"resnet50+jax-gradient,{MIX}")
    assert code == 1
    (line,) = [line for line in said.out.splitlines() if line.startswith("Not measured")]
    assert "jax-gradient" in line and says in line
    assert {row["subject"] for row in rows_of(bench).rows if row["cell"] == "bare"} == {MIX}
    log = (bench.out / "jax-gradient.log").read_text()
    assert ("out of memory" if fault == "DIES" else "ModuleNotFoundError") in log
    assert gone(bench.stand_ins.client_pids())


def test_a_program_that_hangs_ends_at_the_limit(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_HANGS", "prefill")
    monkeypatch.setattr(starting, "ANSWER_S", 5)
    code, said = bench()
    assert code == 1 and "prefill: no 'running' in 5 s" in said.out
    assert [cell for cell, _, _ in measured(bench)] == ["alone"]
    assert gone(bench.stand_ins.client_pids())


def test_other_outputs_are_found(bench, monkeypatch):
    monkeypatch.setenv("STAND_IN_WRONG", "vit-graph")
    _, said = bench("--conditions", "give=0", "--rounds", "2:2")
    assert "OUTPUTS DIFFER in" in said.out and "equal to the bit in 0 of 1" in said.out


def test_three_priorities_and_two_best_effort_programs(bench):
    code, said = bench("--mixes", "vit-graph+resnet50+prefill+cupy-arrays")
    assert code == 0, said.err
    rows = [row for row in rows_of(bench).rows if row["cell"] == "default"]
    assert {row["client"]: (row["role"], row["priority"]) for row in rows} == {
        "vit-graph": (CRITICAL, "2"),
        "resnet50": ("middle", "1"),
        "prefill": (BEST_EFFORT, "0"),
        "cupy-arrays": (BEST_EFFORT, "0"),
    }


def test_a_mix_without_a_critical_program(bench):
    code, said = bench("--mixes", "kernels-1ms+kernels-1ms:2", "--conditions", "weights=3:1", "--rounds", "2:2")
    assert code == 0, said.err
    assert {cell for cell, _, _ in measured(bench)} == {"best effort alone", "bare", "weights=3:1"}
    assert " + " in said.out


def test_under_mps_best_effort_has_the_lower_priority(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_NOTES", str(notes := tmp_path / "notes.txt"))
    code, said = bench("--modes", "MPS + priority", "--conditions", "default,target=p90=2x")
    assert code == 0, said.err
    assert sorted(notes.read_text().splitlines()) == [
        "prefill 1 - 0.0", "vit-graph 0 - 0.0", "vit-graph 0 p90=2x 0.0"
    ]  # fmt: skip
    assert {row["mode"] for row in rows_of(bench).rows} == {"MPS + priority"}
    assert len(bench.stand_ins.daemon_pids()) == 1 and gone(bench.stand_ins.daemon_pids())


def test_the_shell_does_not_choose_what_runs_under_mps(monkeypatch, tmp_path):
    """A measurement from a shell with SLUICE_MPS=1 would have two daemons, and no time slicing."""
    monkeypatch.setenv("SLUICE_MPS", "1")
    monkeypatch.setenv("SLUICE_SMS", "25%")
    (sluice := tmp_path / "sluice").write_text('#!/bin/sh\necho "{\\"seen\\": \\"$SLUICE_MPS/$SLUICE_SMS/$OWN\\"}"\n')
    sluice.chmod(0o755)
    started = programs.Session(str(sluice)).start(["x"], 0, "none", {"OWN": "1"})
    assert started.result() == {"seen": "0//1"}


def test_each_width_has_processes_and_one_at_a_time_works(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_TURNS", str(tmp_path / "turns.txt"))
    given = "default,sms=50%,bare+sms=25%,sms=50%+target=step p99=1.2x"
    code, said = bench("--modes", "time-sliced,MPS + priority", "--conditions", given, "--mixes", MIX + "+unet-batch")
    assert code == 0, said.err
    turns = [line.split() for line in (tmp_path / "turns.txt").read_text().splitlines()]
    turns = [turn for turn in turns if turn[0] != "vit-graph"]
    running: set = set()
    for name, width, do in turns:
        running = running | {(name, width)} if do == "run" else running - {(name, width)}
        assert len({of for _, of in running}) <= 1, turns
    # Time-sliced, there are no widths; under MPS, a process for each.
    assert [list(dict.fromkeys(w for n, w, _ in turns if n == name)) for name in ("prefill", "unet-batch")] == [
        ["all", "50", "25"]
    ] * 2
    assert len(bench.stand_ins.client_pids()) == 3 + 2 + 3 * 2
    cells = {mode: {row["cell"] for row in rows_of(bench).rows if row["mode"] == mode} for mode in plan.MODES}
    fixed = {"alone", "best effort alone", "bare", "default"}
    own = "sms=50%+target=step p99=1.2x"
    assert cells == {plan.TIME_SLICED: fixed, plan.MPS_PRIORITY: fixed | {*given.split(","), f"alone, {own}"}}
    # A width is a setting of its processes alone, and its rows are of the same program.
    set_ = set(bench.stand_ins.settings())
    best = "--priority 0 --policy device:200us --slice auto --weight none"
    assert f"prefill#50 {best}" in set_ and "prefill#25 --priority 0 --policy none --slice off --weight none" in set_
    assert not any(line.startswith("prefill#") and "--slice off" in line for line in set_ if "#50" in line)
    rows = [row for row in rows_of(bench).rows if row["role"] == BEST_EFFORT]
    assert {row["client"] for row in rows} == {"prefill", "unet-batch"}
    assert all(row["launches"] for row in rows if row["cell"] in ("default", "sms=50%", own))


def test_the_processes_of_a_width_that_is_measured_are_not_loaded_again(bench, tmp_path, monkeypatch):
    given = ("--modes", "MPS + priority", "--conditions")
    assert bench(*given, "sms=50%")[0] == 0
    before = len(bench.stand_ins.client_pids())
    monkeypatch.setenv("STAND_IN_NOTES", str(notes := tmp_path / "notes.txt"))
    assert bench(*given, "sms=50%,policy=none")[0] == 0
    assert before == 3 and len(notes.read_text().splitlines()) == 2  # the critical program, and the one of all SMs


def test_workers_measure_into_one_file(bench):
    code, said = bench("--mixes", f"{MIX},vit-graph+cupy-arrays", "--gpus", "2", "--gpu", "sim", "--window", "1.1")
    assert code == 0, said.err
    assert {row["subject"] for row in rows_of(bench).rows} == {MIX, "vit-graph+cupy-arrays"}
    assert len(rows_of(bench).rows) == 12 and "0 of 2 are worse" in said.out


def test_the_mixes_are_spread_evenly():
    sizes = [len(part) for part in workers.parts(list(plan.MIXES), 5)]
    assert sum(sizes) == len(plan.MIXES) and max(sizes) - min(sizes) <= 1
    assert workers.parts([1], 3) == [[1]]


def two_gpus(monkeypatch):
    devices = [{"name": "stand-in", "uuid": f"GPU-{index}"} for index in range(2)]
    monkeypatch.setattr(cli, "gpus", lambda *_: {"devices": devices})


def test_a_gang_sees_two_gpus_and_the_others_one(bench, monkeypatch, tmp_path):
    two_gpus(monkeypatch)
    monkeypatch.setenv("STAND_IN_GPUS", str(notes := tmp_path / "gpus.txt"))
    code, said = bench("--mixes", "resnet50+resnet50@1+ddp-training", "--device", "1")
    assert code == 0, said.err
    assert sorted(notes.read_text().splitlines()) == [
        "ddp-training GPU-1,GPU-0", "resnet50 GPU-1", "resnet50@1 GPU-0"
    ]  # fmt: skip


def test_a_mix_for_two_gpus_is_skipped_with_a_line(bench, monkeypatch):
    mixes = ("--mixes", f"{MIX},resnet50+ddp-training")
    code, said = bench(*mixes)
    assert code == 0 and "resnet50+ddp-training: skipped, needs 2 GPUs, and there is one" in said.err
    assert {row["subject"] for row in rows_of(bench).rows} == {MIX}
    two_gpus(monkeypatch)
    assert "--gpus measures on one GPU at a time" in bench(*mixes, "--gpus", "2")[1].err


def test_smoke_says_of_each_program_whether_it_works(bench, monkeypatch):
    monkeypatch.setattr("sluice_tools.bench.programs.smoke._SECONDS", 0.1)
    monkeypatch.setattr("sluice_tools.bench.programs.smoke._AT_ONCE", 15)
    monkeypatch.setenv("STAND_IN_LACKS", "gpt2")
    code, said = bench("--smoke")
    lines = {line.split()[0]: line for line in said.out.splitlines()}
    assert code == 1 and set(plan.PROGRAMS) <= lines.keys()
    assert "FAILED: ModuleNotFoundError: No module named 'gone'" in lines["gpt2"] and "gpt2.log" in lines["gpt2"]
    assert "p50" in lines["decode"] and "steps/s" in lines["prefill"] and "two GPUs" in lines["ddp-training"]
    on_one = sum(program.gpus == 1 for program in plan.PROGRAMS.values())
    assert f"{on_one - 1} of {on_one} programs work" in said.out
    assert not (bench.out / "programs.csv").exists()


def test_the_table_is_made_again_without_a_gpu(bench, monkeypatch, capsys):
    assert bench("--rounds", "2:2")[0] == 0
    before = (bench.out / "programs.md").read_text()
    (bench.out / "programs.md").unlink()
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere")
    assert cli.main(["--table", str(bench.out)]) == 0
    assert (bench.out / "programs.md").read_text() == before == capsys.readouterr().out.split("rows:")[0]
    assert cli.main(["--table", str(bench.out), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdicts"][0]
    assert verdict["subject"] == MIX and verdict["judgments"][0]["word"] and verdict["text"].startswith(MIX)


# Prevents: a traceback for the CSV of a version with other programs.
def test_the_table_of_an_unknown_program(bench, capsys):
    assert bench()[0] == 0
    table = bench.out / "programs.csv"
    table.write_text(table.read_text().replace("prefill", "prefill-of-tomorrow"))
    assert cli.main(["--table", str(bench.out)]) == 0
    assert "- `prefill-of-tomorrow`: not a program of this version" in capsys.readouterr().out


def test_more_gpus_than_there_are(bench):
    code, said = bench("--gpus", "2")
    assert (code, said.err) == (2, "sluice bench: --gpus: found 2, and there are 1 GPUs here\n")


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--mixes", "prefill+vit-graph"], "'prefill+vit-graph': prefill serves no requests, so it cannot come first"),
        (["--mixes", "vit-graph"], "'vit-graph' does not name two or more different programs"),
        (["--mixes", "vit-graph+vit"], "'vit' is not one of"),
        (["--mixes", "vit-graph+resnet50"], "'vit-graph+resnet50' has no program that makes steps"),
        (["--modes", "MPS"], "'MPS' is not one of time-sliced, MPS + priority"),
        (["--conditions", "target=p42=50ms"], "'p42=50ms' is not a target"),
        (["--conditions", "target=p99=0.5x"], "'p99=0.5x' is not a target: p99=50ms"),
        (["--conditions", "policy=fast"], "'policy=fast' is not a condition: bare, default, or words such as"),
        (["--conditions", "slice=12"], "'slice=12' is not a condition"),
        (["--conditions", "weights=3:x"], "'weights=3:x' is not a condition"),
        (["--conditions", "announce=2"], "'announce=2' is not a condition"),
        (["--conditions", "sms=0%"], "'sms=0%' is not a width: sms=all, or sms=1% to sms=99% of the SMs"),
        (["--conditions", "sms=101%"], "'sms=101%' is not a width"),
        (["--conditions", "sms=66"], "'sms=66' is not a width"),
        (["--conditions", "sms=50%+sms=25%"], "'sms=50%+sms=25%' is not a condition"),
        (["--conditions", "sms=50%"], "sms= needs MPS: --modes 'MPS + priority'"),
        (["--conditions", ""], "a condition has no name"),
        (["--window", "0.9"], "--window must be above 0.9: its first 0.9 s do not count"),
        (["--learn", "-1"], "--learn must be 0 or more"),
        (["--rounds", "0"], "'0' is not a number of rounds, as 5, or 5:12"),
        (["--rounds", "5:4"], "'5:4': the most rounds are fewer than the least"),
        (["--rounds", "5:"], "'5:' is not a number of rounds"),
        (["--gpus", "0"], "--gpus must be above 0"),
        (["--gpus", "2", "--device", "1"], "--gpus takes the first N GPUs"),
        (["--table", "/nowhere"], "no programs.csv in /nowhere"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, says):
    try:
        code = cli.main(arguments)
    except SystemExit as ended:
        code = ended.code
    line = capsys.readouterr().err
    assert code == 2 and says in line and line.count("\n") == 1, line


def test_nothing_is_begun_that_would_end_after_the_limit(bench):
    code, said = bench("--limit-s", "0.5")
    assert code == 0 and "windows are left; the same command goes on" in said.err
    assert not rows_of(bench).rows


def test_a_signal_ends_the_programs(bench):
    stand_in = str(Path(__file__).parent / "programs_stand_in.py")
    command = ["programs", "--programs", stand_in, "--mixes", MIX, "--window", "1.0", "--learn", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice_tools.bench", *command, "--out", str(bench.out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    for line in process.stderr:
        if "critical:" in line:
            break
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert len(bench.stand_ins.client_pids()) == 2 and gone(bench.stand_ins.client_pids())
    assert len(rows_of(bench).rows) == 1


def test_a_program_that_does_not_answer_is_an_error():
    silent = talker.Talker([sys.executable, "-c", "import sys; sys.stdin.read()"], {})
    try:
        with pytest.raises(RuntimeError, match="no 'loaded' in 0 s"):
            silent.ask("load", "loaded", 0.1)
        silent.process.stdin.close()
        with pytest.raises(RuntimeError, match="ended before"):
            silent.hear("loaded", 10)
    finally:
        silent.process.kill()
        silent.process.wait()
