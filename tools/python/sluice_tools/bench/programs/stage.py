"""The programs of a mix, without Sluice and under it, and the measuring of one cell with them."""

import contextlib
import time
from collections.abc import Iterable, Iterator

from sluice_tools.bench.pairs.talker import Talker
from sluice_tools.bench.programs import figures, starting
from sluice_tools.bench.programs.plan import DEFAULT, MPS_PRIORITY, Condition, Mix, Program
from sluice_tools.measure.programs import Session, mps, session
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

_SETTLE_S = 0.5  # in which best effort runs before requests arrive
# The same before the first cell under Sluice: the interposer learns how long launches take.
_LEARNING_STEPS_S = 2.0
_SKIPPED_S = 0.5  # of requests that do not count
_STEPS_ALONE_S = 3.0
# Requests that the program with a target serves before its first cell: the interposer learns from 32.
_LEARNING_REQUESTS, _LEARNING_S = 48, 8.0

Team = dict[str, Talker]  # by name of the program


class Stage:
    """All programs of a mix, loaded: once without Sluice, once under it, and the critical one once more for
    each target. Those that a cell does not need are idle. Made by stage(), which also ends them."""

    def __init__(self, options, mix: Mix, wanted: Iterable[Condition], opened: Session, environment):
        self._options = options
        self._mix = mix
        self._session = opened
        self._environment = environment
        self._teams: dict[str, Team] = {}  # by condition; all conditions without Sluice share ""
        self._learnt: set[str] = set()  # targets
        self._steps_learnt = False
        self._started: list[Talker] = []
        wanted = list(wanted)
        if any(not condition.sluice for condition in wanted):
            self._teams[""] = {program.name: self._bare(program) for program in mix.programs}
        if hooked := [condition for condition in wanted if condition.sluice]:
            others = {program.name: self._hooked(program) for program in mix.others}
            for condition in hooked:
                critical = self._hooked(mix.critical, condition.target)
                self._teams[condition.name] = {mix.critical.name: critical, **others}

    def load(self) -> None:
        """One team after the other: programs of one kind would compile the same kernels at the same time."""
        loaded: list[Talker] = []
        for name, team in self._teams.items():
            new = [talker for talker in team.values() if talker not in loaded]
            starting.load(new)
            loaded += new
            if name and self._options.gpu == "real":
                self._check_clients(new)

    def _check_clients(self, talkers: list[Talker]) -> None:
        clients = self._session.clients()
        for talker in talkers:
            if talker.process.pid not in clients:
                raise RuntimeError(f"{talker.name} is not a client of its session: {talker.said()}")

    def _keep(self, talker: Talker, program: Program) -> Talker:
        talker.name = program.name
        self._started.append(talker)
        return talker

    def _settings(self, program: Program) -> dict:
        return starting.environment(self._options) | self._environment(self._mix.priority(program) == 0)

    def _bare(self, program: Program) -> Talker:
        return self._keep(Talker(starting.command(self._options, program), self._settings(program)), program)

    def _hooked(self, program: Program, target: str = "") -> Talker:
        command, priority = starting.command(self._options, program), self._mix.priority(program)
        options = ("--target", target) if target else ()
        started = self._session.start(command, priority, DEFAULT, self._settings(program), Talker, options)
        assert isinstance(started, Talker)
        return self._keep(started, program)

    def end(self) -> None:
        """All at the same time, before each is waited for. Those under Sluice end with their session."""
        for talker in self._started:
            talker.ask_to_quit()
        for talker in self._teams.get("", {}).values():
            talker.end()

    def keep_outputs(self) -> None:
        """Of the programs that did not end by themselves and well, once all have ended."""
        for talker in self._started:
            if talker.process.poll() != 0:
                starting.keep_output(self._options.out, talker)

    def measure(self, condition: Condition) -> list:
        """The rows of a cell."""
        team = self._teams[condition.name if condition.sluice else ""]
        if condition.name == BEST_EFFORT_ALONE:
            return [row for program in self._mix.others for row in self._run((program,), team, condition)]
        running = (self._mix.critical,) if condition.name == ALONE else self._mix.programs
        if condition.target and condition.target not in self._learnt:
            self._learnt.add(condition.target)
            self._learn(team)
        return self._run(running, team, condition)

    def _learn(self, team: Team) -> None:
        """Lets the interposer see requests of the program with a target next to the others. They arrive as they will
        later: a host at full load is faster than one that sleeps between requests."""
        with self._stepping(self._mix.others, team):
            self._ask_to_serve(team, self._mix.critical, 0.0, jobs=_LEARNING_REQUESTS, seconds=_LEARNING_S)
            self._hear(team, self._mix.critical, "measuring")
            self._hear(team, self._mix.critical, "done", _LEARNING_S)

    @contextlib.contextmanager
    def _stepping(self, programs: Iterable[Program], team: Team) -> Iterator[dict]:
        """Programs that make steps run meanwhile. Gives a dictionary that has the ends of their steps afterwards."""
        names = [program.name for program in programs if not program.serves]
        ends: dict[str, list] = {}
        for name in names:
            team[name].ask("run", "running", starting.ANSWER_S)
        yield ends
        for name in names:
            team[name].say("idle")
        for name in names:
            ends[name] = team[name].hear("idle", starting.ANSWER_S)["ends_ns"]

    def _ask_to_serve(self, team: Team, program: Program, skip_s: float, jobs: int, seconds: float) -> None:
        team[program.name].say(
            "run",
            jobs=jobs,
            seconds=seconds,
            skip_s=skip_s,
            period_ms=program.period_ms(self._options.gpu == "sim"),
            arrivals=program.arrivals,
            seed=1 + self._mix.programs.index(program),
        )

    def _hear(self, team: Team, program: Program, event: str, seconds: float = 0.0) -> dict:
        return team[program.name].hear(event, starting.ANSWER_S + seconds)

    def _clients(self, condition: Condition) -> dict:
        """By pid, as `sluice status --json` reports them; empty where nothing is hooked."""
        return self._session.clients() if condition.sluice and self._options.gpu == "real" else {}

    def _run(self, running: tuple[Program, ...], team: Team, condition: Condition) -> list:
        serving = [program for program in running if program.serves]
        with self._stepping(running, team) as ends:
            if len(serving) < len(running):
                time.sleep(_SETTLE_S if self._steps_learnt or not condition.sluice else _LEARNING_STEPS_S)
                self._steps_learnt |= condition.sluice
            done, before, after = self._window(serving, team, condition)
        window = done.get(self._mix.critical.name) or next(iter(done.values()))
        rows = []
        for program in running:
            pid = team[program.name].process.pid
            seen = figures.Seen(program.name, self._mix.priority(program), before.get(pid), after.get(pid))
            if program.serves:
                rows.append(figures.serving_row(seen, done[program.name], program is self._mix.critical))
            else:
                rows.append(figures.stepping_row(seen, ends[program.name], window["begin_ns"], window["end_ns"]))
        return rows

    def _window(self, serving: list[Program], team: Team, condition: Condition) -> tuple[dict, dict, dict]:
        """The answers `done` by program, and the clients at both ends. Without requests: under the name ""."""
        if not serving:
            begin = time.monotonic_ns()
            time.sleep(min(_STEPS_ALONE_S, self._options.seconds))
            return {"": {"begin_ns": begin, "end_ns": time.monotonic_ns()}}, {}, {}
        for program in serving:
            self._ask_to_serve(team, program, _SKIPPED_S, self._options.jobs, self._options.seconds)
        for program in serving:
            self._hear(team, program, "measuring")
        before = self._clients(condition)
        # The first is the critical program, whose window is that of the cell.
        done = {serving[0].name: self._hear(team, serving[0], "done", self._options.seconds)}
        after = self._clients(condition)
        for program in serving[1:]:
            done[program.name] = self._hear(team, program, "done", self._options.seconds)
        return done, before, after


@contextlib.contextmanager
def stage(options, mix: Mix, mode: str, wanted: Iterable[Condition]) -> Iterator[Stage]:
    """Raises RuntimeError if a program does not load."""
    made = None
    try:
        with (
            mps(options.sluice, mode == MPS_PRIORITY) as environment,
            session(options.sluice, options.exec_gpu) as opened,
        ):
            made = Stage(options, mix, wanted, opened, environment)
            try:
                made.load()
                yield made
            finally:
                made.end()
    except RuntimeError:
        if made:
            made.keep_outputs()
        raise
