"""`sluice doctor --slices`: whether this GPU obeys time slices, tried with two small programs of our own."""

import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping

from sluice_tools.common import slice_answers
from sluice_tools.common.slice_answers import NOT_OBEYED, OBEYED, Answer
from sluice_tools.doctor.checks import OK, WARNING, Finding, Surroundings, run

_START_S = 30
_WINDOW_S = 1.0
_SETTLE_S = 0.3
_ROUNDS = 3
_SHORT = "100us"
_LONGEST_S = 60  # the programs end then, even if nobody is left to end them
_PAGE = "docs/reference/slices.md"
_KEPT = ("SLUICE_PROGRAM", "SLUICE_PYTHON", "SLUICE_NODE_DIR", "SLUICE_SIM")


def _trial_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without settings for clients. The controller of the trial's session must begin no trial of its own."""
    kept = {
        name: text for name, text in environment.items() if not name.startswith("SLUICE_") or name.startswith(_KEPT)
    }
    return kept | {"SLUICE_CHECK_SLICES": "never"}


class _Trial:
    """A program with kernels of 20 ms, and a critical one with kernels of 20 us, in a session of their own."""

    def __init__(self, about: Surroundings):
        self._about = dataclasses.replace(about, environment=_trial_environment(about.environment))
        self._session = f"doctor-{os.getpid()}"
        spin = [str(about.program.parents[1] / "libexec" / "sluice" / "sluice-example-spin")]
        spin += ["--seconds", str(_LONGEST_S)]
        self._programs = [
            self._start(
                "long", ["--priority", "0", "--policy", "none"], [*spin, "--kernels", "10", "--kernel-us", "20000"]
            ),
            self._start(
                "short", ["--priority", "1"], [*spin, "--kernels", "1", "--kernel-us", "20", "--period-ms", "9"]
            ),
        ]

    def _start(self, name: str, options: list[str], program: list[str]) -> subprocess.Popen:
        place = ["--session", self._session, "--gpu", self._about.gpu, "--name", name]
        command = [str(self._about.program), "exec", *place, *options, "--", *program]
        if setpriv := shutil.which("setpriv"):  # whoever kills this process ends them, too
            command = [setpriv, "--pdeathsig", "KILL", *command]
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
                if program.poll() is not None and program.stderr:
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


def try_slices(about: Surroundings) -> Answer:
    """Tries the first GPU that a program in these surroundings gets."""
    trial = _Trial(about)
    try:
        if why := trial.begins():
            return Answer(None, why=f"not tried: {why}")
        driver, short = [], []
        for _ in range(_ROUNDS):
            driver.append(trial.job_ms("off"))
            short.append(trial.job_ms(_SHORT))
            if (state := trial.state()) != "short":
                return Answer(None, why=f"no: the slice of a program cannot be set here ({state})")
        with_short, with_drivers = statistics.median(short), statistics.median(driver)
        return Answer(OBEYED if with_short < 0.6 * with_drivers else NOT_OBEYED, with_short, with_drivers)
    except KeyError:
        return Answer(None, why="not tried: a program of the trial ended early")
    finally:
        trial.end()


def _first_gpu(about: Surroundings) -> str:
    found, _ = about.sluice("gpus", "--gpu", about.gpu, "--json")
    return found["devices"][0]["uuid"] if found.get("devices") else ""


def _driver(about: Surroundings) -> str:
    return slice_answers.SIMULATED if about.gpu == "sim" else slice_answers.loaded_driver(about.files)


def slices(about: Surroundings) -> Iterator[Finding]:
    answer = try_slices(about)
    if about.gpu == "real":  # the simulated GPU is that of one session
        slice_answers.record(_first_gpu(about), _driver(about), answer, about.environment)
    if answer.slices is None:
        tried = answer.why.startswith("no: ")
        todo = f"kernels run to the end of the driver's slice ({_PAGE})" if tried else "mend that, and try again"
        yield Finding("slices", WARNING, answer.why, todo)
        return
    said = (
        f"{answer.slices}: a short job next to kernels of 20 ms takes {answer.short_ms:.2f} ms with slices of "
        f"{_SHORT}, {answer.driver_ms:.2f} ms with the driver's"
    )
    if answer.slices == OBEYED:
        yield Finding("slices", OK, said)
    else:
        todo = f"was the GPU idle otherwise? If not, try again. Until then clients have the driver's slices ({_PAGE})"
        yield Finding("slices", WARNING, said, todo)


def answer_for(about: Surroundings, uuid: str) -> dict:
    """Tries the GPU or MIG instance with this UUID, as `sluice status` writes it. Records nothing: who asks knows
    whether somebody disturbed."""
    for visible in (uuid, "MIG" + uuid.removeprefix("GPU")):
        chosen = about
        if about.gpu == "real":
            chosen = dataclasses.replace(about, environment={**about.environment, "CUDA_VISIBLE_DEVICES": visible})
        if _first_gpu(chosen) == uuid:
            return slice_answers.content(try_slices(chosen), _driver(chosen))
    return slice_answers.content(Answer(None, why=f"not tried: this user's programs find no GPU {uuid}"), "")
