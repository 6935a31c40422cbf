"""The client of the LLM server: a process that sends requests as they arrive, and takes the time of every token.

Commands (bench/common/protocol.py): `capacity` (seconds, outstanding): how many requests a second the server ends if so
many are always there; `run` (per_s, seconds, skip_s, seed): one window, with `measuring` when it begins and `done` at
its end; quit. All times are of the monotonic clock. A line of --log is a request of a window.
"""

import argparse
import collections
import contextlib
import itertools
import json
import random
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from sluice_tools.bench.common.arrivals import wait_until
from sluice_tools.bench.common.protocol import answer, run_program
from sluice_tools.bench.llm.workload import FULL, TINY, Request, Shape, requests
from sluice_tools.measure.statistics import percentile

VOCABULARY = 512  # prompts are of the first tokens of any vocabulary
_DRAIN_S = 6.0  # in which requests of a window may end after it


@dataclass
class Record:
    """A request. due_ns: when it arrived, at_ns: of each token."""

    name: str
    prompt: int
    new: int
    due_ns: int = 0
    at_ns: list[int] = field(default_factory=list)
    ended: bool = False

    def ttft_ms(self, now_ns: int) -> float:
        """From its arrival to its first token; to now, if there is none yet: at least so long."""
        return ((self.at_ns[0] if self.at_ns else now_ns) - self.due_ns) / 1e6

    def gaps_ms(self) -> list[float]:
        """Between its tokens."""
        return [(after - before) / 1e6 for before, after in itertools.pairwise(self.at_ns)]

    def tpot_ms(self) -> float | None:
        """Mean time between its tokens."""
        return (self.at_ns[-1] - self.at_ns[0]) / 1e6 / (len(self.at_ns) - 1) if len(self.at_ns) > 1 else None

    def line(self, now_ns: int) -> dict:
        """For the log."""
        known = {"name": self.name, "due_ns": self.due_ns, "prompt": self.prompt, "new": self.new}
        longest = max(self.gaps_ms(), default=None)
        times = {"ttft_ms": self.ttft_ms(now_ns), "tpot_ms": self.tpot_ms(), "longest_gap_ms": longest}
        return known | {"tokens": len(self.at_ns), "ended": self.ended} | times


class Connection:
    """Sends requests, and notes in their records when tokens come."""

    def __init__(self, path: str):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._names = itertools.count()
        self._open: dict[str, Record] = {}
        self._changed = threading.Condition()
        self._lost = False
        threading.Thread(target=self._receive, daemon=True).start()

    def prepare(self, request: Request, chance: random.Random) -> tuple[Record, dict]:
        """What takes time before a request can be sent."""
        record = Record(str(next(self._names)), request.prompt, request.new)
        prompt = [chance.randrange(VOCABULARY) for _ in range(request.prompt)]
        return record, {"name": record.name, "prompt": prompt, "new": request.new}

    def send(self, prepared: tuple[Record, dict], due_ns: int) -> Record:
        record, message = prepared
        record.due_ns = due_ns
        with self._changed:
            self._open[record.name] = record
        self._say(message)
        return record

    def _say(self, what: dict) -> None:
        self._socket.sendall((json.dumps(what) + "\n").encode())

    def _receive(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile() as lines:
            for line in lines:
                now = time.monotonic_ns()
                name, count, last = line.split()
                with self._changed:
                    if record := self._open.get(name):
                        # Two tokens that came in one line came at the same time.
                        record.at_ns += [now] * (int(count) - len(record.at_ns))
                        if last == "1":
                            record.ended = True
                            del self._open[name]
                            self._changed.notify_all()
        with self._changed:
            self._lost = True
            self._changed.notify_all()

    def wait(self, most_open: int, seconds: float) -> bool:
        """Until at most so many requests are open. False if they are not in time. Raises RuntimeError."""

        def reached() -> bool:
            if self._lost:
                raise RuntimeError("the server has closed the connection")
            return len(self._open) <= most_open

        with self._changed:
            return self._changed.wait_for(reached, seconds)

    def cancel_all(self) -> None:
        with self._changed:
            left, self._open = list(self._open), {}
        for name in left:
            self._say({"cancel": name})


def capacity(connection: Connection, shape: Shape, seconds: float, outstanding: int) -> dict:
    """Requests that ended in the second half of `seconds`, per second."""
    source, chance, sent = requests(shape, 1.0, 0), random.Random(0), []
    begin = time.monotonic()
    while (now := time.monotonic()) < begin + seconds:
        if connection.wait(outstanding - 1, begin + seconds - now):
            sent.append(connection.send(connection.prepare(next(source), chance), time.monotonic_ns()))
    connection.cancel_all()
    middle_ns, end_ns = (begin + seconds / 2) * 1e9, (begin + seconds) * 1e9
    ended = [one for one in sent if one.ended and middle_ns < one.at_ns[-1] <= end_ns]
    return {"per_s": len(ended) / (seconds / 2)}


def window(connection: Connection, shape: Shape, command: dict, measuring, log) -> dict:
    """Requests that arrive after skip_s count. Those that do not end within a limit are cancelled, and count as far as
    they came."""
    start = time.monotonic_ns()
    begin_ns = start + round(command["skip_s"] * 1e9)
    end_ns = begin_ns + round(command["seconds"] * 1e9)
    chance, sent, said = random.Random(command["seed"]), [], False
    for request in requests(shape, command["per_s"], command["seed"]):
        due_ns = start + round(request.due_s * 1e9)
        if due_ns >= begin_ns and not said:
            wait_until(begin_ns)
            measuring()
            said = True
        if due_ns >= end_ns:
            break
        prepared = connection.prepare(request, chance)
        wait_until(due_ns)
        sent.append(connection.send(prepared, due_ns))
    wait_until(end_ns)
    connection.wait(0, _DRAIN_S)
    connection.cancel_all()
    now = time.monotonic_ns()
    counted = [one for one in sent if one.due_ns >= begin_ns]
    for one in counted:
        log.write(json.dumps(one.line(now)) + "\n")
    gaps = [gap for one in counted for gap in one.gaps_ms()]
    return {
        "ttft_ms": [round(one.ttft_ms(now), 4) for one in counted],
        "tpot_ms": [round(tpot, 5) for one in counted if (tpot := one.tpot_ms()) is not None],
        "gap_ms": {"p50": percentile(gaps, 0.5), "p99": percentile(gaps, 0.99)},
        # How many gaps were so long, to three digits.
        "gaps": collections.Counter(f"{gap:.3g}" for gap in gaps),
        "dropped": sum(not one.ended for one in counted),
        "begin_ns": begin_ns,
        "end_ns": end_ns,
    }


def obey(commands, connection: Connection, shape: Shape, log) -> None:
    answer("ready")
    while (command := commands.next())["do"] != "quit":
        if command["do"] == "capacity":
            answer("capacity", **capacity(connection, shape, command["seconds"], command["outstanding"]))
        else:
            log.write(json.dumps({"window": command["name"]}) + "\n")
            answer("done", **window(connection, shape, command, lambda: answer("measuring"), log))
            log.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    with options.log.open("a") as log:
        shape = TINY if options.tiny else FULL
        return run_program(lambda commands: obey(commands, Connection(options.socket), shape, log))


if __name__ == "__main__":
    sys.exit(main())
