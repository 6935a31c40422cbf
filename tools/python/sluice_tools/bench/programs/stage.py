"""The programs of a mix, and the windows in which they run and pause: conditions take turns in the same processes, so
the drift of the host is in all of them."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sluice_tools.bench.common.talker import Talker
from sluice_tools.bench.programs import figures, starting
from sluice_tools.bench.programs.conditions import POLICY, SHARED, Condition, Own
from sluice_tools.bench.programs.plan import MPS_PRIORITY, Mix, Program
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure import waits
from sluice_tools.measure.programs import Session, mps, session, width_variables
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

# Of a window, what does not count: a time slice needs up to 0.5 s to become short.
SETTLE_S = 0.9
# With several best-effort programs the window is longer by this: they take turns by themselves only after they have all
# been busy for a while (docs/reference/turns.md).
MORE_FOR_SEVERAL_S = 2.1
_ASK_S = 0.2  # before the part that counts, the counters are read
_LEARN_EACH_S = 5.0
# A client counts as a busy neighbour for a second after its last launch, also one that now has no part in it.
_FORGET_S = 1.1
_loadings = itertools.count(1)


@dataclass
class _Running:
    """A program that is loaded. pids: of its clients, the process that was started first. settings: what each of them
    has now, by `sluice set`."""

    program: Program
    talker: Talker
    pids: list[int]
    settings: list[tuple[str, ...]] = field(default_factory=list)
    answer: dict = field(default_factory=dict)  # to the last `idle`


class Stage:
    """All programs of a mix, loaded once; the critical one once more for each condition that needs a process of its
    own, and those that make steps once more for each width. Those that a window does not need are idle. Made by
    stage(), which also ends them."""

    def __init__(self, options, mix: Mix, wanted: Iterable[Condition], opened: Session, environment, counting: dict):
        self._options, self._mix, self._session = options, mix, opened
        self._environment = environment
        self._counting = counting  # variables of the programs that serve: they count their waits
        self._last = SHARED, WHOLE
        self._loaded = f"{os.getpid()}-{next(_loadings)}"
        others = [program for program in mix.programs if program != mix.critical]
        self._serving = [self._start(program, program.name) for program in others if program.serves]
        # All SMs first: best effort alone has them.
        widths = dict.fromkeys([WHOLE, *(condition.width for condition in wanted)])
        self._stepping = {
            width: [self._start(program, _named(program, width), width=width) for program in mix.best_effort]
            for width in widths
        }
        self._critical: dict[Own, _Running] = {}
        for condition in wanted:
            if mix.critical is not None and condition.own not in self._critical:
                # Not named as the program: its settings are its own.
                name = f"{mix.critical.name}#{len(self._critical)}"
                self._critical[condition.own] = self._start(mix.critical, name, condition.own)

    def _start(self, program: Program, name: str, own: Own = SHARED, width: int = WHOLE) -> _Running:
        command, priority = starting.command(self._options, program, own.announce_ms), self._mix.priority(program)
        environment = starting.environment(self._options, program, self._options.uuids)
        environment |= self._environment(priority == 0) | width_variables(width)
        environment |= self._counting if program.serves else {}
        options = ("--name", name, *own.options)
        talker = self._session.start(command, priority, POLICY, environment, Talker, options)
        assert isinstance(talker, Talker)
        talker.name = name
        return _Running(program, talker, [])

    @property
    def _all(self) -> list[_Running]:
        return [*self._critical.values(), *self._serving, *itertools.chain(*self._stepping.values())]

    def load(self, conditions: list[Condition]) -> None:
        """One process of a program after the other: they would compile the same kernels at the same time. Then those of
        `conditions` run for --learn seconds: what Sluice learns in jobs it has then."""
        for others in ([*self._serving, *self._stepping[WHOLE]], *list(self._stepping.values())[1:]):
            starting.load([running.talker for running in others])
        for running in self._critical.values():
            starting.load([running.talker])
        for running in self._all:
            own = running.talker.process.pid
            running.pids = sorted(self._session.pids(running.talker.name), key=lambda pid: (pid != own, pid))
            if not running.pids and self._options.gpu == "real":
                raise RuntimeError(f"{running.talker.name} is not a client of its session: {running.talker.said()}")
        left = self._options.learn
        while left > 0 and conditions:
            for condition in conditions:
                self._window(condition, self._team(condition), min(left, _LEARN_EACH_S))
            left -= _LEARN_EACH_S

    def end(self) -> None:
        """All at the same time; they are waited for when their session ends."""
        for running in self._all:
            running.talker.ask_to_quit()

    def keep_outputs(self) -> None:
        """Of the programs that did not end by themselves and well, once all have ended."""
        for running in self._all:
            if running.talker.process.poll() != 0:
                starting.keep_output(self._options.out, running.talker)

    def measure(self, condition: Condition, round_: int) -> list:
        """The rows of a window; of one for each program where they run one by one."""
        if condition.name == BEST_EFFORT_ALONE:
            alone = [[running] for running in self._stepping[condition.width]]
        else:
            alone = [self._team(condition)]
        return [row for team in alone for row in self._window(condition, team, self._options.window, round_)]

    def _team(self, condition: Condition) -> list[_Running]:
        critical = [self._critical[condition.own]] if self._critical else []
        others = [*self._serving, *self._stepping[condition.width]]
        return critical if condition.name.startswith(ALONE) else critical + others

    @staticmethod
    def _more_s(team: list[_Running]) -> float:
        return MORE_FOR_SEVERAL_S if sum(not one.program.serves for one in team) > 1 else 0.0

    def _window(self, condition: Condition, team: list[_Running], seconds: float, round_: int = 0) -> list:
        self._apply(condition)
        if (condition.own, condition.width) != self._last:
            time.sleep(_FORGET_S)
            self._last = condition.own, condition.width
        # The same arrivals in all windows of a round.
        for place, one in enumerate(team):
            starting.run(one.talker, one.program, self._options.gpu == "sim", seed=100 * round_ + place)
        counts = time.monotonic() + SETTLE_S + self._more_s(team)
        time.sleep(max(0.0, counts - _ASK_S - time.monotonic()))
        before = self._clients(condition)
        time.sleep(max(0.0, counts - time.monotonic()))
        begin = time.monotonic_ns()
        time.sleep(max(0.0, counts + seconds - SETTLE_S - time.monotonic()))
        end, after = time.monotonic_ns(), self._clients(condition)
        self._pause(team, end)
        return [self._row(one, (begin, end), (before, after)) for one in team]

    def _apply(self, condition: Condition) -> None:
        for running in self._all:
            if running.program == self._mix.critical and running is not self._critical[condition.own]:
                wanted = [("--priority", "0") for _ in running.pids]  # idle in this window: above nobody
            elif not running.program.serves and running not in self._stepping[condition.width]:
                continue  # idle, and below everybody anyway
            else:
                wanted = [condition.settings(self._mix, running.program, rank) for rank in range(len(running.pids))]
            before = running.settings or [()] * len(running.pids)
            for pid, had, has in zip(running.pids, before, wanted):
                if had != has:
                    self._session.set(pid, has)
            running.settings = wanted

    def _pause(self, running: list[_Running], end: int) -> None:
        """Those that make steps run until the others have answered all that arrived before the end."""
        serving = [one for one in running if one.program.serves]
        stepping = [one for one in running if not one.program.serves]
        for group in (serving, stepping):
            for one in group:
                one.talker.say("idle", until_ns=end)
            for one in group:
                one.answer = one.talker.hear("idle", starting.ANSWER_S)

    def _clients(self, condition: Condition) -> tuple[float, dict]:
        """When it was asked, and what `sluice status --json` reports, by pid; not asked where nothing is held."""
        return time.monotonic(), self._session.clients() if condition.hooked else {}

    def _row(self, one: _Running, window: tuple, looks: tuple) -> dict:
        (first, before), (last, after) = ((at, clients.get(one.talker.process.pid)) for at, clients in looks)
        seen = figures.Seen(one.program.name, self._mix.priority(one.program), before, after, last - first)
        begin, end = window
        if not one.program.serves:
            row = figures.stepping_row(seen, one.answer["ends_ns"], begin, end)
        else:
            row = figures.serving_row(seen, one.answer, begin, end, one.program == self._mix.critical)
        return row | {"loaded": self._loaded}


def _named(program: Program, width: int) -> str:
    """Of the client: those of other widths have settings of their own."""
    return program.name if width == WHOLE else f"{program.name}#{width}"


@contextlib.contextmanager
def stage(options, mix: Mix, mode: str, wanted: list[Condition]) -> Iterator[Stage]:
    """wanted: the conditions to be measured, those alone as well. Raises RuntimeError if a program does not load."""
    made = None
    try:
        with (
            waits.folder() as counted,
            mps(options.sluice, mode == MPS_PRIORITY) as environment,
            session(options.sluice, options.gpu) as opened,
        ):
            made = Stage(options, mix, wanted, opened, environment, waits.variables(counted))
            try:
                made.load([condition for condition in wanted if condition.hooked])
                yield made
            finally:
                made.end()
    except RuntimeError:
        if made:
            made.keep_outputs()
        raise
