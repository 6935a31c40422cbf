"""When requests arrive, and waiting for them."""

import itertools
import random
import time
from collections.abc import Iterator

_SPIN_NS = 150_000


def arrivals_ns(kind: str, period_ns: float, seed: int) -> Iterator[int]:
    """Endless: when each request arrives, from 0."""
    if kind == "periodic":
        yield from (round(index * period_ns) for index in itertools.count())
    chance, at = random.Random(seed), 0.0
    while True:
        yield round(at)
        at += chance.expovariate(1 / period_ns)


def wait_until(due_ns: int) -> None:
    """Asleep until shortly before, then spinning: waking up late is no latency of the GPU."""
    left = due_ns - time.monotonic_ns() - _SPIN_NS
    if left > 0:
        time.sleep(left / 1e9)
    while time.monotonic_ns() < due_ns:
        pass
