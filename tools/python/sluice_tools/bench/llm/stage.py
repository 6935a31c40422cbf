"""The server, its client and one best-effort program, and the measuring of one window with them.

MPS fixes how many SMs a process may use when it starts. So the best-effort program has a process for each width, and
one at a time works; the others wait for a command, and have nothing on the GPU but memory.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.bench.common.talker import Talker
from sluice_tools.bench.llm import figures
from sluice_tools.bench.llm.plan import MPS_PRIORITY, SERVER, TIME_SLICED, Condition, conditions
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure.programs import Session, mps, session, width_variables
from sluice_tools.measure.sitting import CellError

_OUTSTANDING = 48  # requests that are always there while the capacity is measured: twice what the engine takes
_READY_S = 300  # the first import on a fresh machine reads gigabytes, and then come the graphs
_ANSWER_S = 30  # a program that says nothing for so long hangs
_DRAIN_S = 10  # more than the client gives the requests of a window
_SETTINGS = {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


class Stage:
    """Made by stage(), which also ends the programs."""

    def __init__(self, options, session: Session, environment, best_effort: str, widths: list[int], folder: Path):
        self._options = options
        self._session = session
        self._name = best_effort
        self._on_cpu = options.gpu == "sim"
        path = folder / "requests.socket"
        tiny = ["--device", "cpu", "--tiny"] if self._on_cpu else []
        module = [str(options.server)] if options.server else ["-m", "sluice_tools.bench.llm.server"]
        server = [sys.executable, *module, "--socket", str(path), *tiny]
        module = [str(options.programs)] if options.programs else ["-m", "sluice_tools.bench.programs.program"]
        stepping = [sys.executable, *module, best_effort, *tiny]
        settings = _SETTINGS | ({"CUDA_VISIBLE_DEVICES": ""} if self._on_cpu else {})
        self._server = self._start(server, 1, settings | environment(False), SERVER)
        self._best_effort = {
            width: self._start(
                stepping, 0, settings | environment(True) | width_variables(width), _named(best_effort, width)
            )
            for width in widths
        }
        # One after the other: they would compile the same kernels.
        for program in self._best_effort.values():
            program.hear("imported", _READY_S)
            program.ask("load", "loaded", _READY_S)
        self._server.hear("ready", _READY_S)
        log = options.out / "requests.jsonl"
        client = ["-m", "sluice_tools.bench.llm.client", "--socket", str(path), "--log", str(log), *tiny[2:]]
        self._client = Talker([sys.executable, *client], {})
        self._client.name = "client of the server"
        self._client.hear("ready")
        self._graphs = self._count_graphs()
        if not self._on_cpu:
            clients, programs = self._clients(), (self._server, *self._best_effort.values())
            if missing := [one.name for one in programs if one.name not in clients]:
                raise RuntimeError(f"{missing[0]} is not a client of its session")
        self.capacity = 0.0
        self._best_effort_alone: dict[int, list[dict]] = {}  # rows, by round

    def _start(self, command: list, priority: int, environment: dict, name: str) -> Talker:
        options = ("--name", name)
        started = self._session.start(command, priority, "device:200us", environment, Talker, options)
        assert isinstance(started, Talker)
        started.name = name
        return started

    def _count_graphs(self) -> int:
        return self._server.ask("graphs", "graphs")["count"]

    def end(self) -> None:
        if hasattr(self, "_client"):
            self._client.end()
        for program in (self._server, *self._best_effort.values()):
            program.ask_to_quit()

    def find_capacity(self) -> float:
        """Requests a second, alone."""
        seconds = 2 * self._options.window
        self._client.say("capacity", seconds=seconds, outstanding=_OUTSTANDING)
        self.capacity = self._client.hear("capacity", seconds + _ANSWER_S)["per_s"]
        if not self.capacity:
            raise RuntimeError(f"the server ended no request in {seconds:g} s")
        return self.capacity

    def _set(self, program: Talker, *settings: str) -> None:
        """`sluice set`. Raises CellError: a target that this version does not know, for instance."""
        if self._on_cpu:  # no program is a client
            return
        command = [self._options.sluice, "set", program.name, *settings, "--session"]
        said = subprocess.run([*command, self._session.name], capture_output=True, text=True, check=False)
        if said.returncode != 0:
            raise CellError(f"sluice set {' '.join(settings)}: {said.stderr.strip()}")

    def _clients(self) -> dict:
        """By name: the engine of a server may be a child process."""
        clients = {} if self._on_cpu else self._session.clients()
        return {client["name"]: client for client in clients.values()}

    def measure(self, condition: Condition, load: int, repeat: int) -> list[dict]:
        """The rows of a window. load: % of the capacity. Best effort alone is measured once a round."""
        if condition.server_runs:
            return self._measure(condition, load, 1000 * load + repeat)
        if repeat not in self._best_effort_alone:
            self._best_effort_alone[repeat] = self._measure(condition, load, 0)
        return self._best_effort_alone[repeat]

    def _measure(self, condition: Condition, load: int, seed: int) -> list[dict]:
        priority, slice_ = ("1", "auto") if condition.hooked else ("0", "off")
        self._set(self._server, "--priority", priority, "--slice", slice_, "--target", condition.target)
        best_effort = self._best_effort[condition.width]
        self._set(best_effort, "--policy", condition.policy, "--slice", condition.slice_)
        if condition.best_effort_runs:
            best_effort.ask("run", "running", _ANSWER_S)
        if condition.server_runs:
            done, before, after = self._serve(condition, load, seed)
        else:
            done, before, after = self._wait()
        rows = []
        if condition.server_runs:
            target = figures.target_figures(before.get(SERVER), after.get(SERVER))
            more = {"load": load, "capacity_per_s": self.capacity, "graphs": self._count_graphs()}
            if more["graphs"] != self._graphs:
                more["note"] = f"the server captured {more['graphs'] - self._graphs} CUDA graphs while it served"
                self._graphs = more["graphs"]
            rows.append(figures.server_row(done, target, more))
        if condition.best_effort_runs:
            ends = best_effort.ask("idle", "idle", _ANSWER_S)["ends_ns"]
            window = (done["begin_ns"], done["end_ns"])
            looks = (before.get(best_effort.name), after.get(best_effort.name))
            rows.append(figures.stepping_row(self._name, condition.policy, ends, *window, *looks))
        return rows

    def _serve(self, condition: Condition, load: int, seed: int) -> tuple[dict, dict, dict]:
        per_s, seconds = self.capacity * load / 100, self._options.window
        settings = {"per_s": per_s, "seconds": seconds, "skip_s": self._options.settle, "seed": seed}
        self._client.say("run", name=f"{self._name}, {load} %, {condition.name}, {seed}", **settings)
        self._client.hear("measuring", self._options.settle + _ANSWER_S)
        before = self._clients()
        done = self._client.hear("done", seconds + _ANSWER_S + _DRAIN_S)
        return done, before, self._clients()

    def _wait(self) -> tuple[dict, dict, dict]:
        time.sleep(self._options.settle)
        before, begin = self._clients(), time.monotonic_ns()
        time.sleep(self._options.window)
        return {"begin_ns": begin, "end_ns": time.monotonic_ns()}, before, self._clients()


def _named(program: str, width: int) -> str:
    """Of the client: those of other widths have settings of their own."""
    return program if width == WHOLE else f"{program}#{width}"


@contextlib.contextmanager
def stage(options, best_effort: str, mode: str) -> Iterator[Stage]:
    """Loads the programs and finds the capacity. Raises RuntimeError."""
    with (
        mps(options.sluice, mode != TIME_SLICED) as variables,
        session(options.sluice, options.gpu) as opened,
        tempfile.TemporaryDirectory(prefix="sluice-llm-") as folder,
    ):
        widths = sorted({WHOLE} | {one.width for one in conditions(options.conditions, mode)}, reverse=True)
        made = Stage(
            options, opened, lambda below: variables(below and mode == MPS_PRIORITY), best_effort, widths, Path(folder)
        )
        try:
            made.find_capacity()
            yield made
        finally:
            made.end()
