"""The functions of sluice.h that concern memory, by ctypes."""

import ctypes
import enum

from sluice._library import functions

NO_LIMIT = 2**64 - 1  # SLUICE_NO_LIMIT


class Kind(enum.IntEnum):
    """What a process of higher priority asks of a trainer. SLUICE_ORDER_... of sluice.h."""

    NONE = 0
    SHRINK = 1  # give memory back at the end of the micro-batch
    DROP = 2  # launches are refused until the micro-batch has been dropped
    SLEEP = 3  # as DROP, then wait for the next order
    EPOCH = 4  # as SLEEP, then begin the epoch again


_SIGNATURES = {
    "memory_grant": (ctypes.c_uint64, []),
    "memory_held": (ctypes.c_uint64, []),
    "memory_refused": (ctypes.c_uint64, []),
    "memory_fit": (None, [ctypes.c_uint64, ctypes.c_uint64]),
    "order": (ctypes.c_uint64, []),
    "order_done": (None, [ctypes.c_uint64]),
    "wait_resume": (ctypes.c_int, [ctypes.c_uint32]),
    "critical": (None, [ctypes.c_int]),
}


class Orders:
    """The preloaded interposer. `preloaded` is false without one, and then nothing is called."""

    def __init__(self) -> None:
        self._functions = functions(_SIGNATURES)
        self.preloaded = bool(self._functions)

    def grant(self) -> int:
        """Bytes of device memory that this process may hold; NO_LIMIT without a limit."""
        return self._functions["memory_grant"]()

    def held(self) -> int:
        """Bytes of device memory that this process holds."""
        return self._functions["memory_held"]()

    def refused(self) -> int:
        """Allocations of this process that were refused because of the grant."""
        return self._functions["memory_refused"]()

    def fit(self, base: int, slope: int) -> None:
        """Reports that a micro-batch of n items needs base + slope * n bytes in all."""
        self._functions["memory_fit"](base, slope)

    def pending(self) -> int:
        """The order that is not obeyed yet, as a number for done(); 0 if there is none."""
        return self._functions["order"]()

    def done(self, order: int) -> None:
        """The order has been obeyed: launches are accepted again."""
        self._functions["order_done"](order)

    def wait(self, timeout_ms: int) -> bool:
        """Waits for a new order or grant, and while the last order was to sleep. False: timeout."""
        return self._functions["wait_resume"](timeout_ms) != 0

    def critical(self, on: bool) -> None:
        """While on, no launch is refused."""
        self._functions["critical"](int(on))


def kind_of(order: int) -> Kind:
    """The kind of an order; SLEEP for a kind that this version does not know."""
    kind = order & 0xFF
    return Kind(kind) if kind <= Kind.EPOCH else Kind.SLEEP
