"""Programs of a measurement: processes in a session of their own, and a private MPS daemon."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.common.grammar import WHOLE

_END_S = 20  # how long a program may take to end after SIGTERM


class Program:
    """A program whose lines on standard error are read as they come, with their times.

    Runs in a process group of its own, which ends as a whole: a shell script may have started the
    program proper. `log`: a file for standard output and standard error, instead of reading them.
    """

    def __init__(
        self, command: list, environment: dict | None = None, stdin=subprocess.DEVNULL, log: Path | None = None
    ):
        self.log = log
        self.lines: list[tuple[float, str]] = []  # (monotonic seconds, text)
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("wb")) if log else subprocess.PIPE
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=stdin,
                stdout=out,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=not log,
                # A byte that is no UTF-8 would end the thread that reads, and the program at a full pipe.
                errors=None if log else "replace",
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append((time.monotonic(), line.rstrip()))

    def wait_for(self, beginning: str, seconds: float = 120) -> None:
        """Until a line begins so. Raises RuntimeError with the last lines if none comes."""
        deadline = time.monotonic() + seconds
        while True:
            # In this order: a program may print the line and end at once.
            over = self.process.poll() is not None or time.monotonic() > deadline
            if over:
                self._reader.join(timeout=1)
            if any(text.startswith(beginning) for _, text in list(self.lines)):
                return
            if over:
                raise RuntimeError(f"no '{beginning}': " + self.said())
            time.sleep(0.05)

    def result(self) -> dict:
        """The JSON that the program printed last, once it has ended. Raises RuntimeError."""
        out = self.process.stdout.read() if self.process.stdout else ""
        if self.process.wait() != 0:
            raise RuntimeError(f"exited with {self.process.returncode}: {self.said()}")
        if not out.strip():
            raise RuntimeError(f"printed no result: {self.said()}")
        return json.loads(out.splitlines()[-1])

    def said(self) -> str:
        """The last lines of its output, on one line."""
        if self.log:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        else:
            self._reader.join(timeout=1)
            lines = [text for _, text in self.lines]
        return " / ".join(line.strip() for line in lines[-5:] if line.strip()) or "it said nothing"

    def describe_end(self) -> str:
        """How it ended; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        return f"{how}: {self.said()}"

    def end(self) -> None:
        """Sends SIGTERM to the whole group, and SIGKILL to what is left of it."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_END_S)
        self._signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            # What is still to be written has no reader any more.
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


_sessions = itertools.count(1)
# A measurement says itself what runs under MPS, whatever the shell says in which it was started.
_OWN_MPS = {"SLUICE_MPS": "0", "SLUICE_SMS": ""}


class Session:
    """Programs under `sluice exec` in a session of their own."""

    def __init__(self, sluice: str, gpu: str = "real"):
        self._sluice = sluice
        self._gpu = gpu
        self.name = f"measure-{os.getpid()}-{next(_sessions)}"
        self._started: list[Program] = []

    def start(
        self, command: list, priority: int, policy: str, environment: dict, kind=Program, options: tuple = (), **more
    ) -> Program:
        """Starts `command`; options: further ones of `sluice exec`."""
        program = kind(
            [
                self._sluice,
                "exec",
                "--session",
                self.name,
                "--priority",
                str(priority),
                "--policy",
                policy,
                "--gpu",
                self._gpu,
                *options,
                "--",
                *command,
            ],
            _OWN_MPS | environment,
            **more,
        )
        self._started.append(program)
        return program

    def clients(self) -> dict:
        """What `sluice status --json` reports of each client, by pid. Empty if there is no session."""
        return {client["pid"]: client for client in self._status()}

    def pids(self, name: str) -> list[int]:
        """Of the clients with this name, which may be processes of one program."""
        return sorted({client["pid"] for client in self._status() if client.get("name") == name})

    def _status(self) -> list[dict]:
        said = subprocess.run(
            [self._sluice, "status", "--json", "--session", self.name], capture_output=True, text=True, check=False
        )
        return json.loads(said.stdout)["clients"] if said.returncode == 0 else []

    def set(self, pid: int, options: tuple) -> None:
        """options: of `sluice set`. Raises RuntimeError if the client does not have them then."""
        said = subprocess.run(
            [self._sluice, "set", f"pid:{pid}", *options, "--session", self.name],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode != 0:
            raise RuntimeError(f"sluice set {' '.join(options)}: {said.stderr.strip()}")

    def end(self) -> None:
        for program in reversed(self._started):
            program.end()


@contextlib.contextmanager
def session(sluice: str, gpu: str = "real") -> Iterator[Session]:
    """A Session whose programs end with it, the last started first."""
    opened = Session(sluice, gpu)
    try:
        yield opened
    finally:
        opened.end()


def width_variables(percent: int) -> dict[str, str]:
    """Of a client that is to use so many percent of the SMs under MPS, from its start."""
    return {} if percent == WHOLE else {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}


@contextlib.contextmanager
def mps(sluice: str, wanted: bool) -> Iterator:
    """A private MPS daemon. Gives a function: below normal priority or not -> a client's environment.

    Raises RuntimeError if the daemon does not start.
    """
    if not wanted:
        yield lambda below: {}
        return
    # The daemon ends when its standard input does, so it also ends with this process.
    with (
        tempfile.TemporaryDirectory(prefix="sluice-mps-") as folder,
        subprocess.Popen(
            [sluice, "mps", "--log", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as daemon,
    ):
        assert daemon.stdout and daemon.stderr
        lines = itertools.takewhile(str.strip, daemon.stdout)
        variables = dict(line.strip().split("=", 1) for line in lines)
        if not variables:
            raise RuntimeError(daemon.stderr.read().strip() or "the MPS daemon did not start")
        yield lambda below: variables | {"CUDA_MPS_CLIENT_PRIORITY": "1" if below else "0"}
