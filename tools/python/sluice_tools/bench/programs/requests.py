"""Serving requests as they arrive, with latencies from the arrival, and digests of the outputs."""

import gc
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator

from sluice_tools.bench.pairs.jobs import arrivals_ns, wait_until

INPUTS = 4  # different ones, taken in turn, so that outputs can be compared between cells
# A request that would begin later than this many periods is dropped. Without a limit, the latency of a
# program that cannot keep up would only say how long was measured.
_PATIENCE = 10


def _arrivals(kind: str, period_ns: float, seed: int) -> Iterator[int]:
    """When each request arrives, in ns of the monotonic clock; endless. busy: when it is asked for."""
    start = time.monotonic_ns()
    if kind == "busy":
        while True:
            yield time.monotonic_ns()
    yield from (start + offset for offset in arrivals_ns("poisson", period_ns, seed))


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


def serve(request: Callable, command: dict, measuring: Callable) -> dict:
    """Calls request(index) for every arrival of `command` (the command `run`).

    Calls `measuring` when the part that counts begins: skip_s after the begin. That part ends with `jobs`
    requests, or after `seconds`.
    """
    gc.collect()
    gc.disable()
    try:
        return _serve(request, command, measuring)
    finally:
        gc.enable()


def _serve(request: Callable, command: dict, measuring: Callable) -> dict:
    patience_ns = _PATIENCE * command["period_ms"] * 1e6
    counted_from = time.monotonic_ns() + round(command["skip_s"] * 1e9)
    latency_ns, work_ns, outputs = [], [], Outputs()
    window, dropped = None, 0
    indices = itertools.cycle(range(INPUTS))
    for due in _arrivals(command["arrivals"], command["period_ms"] * 1e6, command["seed"]):
        if window is None and due >= counted_from:
            window = due
            measuring()
        if window is not None and (len(latency_ns) >= command["jobs"] or due - window >= command["seconds"] * 1e9):
            break
        if patience_ns and time.monotonic_ns() - due > patience_ns:
            dropped += window is not None
            continue
        wait_until(due)
        index, began = next(indices), time.monotonic_ns()
        output = request(index)
        done = time.monotonic_ns()
        outputs.add(index, output)
        if window is not None:
            latency_ns.append(done - due)
            work_ns.append(done - began)
    return {
        "latency_ms": [round(ns / 1e6, 5) for ns in latency_ns],
        "work_ms": [round(ns / 1e6, 5) for ns in work_ns],
        "dropped": dropped,
        "outputs": outputs.text(),
        "begin_ns": window,
        "end_ns": time.monotonic_ns(),
    }
