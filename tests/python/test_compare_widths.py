"""`sluice compare --mps`: a width that is recommended for noise, or MPS where it gains nothing, shares faults for
nothing; widths that are measured in other processes than they say give a wrong answer."""

import argparse
import itertools
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sluice_tools.compare import cli, show
from sluice_tools.compare.answer import Answer
from sluice_tools.compare.choice import FAULTS, MPS_PRIORITY, TIME_SLICED, WIDTHS, Way, cell_of, choose
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Rows

CONDITION = "device:200us"
MODES = [TIME_SLICED, MPS_PRIORITY]
NOISE = (0.99, 1.0, 1.01, 1.0)


def rows(ways: dict, jobs: int = 500, noise=NOISE, cell: str = CONDITION, **counts) -> list[dict]:
    """ways: by width, and 0 for time-sliced: (p99 of the critical command in ms, share of best effort[, in time]).
    Alone, a request takes 1 ms time-sliced and 1.1 ms under MPS, and best effort makes 1000 and 500 launches a
    second."""
    found = []

    def add(mode, name, role, repeat, **figures):
        base = {"mode": mode, "cell": name, "role": role, "repeat": str(repeat)}
        found.append(base | {key: str(value) for key, value in figures.items()})

    for repeat, factor in enumerate(noise, 1):
        for mode, alone, speed in ((TIME_SLICED, 1.0, 1000), (MPS_PRIORITY, 1.1, 500)):
            add(mode, "alone", CRITICAL, repeat, p50_ms=alone / 2, p99_ms=alone, jobs=jobs)
            add(mode, "best effort alone", BEST_EFFORT, repeat, per_s=speed)
        for width, (ms, share, *in_time) in ways.items():
            mode, speed = (MPS_PRIORITY, 500) if width else (TIME_SLICED, 1000)
            name = cell_of(cell, width or 100)
            kept = {"target_jobs": 1000, "target_kept": 1000 * in_time[0]} if in_time else {}
            add(mode, name, CRITICAL, repeat, p50_ms=ms / 2, p99_ms=factor * ms, jobs=jobs, **kept)
            add(mode, name, BEST_EFFORT, repeat, per_s=speed * share * (factor if width else 1))
    return found


# A server that is never idle: time slicing leaves nothing.
BUSY = {0: (1.02, 0.04), 100: (1.03, 0.1), 50: (1.05, 0.3), 25: (1.03, 0.2), 12: (1.02, 0.1)}


def test_most_best_effort_at_the_latency_of_time_slicing():
    found = choose(rows(BUSY), CONDITION)
    assert found.way == Way(MPS_PRIORITY, CONDITION, 50) and found.sure
    assert found.way.flags == (" --mps", " --mps --sms 50%")
    assert found.text.startswith(
        "Start best effort under MPS with 50 % of the SMs (sluice exec --mps --sms 50%): "
        "critical p99 1.050 ms (0.95 × alone), best effort 30 %; time-sliced: critical p99 1.020 ms "
        "(1.02 × alone), best effort 4 %; that is +26 points of best effort ("
    )
    assert found.text.endswith(FAULTS)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_width_can_be_the_best(width):
    found = choose(rows(BUSY | {width: (1.02, 0.5)}), CONDITION)
    assert found.way.width == width and found.way.flags[1].endswith("--sms all" if width == 100 else f"--sms {width}%")


def test_a_width_that_costs_latency_is_not_chosen():
    slow = {0: (1.0, 0.04), 100: (1.06, 0.9), 50: (1.2, 0.9), 25: (1.04, 0.2), 12: (1.0, 0.1)}
    assert choose(rows(slow), CONDITION).way.width == 25
    found = choose(rows({0: (1.0, 0.04), 50: (1.2, 0.9), 25: (1.06, 0.5)}), CONDITION)
    assert found.way == Way(TIME_SLICED, CONDITION) and found.way.flags == ("", "")
    assert (
        found.text == ("Stay time-sliced: no width under MPS keeps a latency within 5 % of that of time slicing.")
        and found.sure
    )


def test_mps_that_gains_nothing_is_not_recommended():
    found = choose(rows({0: (1.0, 0.6), 100: (1.02, 0.61), 50: (1.0, 0.5), 25: (0.99, 0.3)}), CONDITION)
    assert found.way.mode == TIME_SLICED and found.sure
    assert (
        "MPS gains nothing that pays for its shared faults; best effort under MPS with all SMs: critical" in found.text
    )


def test_a_lower_latency_at_the_same_speed_pays():
    found = choose(rows({0: (2.0, 0.6), 100: (1.9, 0.6), 50: (1.5, 0.59), 25: (1.2, 0.3)}), CONDITION)
    assert found.way.width == 50 and found.sure


def test_of_widths_that_give_best_effort_the_same_the_fastest_is_chosen():
    assert choose(rows(BUSY | {100: (1.05, 0.31), 50: (1.03, 0.30)}), CONDITION).way.width == 50


def test_a_gain_that_may_be_noise_is_not_sure():
    ways = {0: (1.0, 0.3), 50: (1.0, 0.36), 25: (1.0, 0.1)}
    sure, unsure = (choose(rows(ways, noise=noise), CONDITION) for noise in (NOISE, (0.4, 1.0, 1.7, 0.9)))
    assert sure.sure and not unsure.sure and unsure.way.width == 50
    once = choose(rows(ways, noise=(1.0,)), CONDITION)
    assert not once.sure and "+6 points of best effort. MPS" in once.text and once.text.startswith("Probably start")
    assert not choose(rows({0: (1.0, 0.3), 50: (2.0, 0.36)}, noise=(1.0,)), CONDITION).sure
    # A width that may gain much is looked at again.
    maybe = choose(rows({0: (1.0, 0.3), 50: (1.0, 0.31)}, noise=(0.4, 1.0, 1.7, 0.9)), CONDITION)
    assert maybe.way.mode == TIME_SLICED and not maybe.sure


def test_with_few_requests_the_p50_counts():
    assert "critical p50 0.525 ms (0.95 × alone)" in choose(rows(BUSY, jobs=50), CONDITION).text


TARGET = "step p99=1.2x"
KEPT = {0: (1.02, 0.04, 0.995), 100: (1.2, 0.6, 0.95), 50: (1.12, 0.46, 0.991), 25: (1.05, 0.3, 0.999)}


def test_with_a_target_the_way_that_keeps_it_and_gives_most():
    found = choose(rows(KEPT, cell="target"), "target", TARGET)
    assert found.way == Way(MPS_PRIORITY, "target", 50) and found.sure
    start = "Start best effort under MPS with 50 % of the SMs for step p99=1.2x (sluice exec --mps --sms 50%): "
    assert found.text.startswith(start)
    assert "99.1 % in time, best effort 46 %" in found.text
    # By the percentile of the target, to one point, of the steps of all rounds.
    worse = rows(KEPT, cell="target")
    first = next(row for row in worse if row["cell"] == "target, sms=50%" and "target_kept" in row)
    for kept, width in ((950, 50), (940, 25)):
        first["target_kept"] = str(kept)
        assert choose(worse, "target", TARGET).way.width == width
    assert choose(worse, "target", "step p95=1.2x").way.width == 100


def test_a_target_that_only_mps_keeps_needs_no_gain():
    ways = {0: (1.5, 0.6, 0.5), 100: (1.5, 0.7, 0.5), 12: (1.02, 0.1, 0.99)}
    assert choose(rows(ways, cell="t"), "t", "p99=9ms").way.width == 12
    for noise in (NOISE, (1.0,)):
        slower = choose(rows({0: (1.5, 0.6, 0.5), 12: (1.6, 0.1, 0.99)}, cell="t", noise=noise), "t", "p99=9ms")
        assert slower.way.width == 12 and slower.sure == (noise == NOISE)
    none = choose(rows({0: (1.5, 0.6, 0.5), 50: (1.5, 0.7, 0.7), 12: (1.02, 0.1, 0.6)}, cell="t"), "t", "p99=9ms")
    assert none.way.mode == TIME_SLICED
    assert none.text.startswith(
        "Neither time slicing nor a width under MPS keeps p99=9ms; nearest is best effort under MPS with 50 % of the "
    )
    stay = choose(rows({0: (1.5, 0.6, 0.99), 50: (1.5, 0.7, 0.5)}, cell="t"), "t", "p99=9ms")
    assert stay.text == "Stay time-sliced for p99=9ms: no width under MPS keeps p99=9ms."


@pytest.mark.parametrize("left_out", ["time-sliced", "MPS", "best effort alone", "alone", "pairs"])
def test_what_is_missing_is_no_choice_and_no_failure(left_out):
    found = rows(BUSY)
    if left_out in (TIME_SLICED, "MPS"):
        mode = TIME_SLICED if left_out == TIME_SLICED else MPS_PRIORITY
        found = [row for row in found if row["mode"] != mode]
    elif left_out == "pairs":
        found = [row for row in found if (row["mode"] == TIME_SLICED) == (row["repeat"] in "12")]
    else:
        found = [row for row in found if row["cell"] != left_out]
    # Without the critical command alone, latencies are compared, but not said in times of it.
    assert (choose(found, CONDITION) is None) == (left_out != "alone")


def test_a_round_without_its_own_alone_is_compared_with_that_of_others():
    found = [row for row in rows(BUSY) if "alone" not in row["cell"] or row["repeat"] == "1"]
    assert choose(found, CONDITION).sure and choose(found, CONDITION).text == choose(rows(BUSY), CONDITION).text


def test_starved_best_effort_counts_as_a_round():
    assert choose(rows(BUSY | {0: (1.02, 0.0)}), CONDITION).way.width == 50


def test_the_commands_are_those_of_the_choice(monkeypatch):
    monkeypatch.setenv("SLUICE_PROGRAM", "/nowhere/sluice")
    options = argparse.Namespace(commands={CRITICAL: ["a"], BEST_EFFORT: ["b"]}, gpu="real", json=False)
    answer = Answer("YES", True, ["YES"], ["start the two as below"], Way(MPS_PRIORITY, CONDITION, 25).flags)
    text = show.Shown(options, ["GPU"], [], answer, [], []).text()
    assert [line.strip().split(" exec ")[1] for line in text.splitlines() if " exec " in line] == [
        "--mps --priority 1 -- a",
        "--mps --sms 25% --priority 0 -- b",
    ]


def answered(found: list[dict], *given: str) -> Answer:
    comparison: Any = cli._Comparison.__new__(cli._Comparison)
    comparison._options = cli._options([*given, "--", "a", "--", "b"])
    comparison._rows, comparison._modes = SimpleNamespace(rows=found), MODES
    answer = comparison._answer()
    assert answer
    return answer


def test_the_answer_is_of_the_way_that_is_recommended():
    bare = [row for row in rows({0: (3.0, 0.9), 100: (2.1, 0.9)}, cell="bare") if row["cell"] == "bare"]
    answer = answered(rows(BUSY) + bare, "--mps")
    assert answer.flags == (" --mps", " --mps --sms 50%") and answer.sure
    assert "is 0.95 × alone with Sluice, and 1.91 × without" in answer.text[0] and answer.text[-1].endswith(FAULTS)
    # Time-sliced where MPS does not pay, and without --mps.
    sliced = [row | {"jobs": "500"} for row in rows(BUSY | {0: (1.02, 0.4)}) + bare]
    for found, given in ((sliced, ["--mps"]), (rows(BUSY) + bare, [])):
        answer = answered(found, *given)
        assert answer.flags == ("", "") and "is 1.02 × alone with Sluice, and 3.00 × without" in answer.text[0]
        assert ("Stay time-sliced" in answer.text[-1]) == bool(given)


def test_the_answer_is_as_sure_as_the_way():
    bare = [row for row in rows({0: (3.0, 0.9), 100: (2.1, 0.9)}, cell="bare") if row["cell"] == "bare"]
    found = rows({0: (1.02, 0.04), 50: (1.02, 0.1)}) + bare
    assert answered(found, "--mps").sure
    for row, factor in zip([row for row in found if row["cell"] == CONDITION and row.get("per_s")], (0.1, 0.1, 3, 2)):
        row["per_s"] = str(float(row["per_s"]) * factor)  # time slicing, of which some rounds had much more
    answer = answered(found, "--mps")
    assert answer.flags[0] and not answer.sure and answer.text[-1].startswith("Probably start")


# --- What is measured -----------------------------------------------------------------------------------------------


def planned(repeat: int, *given: str, widths=WIDTHS) -> list:
    options = cli._options([*given, "--", "a", "--", "b"])
    held = {cli._row_of(text, options): text for text, _ in options.targets}
    return [(name, one.width, one.target) for name, one in cli._conditions(options, held, widths, repeat).items()]


def test_a_round_has_each_width_and_goes_back_the_next_time():
    ends = ("alone", 100, ""), ("best effort alone", 100, "")
    turn = [("bare", 100, ""), (CONDITION, 100, "")]
    turn += [(f"{CONDITION}, sms={width}%", width, "") for width in (50, 25, 12)]
    assert planned(1) == [ends[0], *turn, ends[1]] and planned(2) == [ends[0], *reversed(turn), ends[1]]
    assert planned(1, widths=(100,)) == [ends[0], *turn[:2], ends[1]]


def test_widths_with_targets_start_best_effort_seldom():
    for repeat in (1, 2):
        widths = [width for _, width, _ in planned(repeat, "--target", "p99=2x", "--target", "step p99=9ms")]
        assert sum(after != before for before, after in itertools.pairwise(widths)) <= 10
    names = [name for name, _, target in planned(1, "--target", "step p99=9ms") if target]
    assert names == [cell_of("target step p99=9ms", width) for width in reversed(WIDTHS)]


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
def test_each_width_is_measured_next_to_the_same_critical_process(tmp_path, monkeypatch, capsys):
    """On the simulated GPU, with its MPS daemon."""
    installed = Path(os.environ["SLUICE_TEST_PROGRAM"]).parents[1] / "libexec/sluice"
    (tmp_path / "nvidia-cuda-mps-control").symlink_to(installed / "sluice-simgpu-mps-control")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    notes = tmp_path / "notes.txt"

    def spin(name: str, *more: str) -> list[str]:
        told = "${CUDA_MPS_CLIENT_PRIORITY-sliced} ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE-all}"
        note = f"echo {name} {told} >> {notes}"
        return ["sh", "-c", f"{note}; exec {installed}/sluice-example-spin {' '.join(more)}"]

    commands = ["--", *spin("c", "--kernels", "20", "--kernel-us", "40", "--period-ms", "6")]
    commands += ["--", *spin("b", "--kernels", "50", "--kernel-us", "100")]
    given = ["--gpu", "sim", "--mps", "--repeats", "1", "--seconds", "0.5", "--warm-up", "0.1", "--start-limit", "60"]
    given += ["--target", "p99=50ms"]
    monkeypatch.setattr(sys, "argv", ["compare", *given, "--json", "--out", str(tmp_path / "out"), *commands])
    code = cli.main()
    said = capsys.readouterr()
    assert code == 0, said.err
    found = Rows(tmp_path / "out" / "compare.csv", cli.ROW_FIELDS).rows
    target = "target p99=50ms"
    sliced = ["alone", "bare", CONDITION, target, "best effort alone"]
    under = [*sliced[:3], *(cell_of(CONDITION, width) for width in WIDTHS[1:])]
    under += [*(cell_of(target, width) for width in reversed(WIDTHS)), sliced[-1]]
    assert [list(dict.fromkeys(row["cell"] for row in found if row["mode"] == mode)) for mode in MODES] == [
        sliced,
        under,
    ]
    # The critical command starts once in a mode and for a target, with all SMs; best effort once for each width.
    assert notes.read_text().splitlines() == [
        *("c sliced all", "b sliced all", "c sliced all"),
        *("c 0 all", *(f"b 1 {width}" for width in ("all", 50, 25, 12))),
        *("c 0 all", *(f"b 1 {width}" for width in (25, 50, "all"))),
    ]
    told = json.loads(said.out)
    assert told["gpu"].endswith("time-sliced and MPS + priority. SIMULATED: times are the simulated GPU's.")
    way = ("Probably start best effort under MPS", "Probably stay time-sliced: ")  # one round is not sure
    assert any(text.startswith(way) for text in told["verdict"])
    assert {cell["mode"] for cell in told["cells"]} == set(MODES)
