"""Making steps as fast as they go, and when each ended."""

import time
from collections import deque
from collections.abc import Callable

# Steps that are launched before the oldest is waited for: the GPU never waits for the host, and no step
# is counted before it has ended.
_AHEAD = 2


class Steps:
    """step(): launches a step and gives a function that waits for it."""

    def __init__(self, step: Callable[[], Callable]):
        self._step = step
        self._pending: deque[Callable] = deque()
        self._ends: list[int] = []

    def begin(self) -> None:
        self._ends = [time.monotonic_ns()]

    def one(self) -> None:
        self._pending.append(self._step())
        if len(self._pending) > _AHEAD:
            self._wait()

    def _wait(self) -> None:
        self._pending.popleft()()
        self._ends.append(time.monotonic_ns())

    def finish(self) -> list[int]:
        """Monotonic times in ns: the begin, then the end of each step."""
        while self._pending:
            self._wait()
        return self._ends
