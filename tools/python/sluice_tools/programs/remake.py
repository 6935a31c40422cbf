"""Packs made again from their contents: the same networks, tasks and indices give the same lines."""

import json
import lzma
import multiprocessing
import multiprocessing.connection
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.process import BaseProcess
from pathlib import Path

from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, CommandError, first_line, usage_error
from sluice_tools.programs import contents, pack, tvm_setup
from sluice_tools.programs.contents import Contents, Digest
from sluice_tools.programs.progress import say

_MOST_SAID = 5  # tasks that differ, of a pack


@dataclass
class Part:
    """The lines of a network and of the tasks that it is the first to call, in a file of their own until all are there.
    So an interrupted run goes on where it ended."""

    of: Contents
    network: int
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / f"{self.network}.xz"

    def said(self) -> str:
        network = self.of.networks[self.network]
        return f"{self.of.name}: {network.name} batch {network.batch}"


def _make(part: Part) -> None:
    """In a process of its own: TVM keeps the memory of what it has compiled."""
    from sluice_tools.programs import catalog, models, networks

    network, wanted = part.of.networks[part.network], part.of.tasks
    wanted = {task.id: task.indices for task in wanted if task.network == part.network}
    try:
        tvm_setup.load()
        mod = models.load(catalog.source_of(network.name), network.name, network.batch)
        line, tasks = networks.extract(network.name, network.batch, mod, tvm_setup.target_of(part.of.head["target"]))
        lines = [line]
        for task in tasks:
            if task.id in wanted:
                lines.append(task.line())
                lines += [_program(task, index, part.of.want) for index in wanted[task.id]]
    except CommandError as error:
        sys.exit(f"sluice programs: {part.said()}: {error}")
    except Exception as error:  # TVM refuses a network or a program in one of many classes
        sys.exit(f"sluice programs: {part.said()}: TVM refuses it: {first_line(error)}")
    unfinished = part.path.with_suffix(".unfinished")
    pack.write_lines(unfinished, lines)
    unfinished.rename(part.path)
    say(f"{part.said()}: {len(lines) - 1 - len(wanted)} programs of {len(wanted)} tasks")


def _make_all(parts: list[Part], jobs: int) -> None:
    """A part whose file is missing then has failed, and its process has said why."""
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[Part, BaseProcess]] = {}
    while parts or running:
        while parts and len(running) < jobs:
            process = context.Process(target=_make, args=(parts[0],), daemon=True)  # ends with this one
            process.start()
            running[process.sentinel] = (parts.pop(0), process)
        ended = multiprocessing.connection.wait(list(running))
        for sentinel in [one for one in running if one in ended]:
            part, process = running.pop(sentinel)
            process.join()
            if (code := process.exitcode or 0) < 0:
                say(f"{part.said()}: ended by {signal.Signals(-code).name}")


def _program(task, index: int, want: set[str]) -> dict:
    from sluice_tools.programs import programs

    if index == task.space.size:
        return programs.describe_default(task)
    return programs.describe(task, index, want)


class _Made:
    """The lines of all parts of a pack that are there. They stay text: a large pack has 300 MB of them."""

    def __init__(self, parts: list[Part]):
        self.networks: dict[int, str] = {}
        self.tasks: dict[str, str] = {}
        self.programs: dict[tuple[str, int], str] = {}
        for part in parts:
            for text in lzma.decompress(part.path.read_bytes()).decode().splitlines():
                item = json.loads(text)
                if item["kind"] == "network":
                    self.networks[part.network] = text
                elif item["kind"] == "task":
                    self.tasks[item["task"]] = text
                else:
                    self.programs[item["task"], item["index"]] = text


def _other(of: Contents, made: _Made) -> list[str]:
    """The networks and tasks that are not what they were."""
    found = []
    for number, text in made.networks.items():
        network = of.networks[number]
        if not contents.digest([json.loads(text)]).startswith(network.hash):
            found.append(f"network {network.name} batch {network.batch}")
    for task in of.tasks:
        if task.network not in made.networks:
            continue
        lines = [made.tasks.get(task.id), *(made.programs.get((task.id, index)) for index in task.indices)]
        now = Digest()
        for text in lines:
            if text is not None:
                now.add(json.loads(text))
        if None in lines or now.short() != task.hash:
            found.append(f"task {task.id} of {of.networks[task.network].name}")
    return found


def _lines(of: Contents, made: _Made) -> Iterator[str]:
    """In the order of the pack, without the parts that are not made."""
    yield json.dumps(of.head, separators=(",", ":"))
    for what, number in of.lines:
        if what == "network":
            if number in made.networks:
                yield made.networks[number]
            continue
        task = of.tasks[what if isinstance(what, int) else number]
        if task.network in made.networks:
            yield made.programs[task.id, number] if isinstance(what, int) else made.tasks[task.id]


def _finish(of: Contents, parts: list[Part], out: Path) -> bool:
    """Writes the pack if its parts are what they were."""
    made = _Made(parts)
    if other := _other(of, made):
        more = f" and {len(other) - _MOST_SAID} more" if len(other) > _MOST_SAID else ""
        say(f"{of.name}: not as before: {', '.join(other[:_MOST_SAID])}{more}")
        return False
    whole = Digest()
    texts = list(_lines(of, made))
    for text in texts:
        whole.add(json.loads(text))
    if len(parts) == len(of.networks) and whole.hex() != of.sha256:
        say(f"{of.name}: all parts are as before, but the pack is not: sha256 {whole.hex()}, not {of.sha256}")
        return False
    unfinished = out.with_suffix(".unfinished")
    unfinished.write_bytes(lzma.compress(("\n".join(texts) + "\n").encode(), preset=9))
    unfinished.rename(out)
    count = sum(len(task.indices) for task in of.tasks if task.network in made.networks)
    say(f"{out}: {count} of {of.programs} programs, as before")
    return True


@dataclass
class Plan:
    manifest: Path
    packs: list[str]
    models: list[str]  # these networks only; none: all
    out: Path
    jobs: int


def _is_there(of: Contents, folder: Path) -> bool:
    path = folder / f"{of.name}.programs"
    if not path.exists():
        return False
    if contents.digest(pack.read_lines(path)) != of.sha256:
        raise usage_error(f"{path} exists and is not as before: remove it, or give another folder")
    say(f"{path}: {of.programs} programs, as before")
    return True


def _parts(plan: Plan, found: list[Contents]) -> list[Part]:
    parts = []
    for of in found:
        folder = plan.out / f"{of.name}.parts"
        for number, network in enumerate(of.networks):
            if not plan.models or network.name in plan.models:
                parts.append(Part(of, number, folder))
    if not parts:
        raise usage_error(f"{plan.manifest}: no network of these packs is {', '.join(plan.models)}")
    return parts


def remake(plan: Plan) -> int:
    found = [of for of in contents.read(plan.manifest, plan.packs) if not _is_there(of, plan.out)]
    if not found:
        return EXIT_FINE
    for of in found:
        if (of.head["tvm"], of.head["ffi"]) != (tvm_setup.TVM_VERSION, tvm_setup.FFI_VERSION):
            raise usage_error(f"{of.name} was made with TVM {of.head['tvm']}, ffi {of.head['ffi']}; here is another")
    parts = _parts(plan, found)
    for part in parts:
        part.folder.mkdir(parents=True, exist_ok=True)
    missing = [part for part in parts if not part.path.exists()]
    say(f"{len(missing)} networks to make, with {plan.jobs} processes")
    _make_all(missing, plan.jobs)
    failed = False
    for name, group in groupby(parts, key=lambda part: part.of.name):
        of_pack = list(group)
        made = all(part.path.exists() for part in of_pack)
        if made and _finish(of_pack[0].of, of_pack, plan.out / f"{name}.programs"):
            shutil.rmtree(of_pack[0].folder)
            continue
        failed = True
    return EXIT_FAILED if failed else EXIT_FINE
