"""Cells that are commands of the user: started under `sluice exec`, watched through the board.

A program runs on from cell to cell where it can: a condition that `sluice set` gives needs no new process, so the
cells of one opening compare the same processes.
"""

import contextlib
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.errors import CommandError, run_error
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure import waits
from sluice_tools.measure.command_rows import role_figures, target_figures
from sluice_tools.measure.load import Latency, Load
from sluice_tools.measure.programs import Program, Session, width_variables
from sluice_tools.measure.readiness import IDLE_S, Idle, Launching, Ready, is_open, listening
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.watch import NAMES, Judged, Watch

_PRIORITY = {CRITICAL: 1, BEST_EFFORT: 0}
_STEP_S = 0.1  # between two looks at the programs
_REAPED_S = 0.5  # until a program whose connection is closed has ended
_SILENT_S = 10.0  # until it is said what is waited for
# Equal, and not below anybody: jobs and steps of a program at priority 0 are not watched.
_BARE = ("--priority", "1", "--slice", "off")


@dataclass(frozen=True)
class Timing:
    """Seconds: `warm_up` after both programs work, then `window`; `start` is the longest for loading."""

    window: float
    warm_up: float
    start: float


@dataclass(frozen=True)
class Setting:
    """One cell. policy: of the best-effort command, from its start: CUDA graphs keep the waits that they were made
    with. bare: as without Sluice, nobody is above another. target: of the critical command, in real time as `sluice
    exec --target` takes it. width: of the best-effort command under MPS, in percent of the SMs, also from its start."""

    roles: tuple
    policy: str = "none"
    target: str = ""
    bare: bool = False
    width: int = WHOLE

    def from_start(self, role: str) -> tuple:
        """What a process of this role keeps."""
        return (self.target,) if role == CRITICAL else (self.policy, self.width)

    @property
    def of_alone(self) -> bool:
        """Whether the target is a multiple of the time alone."""
        return self.target.endswith("x")


@dataclass(frozen=True)
class Requests:
    """Who sends requests to the critical command, when, and which latency counts. load: empty if nobody."""

    load: str = ""
    ready: str = ""
    latency: Latency | None = None


class Commands:
    """Measures cells of two commands, which end with this context. commands: by role. folder: for what the programs
    print. time_scale: real time per time of the GPU; rows are in the GPU's time."""

    def __init__(
        self,
        sluice: str,
        gpu: str,
        commands: dict,
        timing: Timing,
        folder: Path,
        environment=lambda below: {},
        time_scale: float = 1.0,
        requests: Requests | None = None,
    ):
        self._sluice = sluice
        self._gpu = gpu
        self._commands = commands
        self._timing = timing
        self._folder = folder
        self._environment = environment
        self._scale = time_scale
        self._requests = requests or Requests()
        # `sluice` in a command of the user is this one.
        self._shell = {"PATH": f"{Path(sluice).resolve().parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        self._ready = Ready(self._requests.ready, folder / "ready.log", self._shell)
        self._session: Session | None = None
        self._running: dict[str, Program] = {}
        self._started: dict[str, tuple] = {}  # by role: what of the setting holds from its start
        self._load: Load | None = None
        self._bare = False
        self._worked: set[str] = set()
        self._unloaded: int | None = None  # launches of the critical command before the load began
        self._opened = contextlib.ExitStack()
        self._waits: Path | None = None  # where the critical command counts its waits
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Commands":
        self._waits = self._opened.enter_context(waits.folder())
        return self

    def __exit__(self, *_) -> None:
        self._end_all()
        self._opened.close()

    def _end_all(self) -> None:
        for role in (BEST_EFFORT, CRITICAL):
            self._end(role)

    def _waited_ns(self, before: int | None = 0) -> int | None:
        """What the critical command has waited since it had waited for `before`. None if its waits are not counted."""
        now = waits.total_ns(self._waits) if self._waits else None
        return None if now is None else now - (before or 0)

    def measure(self, setting: Setting, label: str) -> list:
        """Measures the commands of `setting.roles` together, and returns a row each.

        With a target, Sluice has learned how long the jobs take before the measurement begins; if it has not within
        the longest time for loading, the row of the critical command says so. The critical command learns a multiple of
        its time alone before the other one starts, which may never be idle.

        Raises CellError, and CommandError if a command has never worked: it will not in other cells.
        """
        try:
            return self._measured(setting, label)
        except BaseException:
            self._end_all()  # the next cell begins with new processes
            raise

    def _measured(self, setting: Setting, label: str) -> list:
        self._end_others(setting)
        if not self._running:
            self._session = Session(self._sluice, self._gpu)
            self._bare = False
        assert self._session
        opened = self._session
        with contextlib.closing(Watch(self._sluice, opened.name)) as watch:
            if setting.of_alone and CRITICAL not in self._running:
                self._start(opened, CRITICAL, setting, label, watch)
                self._wait_until_working((CRITICAL,), watch)
                self._wait_until_learned(opened)
            for role in setting.roles:
                self._start(opened, role, setting, label, watch)
            self._wait_until_working(setting.roles, watch)
            self._set(opened, setting)
            learned = not setting.target or self._wait_until_learned(opened)
            self._sleep(self._timing.warm_up)
            watch.clear()
            if self._load:
                self._load.clear()
            before, waited = {role: watch.counters(role) for role in setting.roles}, self._waited_ns()
            seen = Judged.of(opened.clients()) if setting.target else None
            began = time.monotonic()
            self._sleep(self._timing.window)
            seconds, waited = time.monotonic() - began, self._waited_ns(waited)
            watch.check()
            by_client = self._load.figures(self._scale) if self._load else {}
            if CRITICAL in setting.roles:
                launched = watch.counters(CRITICAL)["launches"] - before[CRITICAL]["launches"]
                self._check_ends(setting, watch, launched, by_client)
            rows = [
                {"client": " ".join(self._commands[role])[:200], "policy": "none" if setting.bare else setting.policy}
                | role_figures(role, watch, before[role], seconds, self._scale, by_client, waited)
                for role in setting.roles
            ]
            if seen is not None:
                after = Judged.of(opened.clients())
                rows[0] |= target_figures(setting.target, seen, after, self._scale, self._timing.start * (not learned))
            return rows

    def _end_others(self, setting: Setting) -> None:
        """Ends what the cell does not have, or must have anew."""
        for role in list(self._running):
            other = self._started[role] != setting.from_start(role)
            if role not in setting.roles or other or self._running[role].describe_end():
                self._end(role)
        if self._load and self._load.failure:
            self._end(CRITICAL)
        if setting.of_alone and CRITICAL not in self._running:
            self._end(BEST_EFFORT)

    def _end(self, role: str) -> None:
        if role == CRITICAL and self._load:
            self._load.close()
            self._load = self._unloaded = None
        if program := self._running.pop(role, None):
            program.end()

    def _start(self, opened: Session, role: str, setting: Setting, label: str, watch: Watch) -> None:
        if role in self._running:
            return
        if role == CRITICAL and self._ready.port is not None and is_open(self._ready.port):
            raise run_error(
                f"--ready: port {self._ready.port} is open before the critical command has started: another server "
                "runs there, end it or name another port"
            )
        name = NAMES[role]
        target = ("--target", setting.target) if setting.target and role == CRITICAL else ()
        counting = waits.variables(self._waits) if role == CRITICAL and self._waits else {}
        # A program that starts in a bare cell has the waits of the policy in its graphs, as in the next cells.
        self._running[role] = opened.start(
            self._commands[role],
            _PRIORITY[role],
            setting.policy,
            self._environment(role == BEST_EFFORT)
            | counting
            | (width_variables(setting.width) if role == BEST_EFFORT else {}),
            options=("--name", name, *target),
            log=self._folder / f"{label}-{name}.log",
        )
        self._started[role] = setting.from_start(role)
        if role == CRITICAL and self._requests.load:
            self._wait_until_ready()
            self._unloaded = watch.counters(CRITICAL)["launches"]
            self._load = Load(
                self._requests.load, self._folder / f"{label}-load.log", self._shell, self._requests.latency
            )

    def _wait_until_ready(self) -> None:
        program, deadline = self._running[CRITICAL], time.monotonic() + self._timing.start
        while not self._ready.now(program.process.pid):
            self._check()
            if time.monotonic() > deadline:
                asked = f"--ready {self._ready.text}" if self._ready.text else "it has opened no port: give --ready"
                self._give_up(
                    CRITICAL,
                    f"the critical command was not ready ({asked}) within {self._timing.start:g} s (--start-limit); "
                    f"{listening(program.process.pid)}: {program.said()}",
                )
            time.sleep(_STEP_S)

    def _set(self, opened: Session, setting: Setting) -> None:
        if setting.bare == self._bare:
            return
        for role in setting.roles:
            given = _BARE if setting.bare else ("--priority", str(_PRIORITY[role]), "--slice", "auto")
            if role == BEST_EFFORT:
                given = (*given, "--policy", "none" if setting.bare else setting.policy)
            for pid in opened.pids(NAMES[role]):
                try:
                    opened.set(pid, given)
                except CommandError:
                    self._sleep(_REAPED_S)  # of a command that has ended, its end is the reason
                    raise
        self._bare = setting.bare

    def _wait_until_working(self, roles: tuple, watch: Watch) -> None:
        """The critical command ends jobs or steps, or goes on launching, and the best-effort command launches."""
        began = time.monotonic()
        deadline, say_at = began + self._timing.start, began + _SILENT_S
        launching = Launching()
        idle = Idle(self._running[CRITICAL].process.pid, min(IDLE_S, self._timing.start)) if CRITICAL in roles else None
        while True:
            waiting = [role for role in roles if not self._works(role, watch, launching)]
            self._worked.update(set(roles) - set(waiting))
            if not waiting:
                return
            self._check()
            watch.check()
            if idle and CRITICAL in waiting and idle.waits(watch.counters(CRITICAL)["launches"]):
                self._give_up(CRITICAL, self._nobody())
            now = time.monotonic()
            if now > deadline:
                self._give_up(waiting[0], self._why_idle(waiting[0], watch))
            if now > say_at:
                say_at = math.inf
                _say(
                    f"{self._what_is_missing(waiting[0], watch)} yet; waits {deadline - now:.0f} s more (--start-limit)"
                )
            time.sleep(_STEP_S)

    def _wait_until_learned(self, opened: Session) -> bool:
        """Whether the gates may close late at the end of the wait."""
        deadline = time.monotonic() + self._timing.start
        while not Judged.of(opened.clients()).learned:
            self._check()
            if time.monotonic() > deadline:
                return False
            time.sleep(_STEP_S)
        return True

    def _works(self, role: str, watch: Watch, launching: Launching) -> bool:
        launches = watch.counters(role)["launches"]
        if role != CRITICAL:
            return launches > 0
        if watch.jobs_ms(role) or watch.steps_ms(role) or (self._load and self._load.figures(self._scale)):
            return True
        # Of a server that asks the GPU again and again, and never waits, nothing is seen to end.
        return launches > self._unloaded if self._unloaded is not None else launching.goes_on(launches)

    def _give_up(self, role: str, why: str) -> None:
        """Ends the cell; and all cells, if this command has never worked."""
        raise CellError(why) if role in self._worked else run_error(why)

    def _nobody(self) -> str:
        where = listening(self._running[CRITICAL].process.pid)
        if self._load:
            return (
                f"nobody sent requests to the critical command: {where} and is idle, although the load command runs "
                f"({self._load.said()}); where does that send to?"
            )
        return (
            f"nobody sent requests to the critical command: {where} and is idle; give a load generator with --load "
            "CMD, which is started when the server is ready"
        )

    def _check_ends(self, setting: Setting, watch: Watch, launched: int, by_client: dict) -> None:
        """Raises if nothing can be said of the critical command alone: it was idle, or nothing was seen to end. Next to
        another program it may have starved. launched: launches in the measured time."""
        ended = watch.jobs_ms(CRITICAL) or watch.steps_ms(CRITICAL) or by_client
        if setting.roles == (CRITICAL,) and not ended and not self._requests.latency:
            self._worked.discard(CRITICAL)
            self._give_up(CRITICAL, self._endless(launched) if launched else self._nobody())
        if self._load and self._requests.latency and not by_client:
            self._give_up(
                "latency",
                f"--latency: the load command said no latency in {self._timing.window:g} s (--seconds); it ended "
                f"{self._load.ends} times, and its last lines are: {self._load.said()}",
            )
        self._worked.add("latency")

    def _endless(self, launched: int) -> str:
        return (
            f"the critical command works ({launched} launches in {self._timing.window:g} s), but no job and no step of "
            "it was seen to end, because it never waits for its work: give --load and --latency, the latency that its "
            "clients see"
        )

    def _why_idle(self, role: str, watch: Watch) -> str:
        what, said = self._what_is_missing(role, watch), self._running[role].said()
        return f"{what} within {self._timing.start:g} s (--start-limit): {said}"

    @staticmethod
    def _what_is_missing(role: str, watch: Watch) -> str:
        launches = watch.counters(role)["launches"]
        times = "once" if launches == 1 else f"{launches} times"
        what = f"launched {times}, but ended no job" if launches else "has launched nothing on the GPU"
        return f"the {role} command {what}"

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check()
            time.sleep(min(left, _STEP_S))

    def _check(self) -> None:
        for role, program in self._running.items():
            if how := program.describe_end():
                self._give_up(role, f"the {role} command {how}; it must run until it is ended")
        if self._load and self._load.failure:
            where = listening(self._running[CRITICAL].process.pid)
            self._give_up(CRITICAL, f"the load command {self._load.failure}; the critical command: {where}")


def _say(text: str) -> None:
    print(f"sluice compare: {text}", file=sys.stderr, flush=True)
