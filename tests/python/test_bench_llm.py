"""`sluice bench llm`: its requests, the arithmetic of its client, its table; the command as a whole with tiny models,
where transformers is installed."""

import importlib.util
import io
import itertools
import json
import math
import os
import random
import socket
import statistics
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import PACKAGE, environment
from sluice_stand_in import StandIns
from sluice_tools.bench.common import talker
from sluice_tools.bench.llm import cli, client, figures, frontier, plan, report
from sluice_tools.bench.llm.kept import kept
from sluice_tools.bench.llm.stage import Stage
from sluice_tools.bench.llm.workload import CV, FULL, TINY, requests
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure import programs
from sluice_tools.measure.paired import compare_ratios
from sluice_tools.measure.rows import BEST_EFFORT, KEY, Cell, Rows
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry


def drawn(count: int, per_s: float, seed: int) -> list:
    source = requests(FULL, per_s, seed)
    return [next(source) for _ in range(count)]


def test_arrivals_have_the_rate_and_the_bursts_that_are_said():
    due = [request.due_s for request in drawn(20000, 50.0, 1)]
    gaps = [after - before for before, after in zip([0.0, *due], due)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.06)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(CV, rel=0.06)


def test_lengths_have_the_median_and_the_ends_that_are_said():
    found = drawn(5000, 1.0, 1)
    for lengths, values in ((FULL.prompt, [one.prompt for one in found]), (FULL.new, [one.new for one in found])):
        assert statistics.median(values) == pytest.approx(lengths.median, rel=0.06)
        assert min(values) >= lengths.least and max(values) == lengths.most


def test_conditions_of_a_round_get_the_same_requests():
    assert drawn(50, 3.0, 7) == drawn(50, 3.0, 7) != drawn(50, 3.0, 8)


def test_a_sequence_never_outgrows_the_graphs_of_the_engine():
    """Beyond it, transformers would capture graphs while it serves."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("needs transformers")
    from sluice_tools.bench.llm.engine import LONGEST

    assert FULL.prompt.most + FULL.new.most < LONGEST


def test_the_times_of_a_request():
    record = client.Record("a", 5, 3, due_ns=1_000_000, at_ns=[5_000_000, 6_000_000, 9_000_000])
    assert (record.ttft_ms(0), record.tpot_ms(), record.gaps_ms()) == (4.0, 2.0, [1.0, 3.0])
    silent = client.Record("b", 5, 3, due_ns=1_000_000)
    assert (silent.ttft_ms(8_000_000), silent.tpot_ms(), silent.gaps_ms()) == (7.0, None, [])
    assert silent.line(8_000_000)["tokens"] == 0 and record.line(0)["longest_gap_ms"] == 3.0


class StandIn(threading.Thread):
    """A server that answers each request at once with all of its tokens, but leaves out the last of every `lame`th."""

    def __init__(self, path: str, lame: int = 0):
        super().__init__(daemon=True)
        self.cancelled: list[str] = []
        self.asked: list[dict] = []
        self._lame = lame
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self.start()

    def run(self):
        connection, _ = self._listener.accept()
        with connection, connection.makefile() as lines:
            for line in lines:
                request = json.loads(line)
                if "cancel" in request:
                    self.cancelled.append(request["cancel"])
                    continue
                if request["new"] == 0:  # the sign to leave
                    return
                self.asked.append(request)
                lame = self._lame and len(self.asked) % self._lame == 0
                tokens = range(1, request["new"] + (not lame))
                said = "".join(f"{request['name']} {count} {count == request['new']:d}\n" for count in tokens)
                connection.sendall(said.encode())


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "s")


WINDOW = {"per_s": 200.0, "seconds": 0.4, "skip_s": 0.2, "seed": 3}


def measured(path: str, lame: int = 0) -> tuple[dict, list, StandIn, list]:
    server, log, said = StandIn(path, lame), io.StringIO(), []
    done = client.window(client.Connection(path), TINY, WINDOW, lambda: said.append(time.monotonic_ns()), log)
    return done, [json.loads(line) for line in log.getvalue().splitlines()], server, said


def test_a_window_counts_the_requests_that_arrive_in_it(path):
    done, log, server, said = measured(path)
    source = requests(TINY, WINDOW["per_s"], WINDOW["seed"])
    due = [request.due_s for request in (next(source) for _ in range(1000))]
    assert len(server.asked) == sum(at < 0.6 for at in due)
    assert len(done["ttft_ms"]) == len(log) == sum(0.2 <= at < 0.6 for at in due)
    assert len(done["tpot_ms"]) == len(log) and min(done["ttft_ms"]) > 0 and done["dropped"] == 0
    assert done["end_ns"] - done["begin_ns"] == 400_000_000 and len(said) == 1 and said[0] >= done["begin_ns"]
    assert [len(one["prompt"]) for one in server.asked[-len(log) :]] == [one["prompt"] for one in log]
    assert all(one["tokens"] == one["new"] and one["ended"] for one in log)


def test_requests_that_do_not_end_are_cancelled_and_counted(path, monkeypatch):
    real_wait, deadline = client.Connection.wait, time.monotonic() + 60

    def wait(self, most_open, seconds):
        """A slow host gets the time to receive what the server sends."""
        with self._changed:
            while time.monotonic() < deadline and any(len(one.at_ns) < one.new - 1 for one in self._open.values()):
                self._changed.wait(0.01)
        return real_wait(self, most_open, seconds)

    monkeypatch.setattr(client.Connection, "wait", wait)
    monkeypatch.setattr(client, "_DRAIN_S", 0.2)
    done, log, server, _ = measured(path, lame=5)
    left = [one for one in log if not one["ended"]]
    assert 0 < done["dropped"] == len(left) < len(log) and all(one["tokens"] == one["new"] - 1 for one in left)
    while not {one["name"] for one in left} <= set(server.cancelled) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {one["name"] for one in left} <= set(server.cancelled)


class CountedTime:
    """Stands in for the module `time`: 0.1 ms pass with each look at it, so that a slow host loses nothing."""

    def __init__(self):
        self._looks = itertools.count()

    def monotonic_ns(self) -> int:
        return next(self._looks) * 100_000

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9


def test_the_capacity_counts_what_ended_while_the_server_was_full(path, monkeypatch):
    monkeypatch.setattr(client, "time", CountedTime())
    server = StandIn(path)
    connection = client.Connection(path)
    ended = client.capacity(connection, TINY, 0.4, 4)["per_s"] * 0.2
    assert 0 < ended < len(server.asked)  # those of the first half do not count
    assert connection.wait(0, 0)


def test_a_server_that_leaves_ends_the_wait_for_its_tokens(path):
    StandIn(path, lame=1)
    connection = client.Connection(path)
    connection.send(connection.prepare(next(requests(TINY, 1.0, 1)), random.Random(1)), 0)
    connection._say({"name": "x", "prompt": [], "new": 0})
    with pytest.raises(RuntimeError, match="closed the connection"):
        connection.wait(0, 60)


# --- Widths ---------------------------------------------------------------------------------------------------------

WANTED = [plan.condition_of(text) for text in ("none", "default", "sms=50%", "none+sms=50%", "sms=25%")]
MODE = ["--modes", plan.MPS_PRIORITY]


def named(text: str) -> tuple:
    found = plan.condition_of(text)
    return found.name, found.width, found.target, found.policy, found.hooked


def test_a_condition_is_gates_and_a_width():
    usual, none = ("none", "device:200us", True), ("none", "none", False)
    target = ("step p99=1.2x", "device:200us", True)
    assert named("default") == named("sms=all") == named("default+sms=100%") == ("default", 100, *usual)
    assert named("none") == ("without Sluice", 100, *none)
    assert named("sms=50%") == ("default, sms=50%", 50, *usual)
    assert named("none + sms=7%") == named("sms=7%+none") == ("without Sluice, sms=7%", 7, *none)
    assert named("target=step p99=1.2x") == ("target step p99=1.2x", 100, *target)
    both = ("target step p99=1.2x, sms=50%", 50, *target)
    assert named("sms=50%+target=step p99=1.2x") == named("sms=50%+target step p99=1.2x") == both


@pytest.mark.parametrize(
    "text",
    ["", "+", "sms=", "sms=0%", "sms=101%", "sms=50", "sms=-5%", "sms=x", "sms=50%+sms=25%", "sms=50%+", "none+default",
     "none+target=p99=2x", "target=", "target=fast", "width=50%"],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError):
        plan.condition_of(text)


def test_a_condition_that_is_refused_is_one_line(capsys):
    assert code_of([*MODE, "--conditions", "default,sms=0%"]) == 2
    said = capsys.readouterr().err
    assert "'sms=0%' is not a width: sms=all, or sms=1% to sms=99% of the SMs" in said and "Traceback" not in said


def test_targets_come_behind_the_conditions():
    def names(*given):
        return [one.name for one in options(*MODE, *given).conditions]

    usual = ["without Sluice", "default"]
    assert names() == [*usual, "target step p99=1.3x"] and names("--targets", "none") == usual
    assert names("--conditions", "sms=50%") == ["default, sms=50%"]
    assert names("--conditions", "default,default", "--targets", "p99=9ms") == ["default", "target p99=9ms"]


def test_a_width_needs_mps(capsys):
    assert code_of(["--modes", "time-sliced", "--conditions", "sms=50%"]) == 2
    assert "--modes 'MPS + priority'" in capsys.readouterr().err
    given = options("--conditions", "none,default,sms=50%", "--loads", "70", "--rounds", "1")
    cells = {mode: [cell.name for cell in cli.cells(given, "resnet-training", mode)] for mode in plan.MODES}
    fixed = [BEST_EFFORT_ALONE, ALONE, "without Sluice", "default"]
    assert cells[plan.TIME_SLICED] == fixed
    assert cells[plan.MPS] == cells[plan.MPS_PRIORITY] == [*fixed, "default, sms=50%"]


SERVER = """
from sluice_tools.bench.common.protocol import run_program
from sluice_tools.bench.llm.server import serve
import queue, sys
class Engine:
    def __init__(self):
        self._waiting = queue.SimpleQueue()
    def add(self, name, prompt, new):
        self._waiting.put((name, new))
    def cancel(self, name):
        pass
    def outputs(self, wait_s):
        try:
            name, new = self._waiting.get(timeout=wait_s)
        except queue.Empty:
            return []
        return [(name, count, count == new) for count in range(1, new + 1)]
    def graphs(self):
        return 0
path = sys.argv[sys.argv.index("--socket") + 1]
sys.exit(run_program(lambda commands: serve(commands, path, Engine())))
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The command with stand-ins for Sluice, the server and the best-effort programs."""
    stand_ins = StandIns(tmp_path / "stand-ins")
    monkeypatch.setenv("SLUICE_PROGRAM", str(stand_ins.sluice))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv("PATH", f"{stand_ins.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_TURNS", str(tmp_path / "turns.txt"))
    monkeypatch.setattr(cli, "need_packages", lambda *names: None)
    monkeypatch.setattr(talker, "_QUIT_S", 0.5)
    monkeypatch.setattr(programs, "_END_S", 0.5)
    (server := tmp_path / "server.py").write_text(SERVER)

    def run(*arguments: str) -> int:
        given = ["--server", str(server), "--programs", str(Path(__file__).parent / "programs_stand_in.py")]
        given += ["--best-effort", "llama-finetuning", "--window", "0.4", "--settle", "0.1", "--loads", "5"]
        return cli.main([*given, "--commit", "c0ffee", "--out", str(tmp_path / "out"), *arguments])

    run.stand_ins = stand_ins
    run.turns = lambda: [line.split()[1:] for line in (tmp_path / "turns.txt").read_text().splitlines()]
    run.rows = lambda: Rows(tmp_path / "out" / "llm.csv", figures.FIELDS).rows
    return run


def test_each_width_has_a_process_and_one_at_a_time_works(bench, capsys):
    given = "none,default,sms=50%,none+sms=25%,sms=50%+target=step p99=1.2x"
    code = bench(*MODE, "--conditions", given, "--rounds", "2")
    said = capsys.readouterr()
    assert code == 0, said.err
    # In turns: nobody runs before the one that ran is idle.
    turns = bench.turns()
    assert [do for _, do in turns] == ["run", "idle"] * (len(turns) // 2)
    assert all(width == same for (width, _), (same, _) in zip(turns[::2], turns[1::2]))
    # All conditions are next to the same server, and a width has one process.
    assert len(bench.stand_ins.client_pids()) == 4 and len(bench.stand_ins.daemon_pids()) == 1
    # The width is that of the condition, and best effort alone has all SMs.
    measured = [row["cell"] for row in bench.rows() if row["role"] == BEST_EFFORT]
    widths = {name: width for name, (width, _) in zip(measured, turns[::2])}
    assert widths == {
        BEST_EFFORT_ALONE: "all",
        "without Sluice": "all",
        "default": "all",
        "default, sms=50%": "50",
        "without Sluice, sms=25%": "25",
        "target step p99=1.2x, sms=50%": "50",
    }
    set_ = set(bench.stand_ins.settings())
    assert "llama-finetuning#25 --policy none --slice off" in set_
    assert "llama-finetuning#50 --policy device:200us --slice auto" in set_
    assert "llm-server --priority 1 --slice auto --target step p99=1.2x" in set_
    # What was counted is of the process that worked; best effort is the same program in all rows.
    for row in bench.rows():
        assert row["commit"] == "c0ffee" and (row["role"] != BEST_EFFORT or int(row["launches"]) > 0)
        assert row["client"] == (plan.SERVER if row["role"] != BEST_EFFORT else "llama-finetuning")
    assert "commit c0ffee" in said.out and said.out.count("| llama-finetuning | 5 % | MPS + priority |") == 6


def test_a_process_of_a_width_that_is_not_asked_for_is_not_started(bench):
    assert bench(*MODE, "--conditions", "default", "--rounds", "1") == 0
    assert len(bench.stand_ins.client_pids()) == 2 and {width for width, _ in bench.turns()} == {"all"}


def test_a_run_that_was_cut_keeps_its_windows(bench, monkeypatch):
    """The rows are on the disk at once, and the next call measures the others only."""
    real, left = Stage.measure, [4]

    def measure(self, condition, load, repeat):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, condition, load, repeat)

    monkeypatch.setattr(Stage, "measure", measure)
    given = (*MODE, "--conditions", "none,sms=50%", "--rounds", "2")
    assert bench(*given) == 130
    first = [(row["cell"], row["repeat"], row["date"]) for row in bench.rows()]
    assert len({cell for cell, _, _ in first}) == 4
    left[0] = -1
    assert bench(*given) == 0
    rows = bench.rows()
    assert [(row["cell"], row["repeat"], row["date"]) for row in rows][: len(first)] == first
    assert len({(row["cell"], row["repeat"]) for row in rows}) == 8


def test_the_client_counts_the_steps_that_keep_the_target():
    def row(cell: str, gaps: str, repeat: int = 1, **more) -> dict:
        return {"subject": "s", "mode": "m", "role": "critical", "cell": cell, "repeat": repeat, "gaps": gaps} | more

    def of(cell: str, *more: dict) -> list:
        return kept([row(ALONE, "5:98 10:2"), row(ALONE, "10:98 20:2", 2), *more], "s", "m", cell)

    name = "target step p99=1.2x, sms=50%"
    # 1.2 times 10 ms and, in the second round, 1.2 times 20 ms.
    found = (row(name, "11.9:3 12:1 12.1:4"), row(name, "23:1 25:3", 2))
    assert of(name, *found) == [0.5, 0.25]
    assert of("target step p50=2x", row("target step p50=2x", "10:1 10.1:1")) == [0.5]
    assert of("target step p99=11ms", row("target step p99=11ms", "11:1 12:3", 3)) == [0.25]
    # Nothing to say of: another round, another mode, no target, a target of jobs.
    assert of(name, row(name, "9:1", 3)) == of(name, row(name, "9:1", mode="n")) == of(name, row(name, "")) == []
    assert of("default", row("default", "9:1")) == of("target p99=2x", row("target p99=2x", "9:1")) == []


def test_the_gaps_of_a_window_are_in_its_row(path):
    found, log, _, _ = measured(path)
    assert sum(found["gaps"].values()) == sum(one["tokens"] - 1 for one in log)
    gaps = {"7.03": 2, "10.1": 1, "6.5": 4}
    assert figures.server_row(done(1.0, 1.0, gaps=gaps), None, {})["gaps"] == "6.5:4 7.03:2 10.1:1"


# --- The plan and the table -----------------------------------------------------------------------------------------


def options(*arguments: str):
    return cli._options(list(arguments))


def test_best_effort_alone_is_measured_once_a_round():
    planned = cli.cells(options("--loads", "30,70", "--rounds", "2"), "resnet-training", "MPS")
    alone = {cell: what for cell, what in planned.items() if cell.name == BEST_EFFORT_ALONE}
    assert [cell.seconds > 0 for cell in alone] == [True, False, True, False]
    first = [cell for cell in planned if cell.repeat == 1 and cell.subject == "resnet-training, 70 %"]
    assert [cell.name for cell in first] == [BEST_EFFORT_ALONE, ALONE, plan.BARE, plan.DEFAULT, "target step p99=1.3x"]


def test_the_loads_of_a_round_share_best_effort_alone(monkeypatch):
    asked = []
    stage = Stage.__new__(Stage)
    stage._best_effort_alone = {}
    monkeypatch.setattr(Stage, "_measure", lambda self, *what: asked.append(what) or [{"of": len(asked)}])
    alone, other = plan.Condition(BEST_EFFORT_ALONE), plan.Condition(plan.DEFAULT)
    assert stage.measure(alone, 30, 1) == stage.measure(alone, 70, 1) == [{"of": 1}] != stage.measure(alone, 30, 2)
    assert [stage.measure(other, load, 1) for load in (30, 70)] == [[{"of": 3}], [{"of": 4}]]
    seeds = [seed for _, _, seed in asked[2:]]
    assert seeds == [30001, 70001]


def test_a_target_that_sluice_does_not_know_fails_its_window_only(tmp_path):
    stage: Any = Stage.__new__(Stage)
    stage._on_cpu = False
    stage._session = SimpleNamespace(name="s")
    stage._server = SimpleNamespace(name="llm-server")
    refuses = tmp_path / "sluice"
    refuses.write_text("#!/bin/sh\necho no such target >&2\nexit 2\n")
    refuses.chmod(0o755)
    stage._options = SimpleNamespace(sluice=str(refuses))
    with pytest.raises(CellError, match="no such target"):
        stage._measure(plan.target_condition("step p99=1.3x"), 70, 1)


def test_the_target_is_counted_in_the_window():
    before, after = ({"target": {"state": "kept", "limit_ns": 5e6, "jobs": n, "kept": n - 1}} for n in (10, 110))
    found = {"target_state": "kept", "limit_ms": 5.0, "target_jobs": 100, "target_kept": 100}
    assert figures.target_figures(before, after) == found
    assert figures.target_figures({"target": None}, after)["target_jobs"] == 110
    assert figures.target_figures(before, {"target": None}) == figures.target_figures(None, None) == {}


def test_every_condition_comes_first_in_some_round():
    found = plan.conditions(WANTED, plan.MPS)
    assert {plan.order(found, repeat)[0].name for repeat in range(1, 7)} == {one.name for one in found}
    assert plan.order(found, 7) == found


def test_without_sluice_nobody_is_above_another(monkeypatch):
    # A server above others keeps a slice of the GPU as long as its jobs, and those below get little.
    said = []
    stage: Any = Stage.__new__(Stage)
    stage._server, stage._best_effort = "server", {WHOLE: SimpleNamespace(ask=lambda *what: None)}
    monkeypatch.setattr(Stage, "_set", lambda self, program, *settings: said.append(settings))
    monkeypatch.setattr(Stage, "_serve", lambda *what: (_ for _ in ()).throw(RuntimeError("enough")))
    for condition in map(plan.condition_of, ("none", "default")):
        with pytest.raises(RuntimeError, match="enough"):
            stage._measure(condition, 70, 1)
    server, best_effort, above, below = said
    assert server == ("--priority", "0", "--slice", "off", "--target", "none")
    assert best_effort == ("--policy", "none", "--slice", "off")
    assert above == ("--priority", "1", "--slice", "auto", "--target", "none")
    assert below == ("--policy", "device:200us", "--slice", "auto")


@pytest.mark.parametrize("given", [["--loads", "0"], ["--modes", "MIG"], ["--best-effort", "x"], ["--rounds", "0"]])
def test_wrong_usage_is_refused(given, capsys):
    assert code_of(given) == 2 and "Traceback" not in capsys.readouterr().err


def code_of(given: list) -> int:
    try:
        return cli.main(given)
    except SystemExit as usage:
        assert isinstance(usage.code, int)
        return usage.code


def done(tpot: float, ttft: float, **more) -> dict:
    gap = {"p50": tpot, "p99": 2 * tpot}
    ends = {
        "begin_ns": 0,
        "end_ns": 8_000_000_000,
        "dropped": 0,
        "gap_ms": gap,
        "gaps": {f"{tpot:.3g}": 98, f"{2 * tpot:.3g}": 2},
    }
    return ends | {"tpot_ms": [tpot] * 120, "ttft_ms": [ttft] * 130} | more


@pytest.fixture
def rows(tmp_path) -> Rows:
    """Two rounds; in the second the host is half as fast."""
    found = Rows(tmp_path / "llm.csv", figures.FIELDS)
    machine = {"gpu": "H", "driver": "1", "torch": "2", "sluice": "0", "date": "2026-11-27"}
    target = {"target_state": "kept", "limit_ms": 5.0, "target_jobs": 1000, "target_kept": 992}
    for repeat, host in ((1, 1.0), (2, 2.0)):
        ends = [round(second * 1e9) for second in range(0, 9)]
        half = [round(2 * second * 1e9) for second in range(0, 5)]
        for name, tpot, ttft, target_of, steps in (
            (BEST_EFFORT_ALONE, 0, 0, None, ends),
            (ALONE, 4.0, 20.0, None, None),
            (plan.DEFAULT, 4.4, 30.0, target, half),
        ):
            cell = [figures.server_row(done(host * tpot, host * ttft), target_of, {"load": 70})] if tpot else []
            if steps:
                cell.append(figures.stepping_row("t", "", steps, 0, 8_000_000_000, None, None))
            found.add(Cell("t, 70 %", "MPS", name, repeat), [machine | row for row in cell])
    return found


def test_the_table_compares_with_alone_of_the_same_round(rows):
    alone, default = report.lines(rows.rows, *report.entries(rows.rows))
    assert alone[:5] == ("t", "70 %", "MPS", "alone", "2")
    assert alone[5:] == ("120", *["6.000 ms"] * 2, *["30.00 ms"] * 2, "12.00 ms", "-", "-", "-")
    ones = ("1.10 [1.10-1.10]", "1.10 [1.10-1.10]", "1.50 [1.50-1.50]", "1.50 [1.50-1.50]", "1.10 [1.10-1.10]")
    assert default[:6] == ("t", "70 %", "MPS", "default", "2", "120")
    assert default[6:] == (*ones, "50 [50-50] %", "99.2 [99.2-99.2] %", "-")


def test_the_interval_is_of_the_differences_in_a_round(rows):
    """A third round in which the host is as in the first, and the condition costs more."""
    machine = {name: rows.rows[0][name] for name in ("gpu", "driver", "torch", "sluice", "commit", "date")}
    for name, tpot, target in ((ALONE, 4.0, None), (plan.DEFAULT, 4.8, None)):
        rows.add(Cell("t, 70 %", "MPS", name, 3), [machine | figures.server_row(done(tpot, 20.0), target, {})])
    line = report.lines(rows.rows, *report.entries(rows.rows))[1]
    # 1.1, 1.1 and 1.2 times alone: t of two degrees of freedom is 4.303.
    logs = [math.log(ratio) for ratio in (1.1, 1.1, 1.2)]
    mean, reach = statistics.mean(logs), 4.303 * statistics.stdev(logs) / math.sqrt(3)
    low, middle, high = (f"{math.exp(value):.2f}" for value in (mean - reach, mean, mean + reach))
    assert line[4] == "3" and line[6] == f"{middle} [{low}-{high}]"


def test_a_round_in_which_the_target_was_not_known_is_left_out(rows, tmp_path):
    """Its windows are those of the default. The round is named below the table."""
    before = report.lines(rows.rows, *report.entries(rows.rows))
    machine = {name: rows.rows[0][name] for name in ("gpu", "driver", "torch", "sluice", "commit", "date")}
    learning = {"target_state": "learning", "limit_ms": 0, "target_jobs": 0, "target_kept": 0}
    for name, tpot, target in ((ALONE, 4.0, None), (plan.DEFAULT, 9.0, learning)):
        cell = [machine | figures.server_row(done(tpot, 20.0), target, {})]
        steps = [round(second * 1e9) for second in range(0, 9)]
        cell.append(machine | figures.stepping_row("t", "", steps, 0, 8_000_000_000, None, None))
        rows.add(Cell("t, 70 %", "MPS", name, 3), cell)
    after = report.lines(report.of_their_condition(rows.rows)[0], *report.entries(rows.rows))
    assert after[1] == before[1]
    assert after[0][4] == "3"
    assert "still being learned: t, 70 %, default, round 3." in report.markdown(rows)


def test_one_round_has_no_interval_and_no_share_is_below_zero():
    assert report._mean([1.1], compare_ratios, "{:.2f}".format) == "1.10"
    assert report._percent([0.01, 0.2]).startswith("10.5 [0-") and report._percent([]) == "-"
    assert report._percent([0.98, 1.0], 1.0) == "99 [86.3-100] %" and report._percent([0.9, 1.1]) == "100 [0-227] %"


def test_the_frontier_has_a_point_for_each_mode_condition_and_width():
    def entry(subject: str, mode: str, cell: str, x: list, share: list) -> Entry:
        found = Entry(subject, mode, cell, repeats=len(x), share=share)
        found.x["p50"] = x
        return found

    entries = [
        entry("t, 70 %", "time-sliced", "default", [1.02, 1.04], [0.02, 0.03]),
        entry("t, 70 %", "MPS + priority", "default", [1.05], [0.1]),
        entry("t, 70 %", "MPS + priority", "default, sms=50%", [1.1, 1.2], [0.5, 0.6]),
        entry("t, 70 %", "MPS + priority", ALONE, [1.0], []),
        entry("t, 70 %", "MPS + priority", "default, sms=25%", [1.1], []),  # best effort alone is missing
        entry("t, 30 %", "MPS + priority", "default, sms=50%", [1.1], [0.4]),
    ]
    first, second = frontier.figures(entries)
    assert (first.title, second.title) == ("t, 70 %", "t, 30 %") and len(second.series) == 1
    points = {one.name: one.points[0] for one in first.series}
    assert set(points) == {"time-sliced, default", "MPS + priority, default", "MPS + priority, default, sms=50%"}
    half = points["MPS + priority, default, sms=50%"]
    assert (half.x, half.y) == (pytest.approx(0.55), pytest.approx(1.15))
    assert (half.x_range, half.y_range) == ((0.5, 0.6), (1.1, 1.2))
    # A condition has one colour, in all modes and figures, and a mode has one size.
    colours = [one.colour for one in first.series]
    assert colours[0] == colours[1] != colours[2] == second.series[0].colour
    assert first.series[0].marker < first.series[1].marker == first.series[2].marker
    for chart in (first, second):
        assert all(chart.y.low < point.y < chart.y.high for one in chart.series for point in one.points)
    assert "TPOT 1.15 ×, best effort 55 %" in first.html()


def test_a_table_without_pairs_has_no_frontier():
    assert frontier.figures([Entry("t, 70 %", "MPS", ALONE)]) == []


def drawing():
    file = Path(__file__).parents[2] / "docs" / "images" / "frontier.py"
    spec = importlib.util.spec_from_file_location("frontier_picture", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_of_the_frontier_is_drawn_from_the_rows(rows, tmp_path):
    for mode, cell, load in ((plan.TIME_SLICED, plan.DEFAULT, 70), ("MPS", "default, sms=50%", 70), ("MPS", "x", 30)):
        for name in (ALONE, BEST_EFFORT_ALONE, cell):
            copied = [row for row in rows.rows if row["cell"] == (plan.DEFAULT if name == cell else name)]
            for row in copied:
                figures_of = {key: value for key, value in row.items() if key not in KEY}
                rows.add(Cell(f"t, {load} %", mode, name, int(row["repeat"])), [figures_of])
    drawing().main(rows.file, target := tmp_path / "frontier.svg")
    points = [
        one for one in ElementTree.parse(target).iter("{http://www.w3.org/2000/svg}circle") if one.get("r") == "8"
    ]
    assert len(points) == 4
    places = {(float(one.get("cx") or 0), float(one.get("cy") or 0)) for one in points}
    assert len({x for x, _ in places}) == 2 and len({y for _, y in places}) == 1  # two panels, and half of the speed
    text = target.read_text()
    assert all(name in text for name in ("t, 70 % load", "t, 30 % load", "default, sms=50%", plan.TIME_SLICED))
    with pytest.raises(ValueError, match="no row has"):
        drawing().draw([])


def test_too_few_requests_show_the_slowest(rows):
    few = done(4.0, 20.0, tpot_ms=[4.0] * 9 + [8.0], ttft_ms=[1.0] * 10)
    rows.add(Cell("t, 30 %", "MPS", ALONE, 1), [figures.server_row(few, None, {})])
    line = report.lines(rows.rows, *report.entries(rows.rows))[-1]
    assert line[6:10] == ("4.000 ms", "8.000 ms max", "1.000 ms", "1.000 ms max")


def test_a_page_and_a_table_are_written_anew(rows, tmp_path, capsys):
    assert cli.main(["--table", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "llm.md").read_text() and "| t | 70 % | MPS | default |" in said
    page = (tmp_path / "llm.html").read_text()
    assert "<h2>What a busy server leaves</h2>" in page and "MPS, default: TPOT 1.10 ×, best effort 50 %" in page
    assert "TPOT, t, 70 %" in page and page.index("<svg") < page.index("<h2>Next</h2>") < page.index("vllm serve MODEL")


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision", "transformers", "psutil")),
    reason="needs torch, torchvision, transformers and psutil",
)
def test_the_command_measures_tiny_models(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_PROGRAM", os.environ["SLUICE_TEST_PROGRAM"])
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    given = ["--gpu", "sim", "--best-effort", "llama-finetuning", "--modes", "time-sliced", "--loads", "50"]
    code = cli.main([*given, "--rounds", "1", "--window", "1", "--settle", "0.2", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code == 0, said.err
    assert said.out.count("| llama-finetuning | 50 % | time-sliced |") == 4
    rows = Rows(tmp_path / "llm.csv", figures.FIELDS).rows
    assert all(float(row["per_s"]) > 0 and row["dropped"] in ("", "0") for row in rows)
    log = [json.loads(line) for line in (tmp_path / "requests.jsonl").read_text().splitlines()]
    served = [line for line in log if "name" in line]
    assert served and all(line["tokens"] == line["new"] and line["ended"] for line in served)
    steps = [row["cell"] for row in rows if row["unit"] == "steps"]
    assert steps == [BEST_EFFORT_ALONE, plan.BARE, plan.DEFAULT, "target step p99=1.3x"]
