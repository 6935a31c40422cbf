"""Critical jobs as they arrive, told to Sluice by its C API (include/sluice/sluice.h)."""

import ctypes
import gc
import itertools
import random
import time

_SPIN_NS = 150_000
# How many periods late a job may begin. Those still waiting then are dropped: without a limit, the
# latency under a policy that cannot keep up would only tell how long was measured.
_PATIENCE = {"periodic": 1, "poisson": 10}


class Sluice:
    """The job calls of the preloaded interposer; without it they do nothing."""

    def __init__(self):
        self._library = ctypes.CDLL(None)
        u64 = ctypes.c_uint64
        self.begin = self._function("job_begin", u64, [u64]) or (lambda announced: 0)
        self.end = self._function("job_end", None, [u64]) or (lambda job: None)
        self.announce = self._function("job_announce", u64, [u64]) or (lambda start: 0)
        self._attached = self._function("attached", ctypes.c_int, [])

    def _function(self, name: str, result, arguments: list):
        function = getattr(self._library, f"sluice_v1_{name}", None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
        return function

    def announces(self) -> bool:
        return hasattr(self._library, "sluice_v1_job_announce")

    def attached(self) -> bool:
        return self._attached is not None and self._attached() == 1


def arrivals_ns(kind: str, period_ns: float, seed: int):
    """Endless: when each job arrives, from 0."""
    if kind == "periodic":
        yield from (round(index * period_ns) for index in itertools.count())
    chance, at = random.Random(seed), 0.0
    while True:
        yield round(at)
        at += chance.expovariate(1 / period_ns)


def wait_until(due_ns: int):
    """Asleep until shortly before, then spinning: waking up late is no latency of the GPU."""
    left = due_ns - time.monotonic_ns() - _SPIN_NS
    if left > 0:
        time.sleep(left / 1e9)
    while time.monotonic_ns() < due_ns:
        pass


class _Tally:
    def __init__(self):
        self.latency_ns, self.late_ns = [], []
        self.active_ns = self.dropped = 0


def _one(work, sluice: Sluice, due: int, announce_ns: int):
    announced = 0
    if announce_ns:
        wait_until(due - announce_ns)
        if time.monotonic_ns() < due:
            announced = sluice.announce(due)
    wait_until(due)
    began = time.monotonic_ns()
    job = sluice.begin(announced)
    work()
    done = time.monotonic_ns()
    sluice.end(job)
    return began, done


def _serve(work, sluice, request, measuring) -> dict:
    period_ns = request["period_ms"] * 1e6
    announce_ns = round(request.get("announce_ms", 0) * 1e6)
    kind = request.get("arrivals", "periodic")
    patience_ns = _PATIENCE[kind] * period_ns
    start = time.monotonic_ns() + announce_ns
    counted_from = start + round(request.get("skip_s", 0) * 1e9)
    limit_ns = request["seconds"] * 1e9
    tally, window, due = _Tally(), None, start
    for offset in arrivals_ns(kind, period_ns, request.get("seed", 0)):
        due = start + offset
        if window is None and due >= counted_from:
            window = due
            measuring()
        if window is not None and (len(tally.latency_ns) >= request["jobs"] or due - window >= limit_ns):
            break
        if time.monotonic_ns() - due > patience_ns:
            tally.dropped += window is not None
            continue
        began, done = _one(work, sluice, due, announce_ns)
        if window is not None:
            tally.latency_ns.append(done - due)
            tally.late_ns.append(began - due)
            tally.active_ns += done - began
    wait_until(due)  # the window holds whole periods
    return {
        "latency_ms": [round(ns / 1e6, 5) for ns in tally.latency_ns],
        "late_ms": [round(ns / 1e6, 5) for ns in tally.late_ns],
        "active_ms": tally.active_ns / 1e6,
        "dropped": tally.dropped,
        "begin_ns": window,
        "end_ns": time.monotonic_ns(),
    }


def serve(work, sluice: Sluice, request: dict, measuring) -> dict:
    """Calls `work` for every job of `request` (the command `run`), `measuring` when the part that
    counts begins. A job's latency is that from its arrival."""
    gc.collect()
    gc.disable()
    try:
        return _serve(work, sluice, request, measuring)
    finally:
        gc.enable()


def back_to_back(work, sluice: Sluice, jobs: int) -> list:
    """Latencies in ms."""
    taken = []
    for _ in range(jobs):
        began, done = _one(work, sluice, time.monotonic_ns(), 0)
        taken.append((done - began) / 1e6)
    return taken
