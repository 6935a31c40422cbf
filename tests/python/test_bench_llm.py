"""`sluice bench llm`: its requests, the arithmetic of its client, its table; the command as a whole with tiny models,
where transformers is installed."""

import importlib.util
import io
import itertools
import json
import os
import random
import socket
import statistics
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import environment
from sluice_tools.bench.llm import cli, client, figures, plan, report
from sluice_tools.bench.llm.stage import Stage
from sluice_tools.bench.llm.workload import CV, FULL, TINY, requests
from sluice_tools.measure.rows import Cell, Rows
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE


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
        stage._measure(plan.conditions(["step p99=1.3x"])[-1], 70, 1)


def test_the_target_is_counted_in_the_window():
    before, after = ({"target": {"state": "kept", "limit_ns": 5e6, "jobs": n, "kept": n - 1}} for n in (10, 110))
    found = {"target_state": "kept", "limit_ms": 5.0, "target_jobs": 100, "target_kept": 100}
    assert figures.target_figures(before, after) == found
    assert figures.target_figures({"target": None}, after)["target_jobs"] == 110
    assert figures.target_figures(before, {"target": None}) == figures.target_figures(None, None) == {}


def test_every_condition_comes_first_in_some_round():
    found = plan.conditions(["p99=25ms"])
    assert {plan.order(found, repeat)[0].name for repeat in range(1, 5)} == {one.name for one in found}
    assert plan.order(found, 5) == found


def test_without_sluice_nobody_is_above_another(monkeypatch):
    # A server above others keeps a slice of the GPU as long as its jobs, and those below get little.
    said = []
    stage: Any = Stage.__new__(Stage)
    stage._server, stage._best_effort = "server", SimpleNamespace(ask=lambda *what: None)
    monkeypatch.setattr(Stage, "_set", lambda self, program, *settings: said.append(settings))
    monkeypatch.setattr(Stage, "_serve", lambda *what: (_ for _ in ()).throw(RuntimeError("enough")))
    for condition in plan.conditions([])[1:]:
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
    ends = {"begin_ns": 0, "end_ns": 8_000_000_000, "dropped": 0, "gap_ms": gap}
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
    alone, default = report.lines(*report.entries(rows.rows))
    assert alone == ("t", "70 %", "MPS", "alone", "120", *["6.000 ms"] * 2, *["30.00 ms"] * 2, "12.00 ms", "-", "-")
    ones = ("1.10 [1.10-1.10]", "1.10 [1.10-1.10]", "1.50 [1.50-1.50]", "1.50 [1.50-1.50]", "1.10 [1.10-1.10]")
    assert default == ("t", "70 %", "MPS", "default", "120", *ones, "50 [50-50] %", "99.2 [99.2-99.2] %")


def test_too_few_requests_show_the_slowest(rows):
    few = done(4.0, 20.0, tpot_ms=[4.0] * 9 + [8.0], ttft_ms=[1.0] * 10)
    rows.add(Cell("t, 30 %", "MPS", ALONE, 1), [figures.server_row(few, None, {})])
    line = report.lines(*report.entries(rows.rows))[-1]
    assert line[5:9] == ("4.000 ms", "8.000 ms max", "1.000 ms", "1.000 ms max")


def test_a_page_and_a_table_are_written_anew(rows, tmp_path, capsys):
    assert cli.main(["--table", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "llm.md").read_text() and "| t | 70 % | MPS | default |" in said
    page = (tmp_path / "llm.html").read_text()
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
