"""What `sluice bench serve` asks of its server and clients, without either."""

import contextlib
import re
from pathlib import Path

import pytest
from sluice_tools.bench.serve import order, plan, training
from sluice_tools.bench.serve.clients import poisson
from sluice_tools.bench.serve.lines import Lines
from sluice_tools.bench.serve.server import config_text
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.rows import Cell

MODELS = plan.Models(("short", "long", "middle"), 16)
WHOLE_MS = {"short": 2.0, "long": 20.0, "middle": 8.0}


class FakeServer:
    def __init__(self):
        self.calls: list[str] = []

    def schedule(self, policy):
        self.calls.append(policy)

    def load(self, model):
        self.calls.append(f"load {model}")

    def unload(self, model):
        self.calls.append(f"unload {model}")

    def processor_s(self):
        return 0.0

    @contextlib.contextmanager
    def recording(self):
        yield []


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A stage of the part order, whose whole models have been measured."""
    lines = Lines(tmp_path / "order.jsonl")
    alone = [
        {"model": name, "blocks": 1, "execute_ms": ms, "service_ms": ms + 1, "receive_ms": 0.5}
        for name, ms in WHOLE_MS.items()
    ]
    lines.add(Cell(order.ALONE, "", "whole models", 1), alone)
    made = order._Stage(setting(tmp_path), lines, FakeServer(), MODELS)  # type: ignore[arg-type]
    made.sent = []  # type: ignore[attr-defined]

    def send(_setting, _server, loads):
        made.sent.append(loads)  # type: ignore[attr-defined]
        report = {"sent": 0, "answered": 0, "not_sent": 0, "unanswered": 0, "latency_ms": {}, "send_lag_ms": {"p99": 0}}
        return {load.model: report for load in loads}

    monkeypatch.setattr(order, "send", send)
    monkeypatch.setattr(order.store, "split", lambda *_: {"ms": [1.0], "whole_ms": 1.0})
    return made


def setting(out: Path) -> Setting:
    return Setting("sluice", out, out, "real", 0, 4.0, 1)


def test_the_longest_models_are_replaced_by_their_blocks_once(stage):
    for scheduler in ("FIFO", "EDF"):
        stage.under_load(scheduler, 0.5, 1)
    # Models without requests would change when DLIR splits.
    changes = ["load long-in-3", "unload long", "load middle-in-2", "unload middle"]
    assert stage._server.calls == [*changes, "FIFO", "EDF"]
    assert [load.model for load in stage.sent[0]] == ["short", "long-in-3", "middle-in-2"]


def test_all_schedulers_get_the_same_arrivals_and_repeats_get_others(stage):
    for scheduler, repeat in (("FIFO", 1), ("EDF", 1), ("EDF", 2)):
        stage.under_load(scheduler, 0.5, repeat)
    first, second, other = stage.sent
    assert first == second != other
    seeds = [load.words[load.words.index("--seed") + 1] for load in first]
    assert len(set(seeds)) == 3, "models that arrive in step"


def test_requests_have_a_gap_of_the_load_and_a_deadline_of_four_times_the_limit(stage):
    stage.under_load("EDF", 0.5, 1)
    for load in stage.sent[0]:
        words = dict(zip(load.words[::2], load.words[1::2]))
        assert float(words["--lambda"]) == (2 + 20 + 8) / 0.5 and words["--batch"] == 16
    deadlines = [float(load.words[load.words.index("--slo-ms") + 1]) for load in stage.sent[0]]
    assert deadlines == [4 * ms + 0.5 for ms in WHOLE_MS.values()]


def test_no_request_is_refused_or_dropped():
    assert {"--run-late", "--admit-factor"} <= set(order._DEADLINES)
    assert order._DEADLINES[order._DEADLINES.index("--admit-factor") + 1] == "0"


def test_only_the_silent_server_announces_nothing_and_only_one_has_a_target():
    assert [name for name, options in training._SERVERS.items() if "--no-announce" in options] == ["silent"]
    assert {condition.server for condition in training.CONDITIONS if condition.server} == set(training._SERVERS)


def test_the_target_is_in_the_config(tmp_path, monkeypatch):
    texts = []

    def started(_setting, _name, models, *_options, **_more):
        texts.append(config_text(models))
        return FakeServer()

    monkeypatch.setattr(training, "Server", started)
    stage = training._Stage(setting(tmp_path), Lines(tmp_path / "t.jsonl"), type("S", (), {"name": "s"})())
    stage._start_server("announced")
    stage._start_server("target", 7.5)
    assert "slo-ms" not in texts[0] and "  slo-ms 7.500\n" in texts[1]


def test_a_load_is_the_options_of_the_client():
    load = poisson("m", 12.5, 4, 7, 16, "poisson-ms", "--slo-ms", "9")
    assert (load.model, load.seconds) == ("m", 4)
    assert load.words[2:] == (
        "--lambda",
        "12.5000",
        "--arrival",
        "poisson-ms",
        "--seed",
        7,
        "--batch",
        16,
        "--slo-ms",
        "9",
    )


# Prevents: a scheduler that the server has, and that nobody measures.
def test_measures_all_schedulers_of_the_server():
    source = (Path(__file__).resolve().parents[2] / "scheduler" / "policy.hpp").read_text()
    assert list(plan.SCHEDULERS) == re.findall(r'return \{"([A-Z]+)", Order::', source)
