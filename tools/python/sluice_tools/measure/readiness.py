"""When a server is ready for requests, and what to say if none reach it."""

import contextlib
import math
import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

from sluice_tools.measure import processes
from sluice_tools.measure.load import run_once

_TRY_S = 5.0  # the longest for one try
# A server that has been idle for so long, of its CPU and of the GPU, waits for requests.
IDLE_S = 10.0
_IDLE_SHARE = 0.1  # of a core


class Ready:
    """What `--ready` means: a port of this machine, an address that answers, or a command that succeeds. Empty: any
    port on which the program listens."""

    def __init__(self, text: str, log: Path, environment: dict):
        self.text = text
        self._log = log
        self._environment = environment

    @property
    def port(self) -> int | None:
        return int(self.text) if re.fullmatch("[0-9]{1,5}", self.text) else None

    def now(self, leader: int) -> bool:
        """leader: the process of the program."""
        if self.port is not None:
            return is_open(self.port)
        if not self.text:
            return bool(processes.ports(leader))
        if re.match("https?://", self.text):
            with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(self.text, timeout=_TRY_S):
                return True
            return False
        return not run_once(self.text, self._log, self._environment, _TRY_S)


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_TRY_S):
        return True
    return False


def listening(leader: int) -> str:
    """The ports of a program, in words."""
    found = processes.ports(leader)
    if not found:
        return "it listens on no port"
    return f"it listens on port{'s' if found[1:] else ''} {', '.join(map(str, found))}"


class Idle:
    """Whether a server waits: it neither computes nor launches for IDLE_S seconds."""

    def __init__(self, leader: int, limit_s: float = IDLE_S):
        self._leader = leader
        self._limit = limit_s
        self._begin(0)

    def _begin(self, launches: int) -> None:
        self._launches, self._cpu = launches, processes.cpu_seconds(self._leader)
        self._since = time.monotonic()

    def waits(self, launches: int) -> bool:
        """launches: of the program so far."""
        seconds = time.monotonic() - self._since
        if launches != self._launches:
            self._begin(launches)
            return False
        if seconds < self._limit:
            return False
        if processes.cpu_seconds(self._leader) - self._cpu > _IDLE_SHARE * seconds:
            self._begin(launches)
            return False
        return bool(processes.ports(self._leader))


class Launching:
    """Whether a program goes on launching: it has launched in every second of the last ten."""

    def __init__(self, limit_s: float = 10.0, pause_s: float = 1.0):
        self._limit, self._pause = limit_s, pause_s
        self._launches = 0
        self._since = self._last = -math.inf

    def goes_on(self, launches: int) -> bool:
        """launches: of the program so far."""
        now = time.monotonic()
        if now - self._last > self._pause:
            self._since = now
        if launches != self._launches:
            self._launches, self._last = launches, now
        return self._launches > 0 and now - self._since >= self._limit
