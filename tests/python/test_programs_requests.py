"""`sluice bench programs`: the requests of a critical program, when they arrive and when they are announced."""

import itertools
import os
import struct

import pytest
from sluice import _jobs
from sluice_tools.bench.common import arrivals
from sluice_tools.bench.common.arrivals import arrivals_ns
from sluice_tools.bench.programs import requests


class Clock:
    """Stands in for the module `time`, so that a slow host changes no result. A look at it takes 1 us."""

    def __init__(self):
        self._now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        self._now_ns += 1000
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    for module in (requests, arrivals, _jobs):
        monkeypatch.setattr(module, "time", found)
    return found


def serve(clock, request, until_s, asked=1, announce_ms=0.0, **given):
    """Requests until a command `idle` that comes when a command was asked for so often, and says that the last request
    arrives until_s later."""
    command = {"do": "run", "arrivals": "busy", "period_ms": 0, "seed": 1} | given
    left = itertools.count(asked - 1, -1)

    def next_command(seconds):
        if next(left) > 0:
            clock.sleep(seconds)
            return None
        return {"do": "idle", "until_ns": clock.monotonic_ns() + round(until_s * 1e9)}

    return requests.Server(request, announce_ms).serve(command, next_command)


def test_requests_take_the_inputs_in_turn_and_their_outputs_are_told_apart(clock):
    answers = serve(clock, lambda index: bytes([index]), 0, asked=7)
    told = answers["outputs"].split()
    assert [part[0] for part in told] == ["0", "1", "2", "3"] and len({part[2:] for part in told}) == 4
    assert "/" not in answers["outputs"] and len(answers["served_ns"]) >= 6
    changing = iter(range(10_000))
    assert "/" in serve(clock, lambda index: str(next(changing)).encode(), 0, asked=7)["outputs"]


class Waiting:
    """The file in which the interposer counts the waits of this process."""

    def __init__(self, folder):
        self._file = folder / str(os.getpid())
        self.ns = 0

    def wait(self, ns: int) -> None:
        self.ns += ns
        mode = "r+b" if self._file.exists() else "wb"
        with self._file.open(mode) as file:
            file.write(struct.pack("=QQ", self.ns, 1))


def test_each_request_has_the_time_that_it_waited_for_the_gpu(clock, tmp_path, monkeypatch):
    """Also of a wait that another request began: what was waited before counts for none."""
    monkeypatch.setenv("SLUICE_WAITS", str(tmp_path))
    waiting = Waiting(tmp_path)
    waiting.wait(77_000)
    served = iter(range(1, 1000))
    answers = serve(clock, lambda index: waiting.wait(1000 * next(served)) or b"", 0, asked=7)
    assert answers["waited_ns"] == [1000 * number for number in range(1, len(answers["served_ns"]) + 1)]


def test_nobody_counts_waits_of_a_program_without_a_gpu(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_WAITS", str(tmp_path))
    assert "waited_ns" not in (serve(clock, lambda index: b"", 0) or {"waited_ns": []})
    monkeypatch.delenv("SLUICE_WAITS")
    assert "waited_ns" not in (serve(clock, lambda index: b"", 0) or {"waited_ns": []})


def test_latency_counts_from_the_arrival_and_late_requests_are_dropped(clock):
    answers = serve(clock, lambda index: clock.sleep(0.01) or b"", 0.3, arrivals="poisson", period_ms=0.5)
    assert len(answers["dropped_ns"]) > 0
    late_ms = [(began - due) / 1e6 for due, began, _ in answers["served_ns"]]
    assert 0 < max(late_ms) < 10 * 0.5 + 5


class Calls(list):
    """What the interposer was called for, with the time. Jobs are numbered."""

    def __init__(self, clock: Clock):
        super().__init__()
        self._clock = clock

    def functions(self):
        def noted(name, result):
            return lambda *given: self.append((name, self._clock.monotonic_ns(), *given)) or result

        return {f"job_{name}": noted(name, 7) for name in ("announce", "begin", "end")} | {"attached": lambda: 1}


def test_a_request_is_announced_before_it_arrives_and_is_a_job(clock, monkeypatch):
    monkeypatch.setattr(_jobs, "_interposer", (calls := Calls(clock)).functions())
    given = {"arrivals": "periodic", "period_ms": 20}
    answer = serve(clock, lambda index: calls.append(("work",)) or b"", 0.2, asked=6, announce_ms=5, **given)
    announced = [call for call in calls if call[0] == "announce"]
    # All but the first, which arrives at once.
    assert len(announced) > 2
    assert answer["announced_ns"] == [due for due, _, _ in answer["served_ns"][1:]]
    told = list(zip(announced, answer["announced_ns"], strict=True))
    assert all(at < due < start + 1000 for (_, at, start), due in told)
    assert all(4.9e6 < due - at <= 5e6 for (_, at, _), due in told)
    first = calls.index(announced[0])
    assert [call[0] for call in calls[:3]] == ["begin", "work", "end"] and calls[0][2] == 0
    assert [call[0] for call in calls[first : first + 4]] == ["announce", "begin", "work", "end"]
    assert calls[first + 1][1] >= answer["announced_ns"][0] and calls[first + 1][2] == calls[first + 3][2] == 7


def test_without_announcements_sluice_is_not_called(clock, monkeypatch):
    monkeypatch.setattr(_jobs, "_interposer", (calls := Calls(clock)).functions())
    answer = serve(clock, lambda index: b"", 0.05, arrivals="periodic", period_ms=10)
    assert answer and answer["served_ns"] and "announced_ns" not in answer and not calls


def test_a_request_that_comes_during_another_one_is_not_announced(clock, monkeypatch):
    monkeypatch.setattr(_jobs, "_interposer", Calls(clock).functions())
    answer = serve(
        clock, lambda index: clock.sleep(0.03) or b"", 0.09, announce_ms=5, arrivals="periodic", period_ms=20
    )
    assert len(answer["served_ns"]) == 5 and answer["announced_ns"] == []


def test_poisson_arrivals_are_the_same_for_every_condition():
    def first(seed):
        return list(itertools.islice(arrivals_ns("poisson", 1e6, seed), 2000))

    assert first(1) == first(1) != first(2)
    assert first(1)[-1] / 1999 == pytest.approx(1e6, rel=0.1)


def test_all_that_arrived_before_the_end_is_answered(clock):
    served = serve(clock, lambda index: clock.sleep(0.03) or b"", 0.09, arrivals="periodic", period_ms=20)["served_ns"]
    assert len(served) == 5
    assert served[-1][2] > served[0][0] + 0.14e9  # behind the end


def test_another_command_ends_the_requests():
    quit_ = {"do": "quit"}
    command = {"do": "run", "arrivals": "poisson", "period_ms": 5, "seed": 1}
    assert requests.Server(lambda index: b"").serve(command, lambda seconds: quit_) is None
