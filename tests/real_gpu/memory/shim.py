"""Controls libmemory_shim.so, which memory.sh preloads. Times are time.monotonic_ns()."""

import ctypes
import os
import time

from torch.utils._python_dispatch import TorchDispatchMode


class Shim:
    """The library in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["MEMORY_SHIM"])
        for name in ("disarm", "refused_at", "first_refusal", "launches", "drain_ns"):
            getattr(self._library, f"shim_{name}").restype = ctypes.c_int64
        self._library.shim_arm.argtypes = [ctypes.c_int64, ctypes.c_int64]
        self._library.shim_bound.argtypes = [ctypes.c_int64, ctypes.c_int64]

    def arm(self, launches: int = -1, delay_ns: int = -1) -> None:
        """Refuses all launches after this number of them, or after this time; negative: not by that."""
        self._library.shim_arm(launches, delay_ns)

    def disarm(self) -> int:
        """Lets launches through again. Returns how many were refused since arm()."""
        return self._library.shim_disarm()

    def refused_at(self) -> int:
        return self._library.shim_refused_at()

    def first_refusal(self) -> int:
        return self._library.shim_first_refusal()

    def launches(self) -> int:
        return self._library.shim_launches()

    def bound(self, group: int, depth: int) -> None:
        """At most depth + 1 groups of this many launches are queued; group 0: no bound."""
        self._library.shim_bound(group, depth)

    def ask_drain(self) -> None:
        self._library.shim_ask_drain()

    def drain_ns(self) -> int:
        """What the drain asked for took; -1 until then."""
        return self._library.shim_drain_ns()


class CpuShim(TorchDispatchMode):
    """Refuses operations on the CPU, so that the experiment itself can be tried without a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self._count = self._refused = self._at = 0
        self._after = self._time = 1 << 62

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._count += 1
        if self._count > self._after or time.monotonic_ns() >= self._time:
            if not self._refused:
                self._at = time.monotonic_ns()
            self._refused += 1
            raise RuntimeError(f"refused: {func}")
        return func(*args, **(kwargs or {}))

    def arm(self, launches: int = -1, delay_ns: int = -1) -> None:
        self._refused = self._at = 0
        self._after = 1 << 62 if launches < 0 else self._count + launches
        self._time = 1 << 62 if delay_ns < 0 else time.monotonic_ns() + delay_ns

    def disarm(self) -> int:
        self._after = self._time = 1 << 62
        refused, self._refused = self._refused, 0
        return refused

    def refused_at(self) -> int:
        return self._at

    def first_refusal(self) -> int:
        return self._at

    def launches(self) -> int:
        return self._count
