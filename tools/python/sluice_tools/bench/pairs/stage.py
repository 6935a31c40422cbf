"""The two programs of a variant, and the measuring of one cell with them."""

import contextlib
import sys
import time
from collections.abc import Iterator
from statistics import median

from sluice_tools.bench.pairs.numbers import best_effort_row, critical_row
from sluice_tools.bench.pairs.plan import MPS, MPS_PRIORITY, Condition, Variant
from sluice_tools.bench.pairs.talker import ANSWER_S, Talker
from sluice_tools.grammar import required_policy
from sluice_tools.measure.programs import mps, session
from sluice_tools.measure.sitting import CellError

_LOADING_S = 150  # the first import on a fresh machine reads gigabytes
_SKIPPED_S = 0.3
_BEST_EFFORT_ALONE_S = 4.0
# A policy in time goes by launch durations that it learns while nobody else runs.
_LEARNING_S = 1.0


class Stage:
    """Both programs, loaded. Made by stage(), which also ends them."""

    def __init__(self, options, variant: Variant, opened, environment):
        self._options = options
        self._variant = variant
        self._session = opened
        self._policy = "none"
        self._learnt: set[str] = set()
        self._machine: dict = {}
        below = variant.mode == MPS_PRIORITY
        self._best_effort = self._start("best_effort", variant.best_effort, 0, "none", environment(below))
        predict = {"SLUICE_PREDICT": str(int(variant.predicts))}
        self._critical = self._start("critical", variant.critical, 1, "gate", environment(False) | predict)
        self._load()

    def _start(self, module: str, model: str, priority: int, policy: str, environment: dict) -> Talker:
        command = [
            sys.executable,
            "-m",
            f"sluice_tools.bench.pairs.{module}",
            "--model",
            model,
            "--device",
            self._options.torch_device,
        ]
        if self._options.programs:
            command[1:3] = [f"{self._options.programs}/{module}.py"]
        program = self._session.start(command, priority, policy, environment, Talker)
        program.name = f"{model} ({module.replace('_', ' ')})"
        return program

    def _load(self) -> None:
        programs = (self._critical, self._best_effort)
        for program in programs:
            self._machine["torch"] = program.hear("imported", _LOADING_S)["torch"]
            program.say("load")
        loaded = [program.hear("loaded", _LOADING_S) for program in programs]
        self._machine["gpu"] = loaded[0]["gpu"]
        self._announces = loaded[0]["announces"]
        if self._options.gpu == "real":
            clients = self._session.clients()
            for program in programs:
                if program.process.pid not in clients:
                    raise RuntimeError(f"{program.name} is not a client of its session: {program.said()}")

    def ask_to_quit(self) -> None:
        """Both at the same time, before each is waited for."""
        for program in (self._critical, self._best_effort):
            program.ask_to_quit()

    def base_ms(self) -> float:
        """p50 alone: of a few jobs at about the period that will come of it."""
        first = self._critical.ask("calibrate", "calibrated", jobs=10)["latency_ms"]
        self._critical.say("run", jobs=20, seconds=10, period_ms=median(first) / self._variant.load)
        self._critical.hear("measuring")
        if not (latency_ms := self._critical.hear("done")["latency_ms"]):
            raise RuntimeError("the critical model alone ended no job within 10 s")
        return median(latency_ms)

    def measure(self, condition: Condition, period_ms: float) -> list:
        """The rows of a cell."""
        if condition.announce_ms and not self._announces and self._options.gpu == "real":
            raise CellError("the interposer has no sluice_v1_job_announce")
        if condition.best_effort:
            self._start_best_effort(condition.policy)
        seen, before, after = self._serve(condition, period_ms) if condition.critical else self._wait_alone()
        rows = []
        if condition.critical:
            rows.append(critical_row(seen, self._variant.critical, period_ms))
        if condition.best_effort:
            ends = self._best_effort.ask("idle", "idle")["ends_ns"]
            rows.append(
                best_effort_row(
                    ends, seen["begin_ns"], seen["end_ns"], self._variant.best_effort, condition.policy, before, after
                )
            )
        return [row | self._machine for row in rows]

    def _start_best_effort(self, policy: str) -> None:
        if policy != self._policy:
            if self._options.gpu == "real":
                self._session.set_policy(self._best_effort.process.pid, policy)
            self._best_effort.ask("capture", "captured", _LOADING_S)
            self._policy = policy
        self._best_effort.ask("run", "running")
        if required_policy(policy).in_time and policy not in self._learnt:
            self._learnt.add(policy)
            time.sleep(_LEARNING_S)

    def _look(self) -> dict | None:
        """The best-effort client; None where nothing is hooked."""
        if self._options.gpu != "real":
            return None
        client = self._session.clients().get(self._best_effort.process.pid)
        if client is None:
            raise RuntimeError("the best-effort program is not a client of its session any more")
        return client

    def _serve(self, condition: Condition, period_ms: float) -> tuple:
        limit = self._options.cell_s
        self._critical.say(
            "run",
            jobs=self._options.jobs,
            seconds=limit,
            skip_s=_SKIPPED_S,
            period_ms=period_ms,
            arrivals=self._variant.arrivals,
            announce_ms=condition.announce_ms,
            seed=1,
        )
        self._critical.hear("measuring")
        before = self._look() if condition.best_effort else None
        done = self._critical.hear("done", ANSWER_S + limit)
        return done, before, self._look() if condition.best_effort else None

    def _wait_alone(self) -> tuple:
        time.sleep(_SKIPPED_S)
        begin = time.monotonic_ns()
        before = self._look()
        time.sleep(min(_BEST_EFFORT_ALONE_S, self._options.cell_s))
        after = self._look()
        return {"begin_ns": begin, "end_ns": time.monotonic_ns()}, before, after


@contextlib.contextmanager
def stage(options, variant: Variant) -> Iterator[Stage]:
    """Raises RuntimeError if a program does not load."""
    with (
        mps(options.sluice, variant.mode in (MPS, MPS_PRIORITY)) as environment,
        session(options.sluice, options.exec_gpu) as opened,
    ):
        made = Stage(options, variant, opened, environment)
        try:
            yield made
        finally:
            made.ask_to_quit()
