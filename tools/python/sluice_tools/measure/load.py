"""The load generator of a measurement, and the latency that it prints."""

import contextlib
import math
import os
import re
import signal
import statistics
import subprocess
import threading
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.measure.statistics import latency_figures

_END_S = 5  # how long it may take to end after SIGTERM
_PAUSE_S = 0.05  # between the end of a load generator and its next start
_SAMPLES = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_SUMMARIES = ("p50", "p99", "mean")
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?")


class Latency:
    """What `--latency` means: an expression for lines of the load generator, or a file to which it appends lines.

    A line of the file ends with a latency in ms. The expression has a group: the first one, in ms, or one of the
    names ms, us, s of a request, and p50, p99, mean of many, in ms.
    """

    def __init__(self, text: str):
        self.text = text
        self.file = None if "(" in text else Path(text)
        if self.file:
            return
        try:
            self._expression = re.compile(text)
        except re.error as error:
            raise usage_error(f"--latency: '{text}' is no regular expression: {error}") from error
        named = set(self._expression.groupindex)
        if unknown := named - set(_SAMPLES) - set(_SUMMARIES):
            raise usage_error(f"--latency: a group is named ms, us, s, p50, p99 or mean, not {', '.join(unknown)}")
        if not self._expression.groups:
            raise usage_error("--latency: the expression needs a group around the number, as in 'latency ([0-9.]+) ms'")

    def of_line(self, line: str) -> list[tuple[str, float]]:
        """(ms or a summary's name, ms) of each match."""
        found = []
        for match in self._expression.finditer(line) if not self.file else ():
            groups = {name: text for name, text in match.groupdict().items() if text}
            groups = groups or ({} if self._expression.groupindex else {"ms": match[1]})
            for name, text in groups.items():
                with contextlib.suppress(ValueError, TypeError):
                    found.append((name if name in _SUMMARIES else "ms", float(text) * _SAMPLES.get(name, 1.0)))
        return found

    def size(self) -> int:
        try:
            return self.file.stat().st_size if self.file else 0
        except OSError:
            return 0

    def of_file(self, begin: int) -> list[float]:
        """Of the lines behind `begin`; of all, if the file is shorter now: it was written anew."""
        if not self.file:
            return []
        begin = 0 if self.size() < begin else begin
        try:
            with self.file.open("rb") as file:
                file.seek(begin)
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        numbers = [_NUMBER.findall(line)[-1:] for line in lines]
        return [float(found[0]) for found in numbers if found]


class Load:
    """Runs a command of the shell again and again until it is closed, or fails."""

    def __init__(self, command: str, log: Path, environment: dict, latency: Latency | None = None):
        self._command = command
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        self._latency = latency
        self._log = log
        self._lock = threading.Lock()
        self._found: dict[str, list] = {}
        self._offset = 0
        self._last: list[str] = []
        self._closing = threading.Event()
        self._process: subprocess.Popen | None = None
        self.ends = 0
        self.failure = ""  # why it does not run any more
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._log.open("a") as log:
                while not self._closing.is_set() and not self.failure:
                    self._once(log)
                    self._closing.wait(_PAUSE_S)
        except OSError as error:
            self.failure = f"cannot be run: {error}"

    def _once(self, log) -> None:
        with subprocess.Popen(
            ["sh", "-c", self._command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            self._process = process
            if self._closing.is_set():
                self._signal(signal.SIGKILL)
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                self._take(line.rstrip("\n"))
            code = process.wait()
        self.ends += 1
        if code and not self._closing.is_set():
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            self.failure = f"{how}: {self.said()}"

    def _take(self, line: str) -> None:
        with self._lock:
            self._last = [*self._last[-2:], line.strip()]
            for name, ms in self._latency.of_line(line) if self._latency else ():
                self._found.setdefault(name, []).append(ms)

    def clear(self) -> None:
        """Forgets the latencies so far: the window begins."""
        with self._lock:
            self._found.clear()
        self._offset = self._latency.size() if self._latency else 0

    def figures(self, scale: float) -> dict:
        """Columns of the critical row, by the client's own latency; empty if it said none since clear()."""
        if not self._latency:
            return {}
        with self._lock:
            found = {name: [ms / scale for ms in values] for name, values in self._found.items()}
        samples = found.pop("ms", []) + [ms / scale for ms in self._latency.of_file(self._offset)]
        samples = [ms for ms in samples if 0 < ms < math.inf]
        if samples:
            return latency_figures(samples)
        return {f"{name}_ms": statistics.median(values) for name, values in found.items()}

    def said(self) -> str:
        with self._lock:
            return " / ".join(filter(None, self._last)) or "it said nothing"

    def close(self) -> None:
        self._closing.set()
        self._signal(signal.SIGTERM)
        self._thread.join(timeout=_END_S)
        self._signal(signal.SIGKILL)
        self._thread.join()

    def _signal(self, number: int) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def run_once(command: str, log: Path, environment: dict, limit_s: float | None = None) -> str:
    """How a command of the shell failed; empty if it did not."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["sh", "-c", command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"took longer than {limit_s:g} s"
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not code:
        return ""
    lines = log.read_text(errors="replace").strip().splitlines()
    return f"exited with {code}: {lines[-1].strip() if lines else 'it said nothing'}"
