"""The two programs of a group of cells, and the measuring of one cell with them."""

import sys
import time
from contextlib import ExitStack

from sluice_tools.bench.pairs import numbers
from sluice_tools.bench.pairs.plan import LOAD
from sluice_tools.bench.pairs.talker import ANSWER_S, Talker
from sluice_tools.bench.programs import mps
from sluice_tools.bench.session import session

_LOADING_S = 150  # the first import on a fresh machine reads gigabytes
_SKIPPED_S = 0.3
_BE_ALONE_S = 4.0
# A policy in time goes by lengths that it learns while nobody else runs.
_LEARNING_S = 1.0


class CellError(Exception):
    """This cell cannot be measured; the others can."""


class Stage:
    """From the import of torch on; load() takes the GPU. close() ends all of it."""

    def __init__(self, options, group, label: str):
        self._options = options
        self._policy = "none"
        self._learnt = set()
        self.machine = {}
        with ExitStack() as stack:
            environment = stack.enter_context(mps(group.mode == "MPS"))
            self._session = stack.enter_context(session(options.sluice, label))
            self._best_effort = self._start("best_effort", group.best_effort, 0, "none",
                                            environment(group.priorities))
            # Without notice is to mean without: the jobs are periodic.
            predict = {"SLUICE_PREDICT": str(int(group.predicts))}
            self._critical = self._start("critical", group.critical, 1, "gate",
                                         environment(False) | predict)
            self._stack = stack.pop_all()

    def _start(self, module: str, model: str, priority: int, policy: str, environment: dict):
        command = [sys.executable, "-m", f"sluice_tools.bench.pairs.{module}", "--model", model,
                   "--device", self._options.torch_device]
        if self._options.programs:
            command[1:3] = [f"{self._options.programs}/{module}.py"]
        program = self._session.start(command, priority, policy, environment, Talker)
        program.name = f"{model} ({module.replace('_', ' ')})"
        return program

    def load(self):
        programs = (self._critical, self._best_effort)
        for program in programs:
            self.machine["torch"] = program.hear("imported", _LOADING_S)["torch"]
            program.say("load")
        loaded = [program.hear("loaded", _LOADING_S) for program in programs]
        self.machine["gpu"] = loaded[0]["gpu"]
        self._announces = loaded[0]["announces"]
        if self._options.gpu != "real":
            return
        clients = self._session.clients()
        for program in programs:
            if program.process.pid not in clients:
                raise RuntimeError(f"{program.name} is no client of its session: {program.said()}")

    def close(self):
        for program in (self._critical, self._best_effort):
            program.ask_to_quit()
        self._stack.close()

    def base_ms(self) -> float:
        """p50 alone: of a few jobs at about the period that will come of it."""
        first = self._critical.ask("calibrate", "calibrated", jobs=10)["latency_ms"]
        self._critical.say("run", jobs=20, seconds=10,
                           period_ms=numbers.quantile(first, 0.5) / LOAD)
        self._critical.hear("measuring")
        return numbers.quantile(self._critical.hear("done")["latency_ms"], 0.5)

    def _give_policy(self, policy: str):
        if policy == self._policy:
            return
        if self._options.gpu == "real":
            self._session.set_policy(self._best_effort.process.pid, policy)
        self._best_effort.ask("capture", "captured", _LOADING_S)
        self._policy = policy

    def _look(self):
        """(seconds, counters, client) of the best-effort program; None where nothing is hooked."""
        if self._options.gpu != "real":
            return None
        client = self._session.clients().get(self._best_effort.process.pid)
        if client is None:
            raise RuntimeError("the best-effort program is no client of its session any more")
        return time.monotonic(), numbers.counters(client), client

    def _start_best_effort(self, policy: str):
        self._give_policy(policy)
        self._best_effort.ask("run", "running")
        if policy.endswith("us") and policy not in self._learnt:
            self._learnt.add(policy)
            time.sleep(_LEARNING_S)

    def _serve(self, cell, period_ms: float) -> tuple:
        limit = self._options.cell_s
        self._critical.say(
            "run", jobs=self._options.jobs, seconds=limit, skip_s=_SKIPPED_S, period_ms=period_ms,
            arrivals=cell.arrivals, notice_ms=cell.notice_ms, seed=1)
        self._critical.hear("measuring")
        before = self._look() if cell.best_effort else None
        done = self._critical.hear("done", ANSWER_S + limit)
        return done, before, self._look() if cell.best_effort else None

    def _wait_alone(self) -> tuple:
        time.sleep(_SKIPPED_S)
        begin = time.monotonic_ns()
        before = self._look()
        time.sleep(min(_BE_ALONE_S, self._options.cell_s))
        after = self._look()
        return {"begin_ns": begin, "end_ns": time.monotonic_ns()}, before, after

    def measure(self, cell, period_ms: float) -> tuple:
        """The figures of a row, and the latencies of its critical jobs in ms."""
        if cell.notice_ms and not self._announces and self._options.gpu == "real":
            raise CellError("the interposer has no sluice_v1_job_announce")
        if cell.best_effort:
            self._start_best_effort(cell.policy)
        seen, before, after = self._serve(cell, period_ms) if cell.critical else self._wait_alone()
        figures = {}
        if cell.critical:
            figures |= {"period_ms": round(period_ms, 5)} | numbers.critical_figures(seen)
        else:
            figures["window_s"] = round((seen["end_ns"] - seen["begin_ns"]) / 1e9, 3)
        if cell.best_effort:
            ends = self._best_effort.ask("idle", "idle")["ends_ns"]
            figures |= numbers.best_effort_figures(ends, seen["begin_ns"], seen["end_ns"], before,
                                                   after)
        return figures, seen.get("latency_ms", ())
