"""The part `training`: a served model next to an unmodified PyTorch training program, which is best effort."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.bench.common.numbers import jobs_between
from sluice_tools.bench.common.talker import Talker
from sluice_tools.bench.programs import starting
from sluice_tools.bench.programs.conditions import POLICY
from sluice_tools.bench.programs.plan import PROGRAMS
from sluice_tools.bench.serve import store, training_report
from sluice_tools.bench.serve.clients import poisson, send
from sluice_tools.bench.serve.lines import Lines, machine_of, measure
from sluice_tools.bench.serve.server import Server
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.programs import Session, session
from sluice_tools.measure.rows import Cell
from sluice_tools.measure.sitting import CellError, Group

FILE = "training.jsonl"
MODEL, TRAINING = "resnet50", "mobilenet-training"
ALONE, TRAINING_ALONE, BARE = "server alone", "training alone", "bare"
_RECORDING = "resnet50_b1"  # instead of the model on the simulated GPU
_GAP_MS = 10.0
_TINY_GAP_MS = 40.0
_WARM_UP_S = 1.5  # in which the gate learns how long launches and jobs take
_STEPS_ALONE_S = 3.0
_SLO = 3.0  # the target, in multiples of the p50 of the server alone
_GATED = ("--announce-ms", "0")  # the headers name the model, as those of HTTP always do


@dataclass(frozen=True)
class Condition:
    """server: which of _SERVERS. client: options of hybrid_workload."""

    name: str
    server: str = ""
    trains: bool = True
    client: tuple = _GATED


CONDITIONS = (
    Condition(ALONE, "announced", trains=False),
    Condition(TRAINING_ALONE),
    Condition(BARE, BARE),
    Condition("gate, nothing announced", "silent"),
    Condition("gate, announced at the headers", "announced"),
    Condition("gate, announced 2 ms before", "announced", client=("--announce-ms", "2")),
    Condition("gate with a target (slo-ms)", "target"),
)
_SERVERS = {BARE: (), "silent": ("--no-announce",), "announced": (), "target": ()}


def run(setting: Setting) -> int:
    lines = Lines(setting.out / FILE)
    return measure(setting, lines, [_group(setting, lines)], machine_of(setting), training_report.one_line)


def tables(folder: Path) -> list[str]:
    return training_report.tables(Lines(folder / FILE))


def _group(setting: Setting, lines: Lines) -> Group:
    cells = {}
    for repeat in range(1, setting.repeats + 1):
        for condition in CONDITIONS:
            cells[Cell("", "", condition.name, repeat, setting.seconds + _WARM_UP_S)] = condition

    @contextlib.contextmanager
    def opened() -> Iterator:
        if not setting.tiny:
            store.export(setting, [MODEL])
        missing = [condition for cell, condition in cells.items() if not lines.has(cell)]
        with session(setting.sluice, setting.gpu) as gated, contextlib.closing(_Stage(setting, lines, gated)) as stage:
            stage.start(missing)
            yield lambda cell: stage.measure(cells[cell], cell.repeat)

    return Group(list(cells), opened)


class _Stage:
    """The servers and two copies of the training program: one under Sluice, one not. Those that a cell does not need
    are idle."""

    def __init__(self, setting: Setting, lines: Lines, gated: Session):
        self._setting = setting
        self._lines = lines
        self._session = gated
        self._servers: dict[str, Server] = {}
        self._trainings: dict[bool, Talker] = {}  # by whether it is bare
        self._warm: set[str] = set()

    def start(self, conditions: list[Condition]) -> None:
        """What they need, all at the same time. The target is known only later."""
        for name in dict.fromkeys(condition.server for condition in conditions):
            if name and name != "target":
                self._start_server(name)
        for condition in conditions:
            if condition.trains:
                self._training(condition)
        starting.load(list(self._trainings.values()))
        for server in self._servers.values():
            server.wait_ready()

    def _start_server(self, name: str, slo_ms: float = 0.0) -> Server:
        model = {"path": _RECORDING if self._setting.tiny else MODEL} | ({"slo-ms": f"{slo_ms:.3f}"} if slo_ms else {})
        bare = name == BARE
        known = "" if bare else self._session.name  # the simulated GPU cannot do without one
        server = Server(self._setting, name, {MODEL: model}, _SERVERS[name], session=known, bare=bare)
        self._servers[name] = server
        return server

    def _training(self, condition: Condition) -> Talker:
        bare = condition.name in (TRAINING_ALONE, BARE)
        if bare not in self._trainings:
            program = PROGRAMS[TRAINING]
            command, environment = (
                starting.command(self._setting, program),
                starting.environment(self._setting, program),
            )
            if bare:
                talker = Talker(command, environment)
            else:
                talker = self._session.start(command, 0, POLICY, environment, Talker)
                assert isinstance(talker, Talker)
            talker.name = "the training program"
            self._trainings[bare] = talker
        return self._trainings[bare]

    def close(self) -> None:
        for server in self._servers.values():
            server.end()
        if bare := self._trainings.get(True):  # the other one ends with its session
            bare.end()

    def measure(self, condition: Condition, repeat: int) -> list[dict]:
        if condition.name == TRAINING_ALONE:
            with self._training_runs(condition) as ends_ns:
                begin = time.monotonic_ns()
                time.sleep(min(self._setting.seconds, _STEPS_ALONE_S))
                end = time.monotonic_ns()
            return [{"steps_per_s": _per_s(ends_ns, begin, end)}]
        server = self._servers.get(condition.server) or self._with_target()
        with contextlib.ExitStack() as stack:
            ends_ns = stack.enter_context(self._training_runs(condition)) if condition.trains else []
            if condition.name not in self._warm:
                self._warm.add(condition.name)
                self._send(server, condition, _WARM_UP_S, 0)
            server.check()
            row, window = self._send(server, condition, self._setting.seconds, repeat)
        return [row | ({"steps_per_s": _per_s(ends_ns, *window)} if condition.trains else {})]

    def _with_target(self) -> Server:
        """The p50 that the target is made of is that of the server alone."""
        alone = [row["client_ms"]["p50"] for row in self._lines.rows if row["cell"] == ALONE]
        if not alone:
            raise CellError("the server alone has not been measured")
        server = self._start_server("target", max(1.0, _SLO * alone[0]))
        server.wait_ready()
        return server

    @contextlib.contextmanager
    def _training_runs(self, condition: Condition) -> Iterator[list]:
        """Gives a list that has the ends of the steps afterwards."""
        training = self._training(condition)
        training.ask("run", "running", starting.ANSWER_S)
        ends_ns: list[int] = []
        yield ends_ns
        training.say("idle")
        ends_ns += training.hear("idle", starting.ANSWER_S)["ends_ns"]

    def _send(self, server: Server, condition: Condition, seconds: float, seed: int) -> tuple[dict, tuple]:
        """A row, and the monotonic times of the first request and of the last answer in ns."""
        gap_ms = _TINY_GAP_MS if self._setting.tiny else _GAP_MS
        load = poisson(MODEL, gap_ms, seconds, seed, 1, "poisson", *condition.client)
        before = server.processor_s()
        since = time.time_ns() - time.monotonic_ns()
        with server.recording() as records:
            report = send(self._setting, server, [load])[MODEL]
        answered = [record for record in records if record["result"] == "ok"]
        if not answered:
            raise CellError("no request was answered")
        row = {
            "gap_ms": gap_ms,
            "sent": report["sent"],
            "answered": len(answered),
            "client_ms": {name: report["latency_ms"][name] for name in ("p50", "p99", "mean", "max")},
            "send_lag_p99_ms": report["send_lag_ms"]["p99"],
            "server_ms": [round(record["total_cost_by_ms"], 3) for record in answered],
            "execute_ms": [round(record["execute_cost"], 3) for record in answered],
            "announced_us": [round(record["announced_us"], 1) for record in answered],
            "target_ms": answered[0]["deadline_ms"],
            "processor_s": server.processor_s() - before,
        }
        begin, end = (
            pick(record[name] for record in records) for pick, name in ((min, "recv_time"), (max, "finish_time"))
        )
        return row, (begin * 1e6 - since, end * 1e6 - since)


def _per_s(ends_ns: list[int], begin_ns: float, end_ns: float) -> float:
    return 1e9 * jobs_between(ends_ns, int(begin_ns), int(end_ns)) / (end_ns - begin_ns)
