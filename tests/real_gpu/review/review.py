"""Judges the programs of review_cases under `sluice exec`. See ../review.sh.

review.py --root ROOT --gpu real|sim [CASE ...]      CASE: B1 B2 B3 B5 B6 B7 F2
"""

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

_LIMIT_S = 60


class CaseError(Exception):
    """A program did not get as far as the case needs."""


class Skip(Exception):
    """The machine lacks what the case needs."""


class Program:
    """A program in the background. A line that it does not print in time ends it."""

    def __init__(self, command: list[str]):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()  # an empty text ends it
        self._errors: list[str] = []
        self._error_reader = threading.Thread(target=lambda: self._errors.extend(self._process.stderr), daemon=True)
        self._error_reader.start()
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = self._process.pid  # `sluice exec` keeps its pid

    def _read(self):
        for line in self._process.stdout:
            self._lines.put((time.monotonic(), line.rstrip("\n")))
        self._lines.put((time.monotonic(), ""))

    def line(self) -> str:
        """The next line; an empty text where none comes."""
        try:
            return self._lines.get(timeout=_LIMIT_S)[1]
        except queue.Empty:
            self.kill()
            return ""

    def rate(self, seconds: float) -> float:
        """Kernels per second from now on, from lines `done N`, which come twice a second."""
        end = time.monotonic() + seconds
        time.sleep(seconds)
        reports = []
        while not self._lines.empty():
            when, line = self._lines.get()
            if line.startswith("done") and when > end - seconds:
                reports.append((when, int(line.split()[1])))
        if len(reports) < 2:
            raise CaseError(f"no reports: {self.said()}")
        (first_s, first), (last_s, last) = reports[0], reports[-1]
        return (last - first) / (last_s - first_s)

    def expect(self, word: str) -> str:
        line = self.line()
        while line and not line.startswith(word):
            line = self.line()
        if not line:
            self.end()
            raise CaseError(f"no '{word}': exit code {self._process.returncode}, {self.said()}")
        return line

    def go_on(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def end(self) -> int:
        """Waits for the end of a program whose stdin has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            return self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return 124

    def kill(self):
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        self._error_reader.join(1)
        return self._errors[-1].strip() if self._errors else "no message"


class Review:
    def __init__(self, root: Path, gpu: str):
        self._root = root
        self._gpu = gpu
        self._sluice = str(root / "build/bin/sluice")
        self._cases = str(root / "build/tests/real_gpu/review/review_cases")
        self._programs: list[Program] = []

    # --- programs and what is known of them

    def start(self, priority: int | None, command: list[str]) -> Program:
        """`priority` None: without Sluice."""
        how = ["--no-intercept"] if priority is None else ["--priority", str(priority)]
        program = Program([self._sluice, "exec", "--gpu", self._gpu, *how, "--", *command])
        self._programs.append(program)
        return program

    def case(self, priority: int | None, *arguments: str) -> Program:
        return self.start(priority, [self._cases, *arguments])

    def finish(self):
        for program in self._programs:
            program.kill()
        self._programs.clear()

    def ask(self, command: str) -> dict:
        """The JSON of a `sluice` command; empty without a session."""
        answer = subprocess.run(
            [self._sluice, command, *(["--gpu", self._gpu] if command == "gpus" else []), "--json"],
            capture_output=True,
            text=True,
        )
        return json.loads(answer.stdout or "{}")

    def client(self, program: Program, gpu: int = 0, command: str = "status") -> dict:
        """The client of a program on a GPU. The session has an index of its own for it."""
        uuid = self.ask("gpus")["devices"][gpu]["uuid"]
        status = self.ask(command)
        device = next((d["index"] for d in status.get("devices", []) if d["uuid"] == uuid), None)
        for client in status.get("clients", []):
            if client["pid"] == program.pid and client["device"] == device:
                return client
        raise CaseError(f"pid {program.pid} has no slot for GPU {gpu}")

    # --- cases: each returns what it has seen and whether that is right

    def b1(self) -> tuple[str, bool]:
        program = self.case(0, "update")
        results = [program.expect("update").split()[1] for _ in range(2)]
        right = program.end() == 0 and results == ["CUDA_SUCCESS"] * 2
        return f"cuGraphExecUpdate to a shape of unknown and of known duration: {', '.join(results)}", right

    def b2(self) -> tuple[str, bool]:
        self._need_two_devices()
        for gpu in ("0", "1"):  # so that the program waits on both
            self.case(1, "idle", gpu).expect("ready")
        program = self.case(0, "reset")
        waited = []
        answers = []
        for when in ("before", "after"):
            answers.append(program.expect(when).split()[1:])
            waited.append(self.client(program, gpu=1)["waits"])
            program.go_on()
        right = answers == [["CUDA_SUCCESS"] * 2] * 2 and waited[1] > waited[0]
        return (
            f"after a reset of device 0, a graph on device 1: {answers[1][0]}, "
            f"{waited[1] - waited[0]} waits in 1000 launches (before: {waited[0]} in all)"
        ), right

    def b3(self) -> tuple[str, bool]:
        seen = {}
        for name, priority in (("bare", None), ("under Sluice", 0)):
            program = self.case(priority, "cancel")
            line = program.line() or program.said()
            code = program.end()
            seen[name] = line if code == 0 else f"exit code {code}"
        text = ", ".join(f"{name}: {what}" for name, what in seen.items())
        return f"a thread cancelled in cuStreamSynchronize: {text}", seen["bare"] == seen["under Sluice"]

    def b5(self) -> tuple[str, bool]:
        jax = importlib.util.find_spec("jax") is not None and self._gpu == "real"
        critical = self.case(1, "idle", "0")
        critical.expect("ready")
        silent = (
            self.start(0, [sys.executable, str(self._root / "tests/real_gpu/review/silent_jax.py")])
            if jax
            else self.case(0, "silent")
        )
        silent.expect("ready")
        program = self.case(0, "short", "20000")
        program.expect("ready")
        program.go_on()
        program.expect("launched")
        client = self.client(program)
        return (
            f"waits {client['waits']} of {client['launches']} launches of 20 us beside an idle "
            f"{'JAX program' if jax else 'program that never synchronises'}"
        ), 0 < client["waits"] < client["launches"] // 3

    def b6(self) -> tuple[str, bool]:
        with self._controller("--max-hold", "3"):
            low = self.case(0, "busy", "40")
            low.expect("ready")
            time.sleep(3)
            alone = low.rate(2)
            high = self.case(1, "busy", "25")
            high.expect("ready")
            time.sleep(2)
            held = low.rate(20)
            opened = self.client(low)["max_hold_opened"]
        share = held / alone if alone else 1.0
        return (
            f"best effort runs at {share:.1%} of its speed in seconds 2 to 22 of critical work without a "
            f"gap; max_hold of 3 s opened its gate {opened} times"
        ), alone > 0 and share < 0.02

    def b7(self) -> tuple[str, bool]:
        self._need_two_devices()
        p50_ms = {}
        for name, more in (("one device", []), ("two devices", ["second"])):
            high = self.case(1, "jobs", "6", *more)
            high.expect("ready")
            time.sleep(4)
            p50_ns = self.client(high, command="top")["recent_jobs"]["p50_ns"]
            if p50_ns is None:
                raise CaseError(f"with {name}, no job has ended")
            p50_ms[name] = p50_ns / 1e6
            self.finish()
        text = ", ".join(f"{ms:.2f} ms with {name}" for name, ms in p50_ms.items())
        return f"a job of 1 ms takes {text} in use", p50_ms["two devices"] < 1.2 * p50_ms["one device"] + 0.1

    def f2(self) -> tuple[str, bool]:
        inside = self.case(0, "idle", "0")
        inside.expect("ready")
        outside = self.case(None, "idle", "0")
        outside.expect("ready")
        listed = self.ask("status").get("outside")
        named = [(process["pid"], process["memory_bytes"]) for process in listed or []]
        hidden = [pid for pid, _ in named if pid is None]
        right = outside.pid in dict(named) or len(hidden) == 1  # in a container, only counted
        return f"pid {outside.pid} without Sluice; status lists (pid, bytes) {named}", right

    # --- parts of cases

    def _need_two_devices(self):
        if len(self.ask("gpus")["devices"]) < 2:
            raise Skip("needs two devices")

    @contextlib.contextmanager
    def _controller(self, *options: str):
        controller = subprocess.Popen(
            [self._sluice, "controller", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            time.sleep(0.5)
            yield
        finally:
            self.finish()
            controller.send_signal(signal.SIGTERM)
            controller.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--gpu", choices=("real", "sim"), required=True)
    parser.add_argument("cases", nargs="*", default=["B1", "B2", "B3", "B5", "B6", "B7", "F2"])
    options = parser.parse_args()
    failed = False
    for name in options.cases:
        # A session each, so that nothing of one case is left in the next.
        os.environ["SLUICE_SESSION"] = f"review-{os.getpid()}-{name.lower()}"
        review = Review(options.root, options.gpu)
        try:
            seen, right = getattr(review, name.lower())()
        except Skip as why:
            print(f"{name} skipped: {why}", flush=True)
            continue
        except (CaseError, KeyError, ValueError) as error:
            seen, right = f"{type(error).__name__}: {error}", False
        finally:
            review.finish()
        print(f"{name} {seen}: {'pass' if right else 'FAIL'}", flush=True)
        failed = failed or not right
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
