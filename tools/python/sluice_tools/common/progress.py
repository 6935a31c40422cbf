"""A progress bar on standard error, for work that turns out to be long."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized

_WIDTH = 30
_QUIET_S = 1.0
_EVERY_S = 0.2
_STARTED = time.monotonic()  # the command


class Progress:
    """Of `total` units. Prints nothing in the first second of the command, or if standard error is not a
    terminal."""

    def __init__(self, label: str, total: int):
        self._label = label
        self._total = max(total, 1)
        self._begin = time.monotonic()
        self._next = max(_STARTED + _QUIET_S, self._begin + _EVERY_S)
        self._shown = False
        self._wanted = sys.stderr.isatty()

    def __enter__(self):
        return self

    def at(self, done: int) -> None:
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next, self._shown = now + _EVERY_S, True
        share = min(done / self._total, 1.0)
        left = (now - self._begin) * (1 / share - 1) if share > 0 else 0
        bar = "#" * round(share * _WIDTH)
        print(
            f"\r{self._label} [{bar:<{_WIDTH}}] {share:4.0%}, {left:.0f} s left ", end="", file=sys.stderr, flush=True
        )

    def __exit__(self, *_):
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def counted(label: str, total: int, parts: Iterable[Sized]) -> Iterator:
    """These parts, and a bar of how many things of `total` in them the taker is done with."""
    with Progress(label, total) as progress:
        done = 0
        for part in parts:
            yield part
            done += len(part)
            progress.at(done)
