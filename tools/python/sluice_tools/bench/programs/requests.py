"""Serving requests as they arrive, with latencies from the arrival, and digests of the outputs."""

import gc
import hashlib
import itertools
import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import sluice

from sluice_tools.bench.common.arrivals import arrivals_ns, wait_until
from sluice_tools.measure import waits

INPUTS = 4  # different ones, taken in turn, so that outputs can be compared between windows
# A request that would begin later than this many periods is dropped. Without a limit, the latency of a
# program that cannot keep up would only say how long was measured.
_PATIENCE = 10
_AWAKE_S = 0.0005  # before an arrival, from when on no command is waited for


def _arrivals(kind: str, period_ns: float, seed: int) -> Iterator[int]:
    """When each request arrives, in ns of the monotonic clock; endless. busy: when it is asked for."""
    start = time.monotonic_ns()
    if kind == "busy":
        while True:
            yield time.monotonic_ns()
    yield from (start + offset for offset in arrivals_ns(kind, period_ns, seed))


def _waits() -> tuple[bool, Callable[[], int]]:
    """Whether the waits of this process for the GPU are counted, and a function that gives their time so far."""
    file = waits.own_file()
    if file is None or waits.counted_ns(file) is None:
        return False, lambda: 0
    with file.open("rb") as opened:
        words = memoryview(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)).cast("Q")
    return True, lambda: words[0]


class Outputs:
    """Which outputs each input had, as digests of 64 bits."""

    def __init__(self):
        self._digests: dict[int, set] = {}

    def add(self, index: int, output) -> None:
        """output: anything with the buffer protocol."""
        digest = hashlib.blake2b(memoryview(output), digest_size=8).hexdigest()
        self._digests.setdefault(index, set()).add(digest)

    def text(self) -> str:
        """As index:digest, or index:digest/digest for an input with different outputs."""
        return " ".join(f"{index}:{'/'.join(sorted(self._digests[index]))}" for index in sorted(self._digests))


class Server:
    """Calls request(index) for every arrival, from the command `run` to the command `idle`. announce_ms: so long before
    its arrival, each request is announced to Sluice as a job, unless the one before still runs then. 0: Sluice is not
    called."""

    def __init__(self, request: Callable, announce_ms: float = 0.0):
        self._request = request
        self._announce_ns = round(announce_ms * 1e6)
        self._indices = itertools.cycle(range(INPUTS))

    def serve(self, command: dict, next_command: Callable) -> dict | None:
        """Ends with the last request that arrived before until_ns of the command `idle`, so that no long request is
        left out. None: the command was another one, to quit. next_command(seconds): the next one, or None in time."""
        gc.disable()
        try:
            return self._serve(command, next_command)
        finally:
            gc.enable()

    def _serve(self, command: dict, next_command: Callable) -> dict | None:
        patience_ns = _PATIENCE * command["period_ms"] * 1e6
        served, waited, dropped, announced, outputs, until = [], [], [], [], Outputs(), None
        awake_s = _AWAKE_S + self._announce_ns / 1e9
        counts, waited_ns = _waits()
        for due in _arrivals(command["arrivals"], command["period_ms"] * 1e6, command["seed"]):
            if until is None and (heard := next_command(max((due - time.monotonic_ns()) / 1e9 - awake_s, 0.0))):
                if heard["do"] != "idle":
                    return None
                until = heard["until_ns"]
            if until is not None and due >= until:
                break
            if patience_ns and time.monotonic_ns() - due > patience_ns:
                dropped.append(due)
                continue
            job = self._job(due, announced)
            wait_until(due)
            index, began = next(self._indices), time.monotonic_ns()
            before = waited_ns()
            with job:
                output = self._request(index)
                ended = time.monotonic_ns()
            served.append((due, began, ended))
            waited.append(waited_ns() - before)
            outputs.add(index, output)
        answer = {"served_ns": served, "dropped_ns": dropped, "outputs": outputs.text()}
        answer |= {"waited_ns": waited} if counts else {}
        return answer | ({"announced_ns": announced} if self._announce_ns else {})

    def _job(self, due: int, announced: list[int]) -> AbstractContextManager:
        """Announces the request that arrives at `due`, and gives what marks it. announced: gets `due` if that was in
        time."""
        if not self._announce_ns:
            return nullcontext()
        wait_until(due - self._announce_ns)
        left_ns = due - time.monotonic_ns()
        if left_ns <= 0:
            return sluice.job()
        if sluice.attached():
            announced.append(due)
        return sluice.job(sluice.announce(left_ns / 1e9))
