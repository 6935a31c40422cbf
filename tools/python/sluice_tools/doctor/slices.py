"""`sluice doctor --slices`: whether this GPU obeys time slices, tried with two small programs of our own."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator

from sluice_tools.doctor.checks import OK, WARNING, Finding, Surroundings, run

_START_S = 30
_WINDOW_S = 1.0
_SETTLE_S = 0.3
_ROUNDS = 3
_SHORT = "100us"
_PAGE = "docs/reference/slices.md"


class _Trial:
    """A program with kernels of 20 ms, and a critical one with kernels of 20 us, in a session of their own."""

    def __init__(self, about: Surroundings):
        self._about = about
        self._session = f"doctor-{os.getpid()}"
        spin = str(about.program.parents[1] / "libexec" / "sluice" / "sluice-example-spin")
        self._programs = [
            self._start("long", ["--priority", "0", "--policy", "none"], [spin, "--kernel-us", "20000"]),
            self._start(
                "short", ["--priority", "1"], [spin, "--kernels", "1", "--kernel-us", "20", "--period-ms", "9"]
            ),
        ]

    def _start(self, name: str, options: list[str], program: list[str]) -> subprocess.Popen:
        place = ["--session", self._session, "--gpu", self._about.gpu, "--name", name]
        command = [str(self._about.program), "exec", *place, *options, "--", *program]
        return subprocess.Popen(
            command, env=dict(self._about.environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def _clients(self) -> dict[str, dict]:
        done = run([str(self._about.program), "status", "--json", "--session", self._session], self._about.environment)
        clients = json.loads(done.stdout)["clients"] if done.returncode == 0 else []
        return {client["name"]: client for client in clients}

    def begins(self) -> str:
        """Why it cannot begin; empty if both run."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            clients = self._clients()
            if len(clients) == 2 and clients["short"]["jobs"] > 5:
                return ""
            for program in self._programs:
                if program.poll() is not None:
                    return (program.stderr.read().strip().splitlines() or ["a program ended at once"])[-1]
            time.sleep(0.1)
        return f"the programs did not run within {_START_S} s"

    def _jobs(self) -> tuple[int, int]:
        client = self._clients()["short"]
        return client["jobs"], client["jobs_total_ns"]

    def job_ms(self, slice_: str) -> float:
        """How long a critical job takes with this slice, on average over a window."""
        place = ["--session", self._session]
        run([str(self._about.program), "set", "long", "--slice", slice_, *place], self._about.environment)
        deadline = time.monotonic() + _START_S
        while self.state() == "unknown" and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(_SETTLE_S + (0.5 if slice_ != "off" else 0))  # a short slice is set after half a second
        before = self._jobs()
        time.sleep(_WINDOW_S)
        after = self._jobs()
        return (after[1] - before[1]) / max(1, after[0] - before[0]) / 1e6

    def state(self) -> str:
        return self._clients()["long"]["slice"]["state"]

    def end(self) -> None:
        for program in self._programs:
            program.terminate()
        for program in self._programs:
            program.communicate(timeout=_START_S)


def slices(about: Surroundings) -> Iterator[Finding]:
    trial = _Trial(about)
    try:
        if why := trial.begins():
            yield Finding("slices", WARNING, f"not tried: {why}", "mend that, and try again")
            return
        driver, short = [], []
        for _ in range(_ROUNDS):
            driver.append(trial.job_ms("off"))
            short.append(trial.job_ms(_SHORT))
            if trial.state() != "short":
                said = f"no: the slice of a program cannot be set here ({trial.state()})"
                yield Finding("slices", WARNING, said, f"kernels run to the end of the driver's slice ({_PAGE})")
                return
        with_short, with_drivers = statistics.median(short), statistics.median(driver)
        said = (
            f"a short job next to kernels of 20 ms takes {with_short:.2f} ms with slices of {_SHORT}, "
            f"{with_drivers:.2f} ms with the driver's"
        )
        if with_short < 0.6 * with_drivers:
            yield Finding("slices", OK, f"obeyed: {said}")
        else:
            todo = f"was the GPU idle otherwise? If so, set no slices: SLUICE_SLICE=off ({_PAGE})"
            yield Finding("slices", WARNING, f"not obeyed: {said}", todo)
    finally:
        trial.end()
