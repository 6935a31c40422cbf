"""Cells that are commands of the user: started under `sluice exec`, watched through the board.

The programs need no change. A job of the critical program is what Sluice takes for one: between
sluice_job_begin() and sluice_job_end(), or from the first launch to the end of its GPU work.
"""

import contextlib
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.measure.programs import Program, Session, session
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.statistics import latency_figures

_PRIORITY = {CRITICAL: 1, BEST_EFFORT: 0}
_STEP_S = 0.1  # between two looks at the programs
_COUNTERS = ("launches", "held_ns", "waits")


@dataclass(frozen=True)
class Timing:
    """Seconds: `warm_up` after both programs work, then `window`; `start` is the longest for loading."""

    window: float
    warm_up: float
    start: float


class Watch:
    """What `sluice top --json --follow` sees of a session, from a thread of its own."""

    def __init__(self, sluice: str, name: str):
        self._process = subprocess.Popen(
            [sluice, "top", "--json", "--follow", "--interval", "0.02", "--session", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert self._process.stdout and self._process.stderr
        self._out, self._err = self._process.stdout, self._process.stderr
        self._lock = threading.Lock()
        self._jobs: dict[int, list] = {priority: [] for priority in _PRIORITY.values()}
        self._missed = 0
        # The last line of each client, also of those that are gone: a client is one process.
        self._clients: dict[tuple, dict] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._out:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))

    def _take(self, line: dict) -> None:
        with self._lock:
            for client in line.get("clients", ()):
                self._clients[client["slot"], client["generation"]] = client
                self._missed += client["missed"]
                self._jobs.setdefault(client["priority"], []).extend(client["job_ns"])

    def clear(self) -> None:
        """Forgets the jobs so far: the window begins."""
        with self._lock:
            for jobs in self._jobs.values():
                jobs.clear()
            self._missed = 0

    def jobs_ms(self, role: str) -> list:
        with self._lock:
            return [ns / 1e6 for ns in self._jobs[_PRIORITY[role]]]

    @property
    def missed(self) -> int:
        with self._lock:
            return self._missed

    def counters(self, role: str) -> dict:
        """Summed over the clients of the role: a program may be several processes."""
        with self._lock:
            clients = [client for client in self._clients.values() if client["priority"] == _PRIORITY[role]]
            return {name: sum(client[name] for client in clients) for name in _COUNTERS}

    def check(self) -> None:
        """Raises RuntimeError if nothing is seen any more."""
        if self._process.poll() is not None:
            raise RuntimeError(self._err.read().strip() or "sluice top has ended")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        for stream in (self._out, self._err):
            stream.close()


@dataclass(frozen=True)
class Judged:
    """What the board says of targets: summed over the clients of the critical command, which may be several."""

    jobs: int = 0
    kept: int = 0
    limit_ns: int = 0  # the greatest
    state: str = "learning"
    learned: bool = False  # by all of them

    @classmethod
    def of(cls, clients: dict) -> "Judged":
        """clients: of Session.clients()."""
        targets = [client["target"] for client in clients.values() if client["target"]]
        if not targets:
            return cls()
        states = [target["state"] for target in targets]
        worst = next((state for state in ("learning", "missed", "kept") if state in states), "learning")
        return cls(
            sum(target["jobs"] for target in targets),
            sum(target["kept"] for target in targets),
            max(target["limit_ns"] or 0 for target in targets),
            worst,
            worst != "learning" and "none" not in states,
        )


class Commands:
    """Measures cells of two commands. commands: by role. folder: for what the programs print.

    time_scale: real time per time of the GPU. Rows are in the GPU's time.
    """

    def __init__(
        self,
        sluice: str,
        gpu: str,
        commands: dict,
        timing: Timing,
        folder: Path,
        environment=lambda below: {},
        time_scale: float = 1.0,
    ):
        self._sluice = sluice
        self._gpu = gpu
        self._commands = commands
        self._timing = timing
        self._folder = folder
        self._environment = environment
        self._scale = time_scale

    def measure(self, roles: tuple, policy: str, label: str, target: str = "") -> list:
        """Starts the commands of `roles`, measures them together, and returns a row each.

        target: of the critical command, in real time as `sluice exec --target` takes it. Sluice has learned how
        long the jobs take before the measurement begins; if it has not within the longest time for loading, the
        row of the critical command says so.

        policy: of the best-effort command; "none" means that nothing is gated, only observed. The
        critical command has the same policy, which matters only where something outranks it.
        """
        with session(self._sluice, self._gpu) as opened:
            programs = {role: self._start(opened, role, policy, label, target) for role in roles}
            with contextlib.closing(Watch(self._sluice, opened.name)) as watch:
                self._wait_until_working(programs, watch)
                learned = not target or self._wait_until_learned(programs, opened)
                self._sleep(programs, self._timing.warm_up)
                watch.clear()
                before = {role: watch.counters(role) for role in roles}
                seen = Judged.of(opened.clients()) if target else None
                began = time.monotonic()
                self._sleep(programs, self._timing.window)
                seconds = time.monotonic() - began
                watch.check()
                rows = [self._row(role, policy, watch, before[role], seconds) for role in roles]
                if seen is not None:
                    rows[0] |= self._target_figures(target, seen, Judged.of(opened.clients()), learned)
                return rows

    def _start(self, opened: Session, role: str, policy: str, label: str, target: str) -> Program:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = role.replace(" ", "-")
        return opened.start(
            self._commands[role],
            _PRIORITY[role],
            policy,
            self._environment(role == BEST_EFFORT),
            options=("--name", name, *(("--target", target) if target and role == CRITICAL else ())),
            log=self._folder / f"{label}-{name}.log",
        )

    def _wait_until_working(self, programs: dict, watch: Watch) -> None:
        """The critical command has ended a job, and the best-effort command launches."""
        deadline = time.monotonic() + self._timing.start
        while True:
            waiting = [role for role in programs if not self._works(role, watch)]
            if not waiting:
                return
            self._check(programs)
            watch.check()
            if time.monotonic() > deadline:
                raise CellError(self._why_idle(waiting[0], programs[waiting[0]], watch))
            time.sleep(_STEP_S)

    def _wait_until_learned(self, programs: dict, opened: Session) -> bool:
        """Whether the gates may close late at the end of the wait."""
        deadline = time.monotonic() + self._timing.start
        while not Judged.of(opened.clients()).learned:
            self._check(programs)
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True

    def _target_figures(self, target: str, before: Judged, after: Judged, learned: bool) -> dict:
        """Columns of the critical row."""
        figures: dict = {
            "target": target,
            "target_state": after.state,
            "limit_ms": after.limit_ns / 1e6 / self._scale if after.limit_ns else None,
            "target_jobs": after.jobs - before.jobs,
            "target_kept": after.kept - before.kept,
        }
        if not learned:
            figures["note"] = (
                f"Under target {target} the critical command was still learning after {self._timing.start:g} s "
                "(--start-limit): fewer than 32 jobs had run, so its gates closed at once."
            )
        elif after.state == "missed":
            figures["note"] = f"Target {target} cannot be kept, so the gates closed at once, as without it."
        return figures

    @staticmethod
    def _works(role: str, watch: Watch) -> bool:
        return bool(watch.jobs_ms(role)) if role == CRITICAL else watch.counters(role)["launches"] > 0

    def _why_idle(self, role: str, program: Program, watch: Watch) -> str:
        launches = watch.counters(role)["launches"]
        times = "once" if launches == 1 else f"{launches} times"
        what = f"launched {times}, but ended no job" if launches else "has launched nothing on the GPU"
        return f"the {role} command {what} within {self._timing.start:g} s (--start-limit): {program.said()}"

    def _sleep(self, programs: dict, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check(programs)
            time.sleep(min(left, _STEP_S))

    @staticmethod
    def _check(programs: dict) -> None:
        for role, program in programs.items():
            if how := program.describe_end():
                raise CellError(f"the {role} command {how}; it must run until it is ended")

    def _row(self, role: str, policy: str, watch: Watch, before: dict, seconds: float) -> dict:
        seconds /= self._scale
        jobs_ms = [ms / self._scale for ms in watch.jobs_ms(role)]
        after = watch.counters(role)
        more = {name: after[name] - before[name] for name in before}
        row = {
            "client": " ".join(self._commands[role])[:200],
            "role": role,
            "policy": policy,
            "window_s": seconds,
            "launches": more["launches"],
            "waited": more["waits"],
            "held_ms": more["held_ns"] / 1e6 / self._scale,
        }
        if role == CRITICAL:
            row |= latency_figures(jobs_ms) | {
                "per_s": len(jobs_ms) / seconds,
                "unit": "jobs",
                "active_share": sum(jobs_ms) / 1e3 / seconds,
            }
            if watch.missed:
                row["note"] = f"Jobs too short to be seen one by one: {watch.missed}."
            if not jobs_ms:
                row["note"] = f"No critical job ended within the measured time (policy {policy}): it hangs, or starves."
        else:
            # Jobs of a best-effort program are what it says they are, or nothing: launches are exact.
            row |= {"per_s": more["launches"] / seconds, "unit": "launches"}
        return row
