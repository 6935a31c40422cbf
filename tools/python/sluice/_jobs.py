"""Jobs of this process: the functions of sluice.h that mark and announce them."""

import ctypes
import functools
import inspect
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar, cast

from sluice._library import functions

P = ParamSpec("P")
R = TypeVar("R")

_SIGNATURES = {
    "job_announce": (ctypes.c_uint64, [ctypes.c_uint64]),
    "job_cancel": (None, [ctypes.c_uint64]),
    "job_begin": (ctypes.c_uint64, [ctypes.c_uint64]),
    "job_end": (None, [ctypes.c_uint64]),
    "set_target": (ctypes.c_int, [ctypes.c_char_p]),
    "attached": (ctypes.c_int, []),
}
# A preload cannot change while the process lives.
_interposer = functions(_SIGNATURES)


class Announcement:
    """A job that has been announced and may still begin. Thread-safe."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """The job will not come. Does nothing if the job has begun, or has been cancelled."""
        number = self._take()
        if number:
            _interposer["job_cancel"](number)

    def _take(self) -> int:
        with self._lock:
            number, self._number = self._number, 0
        return number


def announce(seconds: float) -> Announcement:
    """Announces a job that begins in so many seconds; see docs/guide/python.md.

    Raises ValueError if `seconds` is negative or not finite, with and without Sluice.
    """
    check_seconds("sluice.announce", seconds)
    if not _interposer:
        return Announcement(0)
    return Announcement(_interposer["job_announce"](time.monotonic_ns() + round(seconds * 1e9)))


def check_seconds(where: str, seconds: float) -> None:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{where}: {seconds!r} is not a number of seconds from now; use 0 or more")


class job:
    """One job, as `with sluice.job():` or as the decorator `@sluice.job()`.

    Wait for the GPU before the block or the function ends. A decorated function, plain or async, is
    a job at each call; it takes no announcement. A block can be entered once at a time.
    """

    def __init__(self, announced: Announcement | None = None) -> None:
        self._announced = announced
        self._number: int | None = None

    def __enter__(self) -> "job":
        if self._number is not None:
            raise RuntimeError("sluice.job: this job has begun already; make one with sluice.job() for each block")
        announced = self._announced._take() if self._announced else 0
        self._number = _interposer["job_begin"](announced) if _interposer else 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        number, self._number = self._number, None
        if number:
            _interposer["job_end"](number)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"sluice.job: {function.__name__} is a generator, which runs after its call has returned; "
                "use `with sluice.job():` inside"
            )
        if self._announced is not None:
            raise TypeError("sluice.job: an announcement is for one job; decorate with sluice.job()")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waiting(*args: P.args, **kwargs: P.kwargs):
                with job():
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", waiting)

        @functools.wraps(function)
        def calling(*args: P.args, **kwargs: P.kwargs) -> R:
            with job():
                return function(*args, **kwargs)

        return calling


def set_target(target: str | None) -> bool:
    """Sets the latency that is good enough for the jobs of this process; see docs/reference/targets.md.

    None takes the target away. Returns whether the process runs under Sluice. Raises ValueError if
    the text is not a target; without Sluice, no text is checked.
    """
    text = "none" if target is None else target
    if not _interposer:
        return False
    if not _interposer["set_target"](text.encode()):
        raise ValueError(f"sluice.set_target: {text!r} is not a target; examples: 'p99=50ms', 'p99=1.2x', None")
    return True


def attached() -> bool:
    """Whether this process has a place on the board and obeys its gate. False before its first use of the GPU."""
    return bool(_interposer) and _interposer["attached"]() == 1
