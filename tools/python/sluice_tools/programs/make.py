"""Making a pack: random programs of all tasks of some networks, in rounds, so that any prefix of it is useful."""

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path

from sluice_tools.common.errors import CommandError, first_line, run_error, usage_error
from sluice_tools.opbench import records
from sluice_tools.programs import catalog, models, networks, pack, programs
from sluice_tools.programs.progress import say
from sluice_tools.programs.tvm_setup import FFI_VERSION, TVM_VERSION, full_name, target_of

_PIECE = 250  # programs that a crash may lose
_PATIENCE_S = 300  # until fewer are written
_ROUND = 4  # programs of a task before the next task has its turn
_PARENTS = 3  # of a task, the fastest


@dataclass
class Plan:
    models: list[str]
    batches: list[int]
    per_task: int
    target: str
    out: Path
    resume: bool
    seed: int
    sources: int  # programs of each task that have their CUDA C
    want: set[str] = field(default_factory=lambda: {"source", "features"})
    tuned: list[Path] = field(default_factory=list)  # records: their fastest programs are changed


@contextmanager
def left_out_if_it_fails(name: str, batch: int) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        say(f"left out: {error}")
    except OSError:  # a full disk: the next one will not fare better
        raise
    except Exception as error:  # TVM refuses an operator in one of many classes
        say(f"left out: TVM refuses '{name}' at batch {batch}: {first_line(error)}")


def _import_all(plan: Plan) -> tuple[list[dict], list]:
    """The networks' lines, and all tasks in turns of the networks. A network that fails is said and left out."""
    target, lines, turns = target_of(plan.target), [], []
    for batch in plan.batches:
        for name in plan.models:
            with left_out_if_it_fails(name, batch):
                mod = models.load(catalog.source_of(name), name, batch)
                network, tasks = networks.extract(name, batch, mod, target)
                described = [(task, task.line()) for task in tasks]
                say(f"{name} batch {batch}: {len(network['calls'])} calls, {len(tasks)} tasks")
                lines.append(network)
                turns.append(described)
    if not lines:
        raise run_error("no network could be imported")
    tasks = {task.id: (task, line) for task, line in filter(None, chain(*zip_longest(*turns)))}
    return lines, list(tasks.values())


def _head(plan: Plan) -> dict:
    versions = {"tvm": TVM_VERSION, "ffi": FFI_VERSION}
    return {"kind": "pack", "version": 1, "target": full_name(plan.target), **versions, "seed": plan.seed}


def _begin(plan: Plan, lines: list[dict], tasks: list) -> dict[str, set[int]]:
    """Writes the head, or reads what an earlier run has made: per task, the indices of its programs."""
    known: dict[str, set[int]] = {task.id: set() for task, _ in tasks}
    there = plan.out.exists() and plan.out.stat().st_size > 0  # killed before its first write, `make` leaves it empty
    if not plan.resume or not there:
        if there:
            raise usage_error(f"{plan.out} exists: add --resume, or give another name")
        pack.write_lines(plan.out, [_head(plan), *lines, *(line for _, line in tasks)])
        return known
    old = list(pack.read_lines(plan.out))
    if old[0] != _head(plan):
        raise usage_error(f"{plan.out} has another target, TVM or seed: {old[0]}")
    pack.mend_torn_end(plan.out)
    networks_there = [(item["name"], item["batch"]) for item in old if item["kind"] == "network"]
    tasks_there = {item["task"] for item in old if item["kind"] == "task"}
    for item in old:
        if item["kind"] == "program" and item["task"] in known:
            known[item["task"]].add(item["index"])
    new = [line for line in lines if (line["name"], line["batch"]) not in networks_there]
    new += [line for task, line in tasks if task.id not in tasks_there]
    if new:
        pack.write_lines(plan.out, new, append=True)
    return known


def _measured(files: list[Path]) -> dict[str, list[int]]:
    """The indices that were measured on a whole GPU, the fastest first, by task."""
    costs: dict[str, dict[int, float]] = {}
    for one in chain(*map(records.read, files)):
        if one.good and "@" not in one.device:
            costs.setdefault(one.task, {})[one.index] = one.cost
    return {task: sorted(found, key=lambda index: found[index]) for task, found in costs.items()}


class _Output:
    """Collects programs, and writes them in pieces."""

    def __init__(self, path: Path, there: int, wanted: int):
        self._path, self._wanted = path, wanted
        self._total = self._before = there
        self._piece: list[dict] = []
        self._left_out: Counter[str] = Counter()
        self._started = self._written = time.monotonic()

    def add(self, made: list[dict], left_out: dict[str, int]) -> None:
        self._piece += made
        self._total += len(made)
        self._left_out.update(left_out)
        if len(self._piece) >= _PIECE or time.monotonic() - self._written > _PATIENCE_S:
            self.flush()

    def flush(self) -> None:
        if self._piece:
            pack.write_lines(self._path, self._piece, append=True)
        self._piece, self._written = [], time.monotonic()
        speed = (self._total - self._before) / max(self._written - self._started, 1e-9)
        said = ", ".join(f"{count} {reason}" for reason, count in self._left_out.items())
        say(f"{self._total} of {self._wanted} programs, {speed:.2f} a second; left out: {said or 'none'}")


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """The signals that ask for the end, as they come. TVM takes what a handler raises inside of one of its callbacks
    for the error of a program, and goes on."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take(number: int, frame) -> None:
        came.append(number)
        if callable(then := before[signal.Signals(number)]):
            then(number, frame)

    try:
        for number in before:
            signal.signal(number, take)
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make(plan: Plan) -> int:
    measured = _measured(plan.tuned)
    lines, tasks = _import_all(plan)
    known = _begin(plan, lines, tasks)
    if plan.tuned:
        tasks = [(task, line) for task, line in tasks if task.id in measured]
    there, wanted = sum(map(len, known.values())), plan.per_task * len(tasks)
    say(f"{len(lines)} networks, {len(tasks)} tasks, {wanted} programs wanted, {there} there")
    output, exhausted = _Output(plan.out, there, wanted), set()
    try:
        with _interrupts() as interrupted:
            for goal in range(_ROUND, plan.per_task + _ROUND, _ROUND):
                for task, _ in tasks:
                    have = known[task.id]
                    missing = min(goal, plan.per_task) - len(have)
                    if missing <= 0 or task.id in exhausted:
                        continue
                    old = [index for index in measured.get(task.id, []) if index < task.space.size]
                    made, left_out = programs.sample(
                        task, missing, plan.seed + len(have), plan.want, have | set(old), old[:_PARENTS]
                    )
                    for line in made[max(plan.sources - len(have), 0) :]:
                        line.pop("source", None)
                    have |= {line["index"] for line in made}
                    output.add(made, left_out)
                    if interrupted:
                        sys.exit(128 + interrupted[0])
                    if len(made) < missing:
                        exhausted.add(task.id)
    finally:  # also after Ctrl-C or SIGTERM
        output.flush()
    if exhausted:
        say(f"{len(exhausted)} tasks have too few valid programs")
    return 0
