"""What a pack holds, in a few bytes a program: enough to make the pack again, and to see that it is the same.

A folder of packs has `packs.json`, a line for each pack: its head, what its programs have, their number, and the hash
of its text. NAME.contents.xz has a line for each network, task and run of programs, in the order of the pack. Before
these it has the networks of other packs that have some of its tasks.
"""

import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.programs import pack

MANIFEST = "packs.json"
_SHORT = 12  # hexadecimal digits of the hash of a part


def _unnamed(source: str) -> str:
    source = re.sub(r"lv\d+", "lv", source)
    names = {"lv", *re.findall(r"__restrict__ (\w+)_ptr", source)}
    longest_first = "|".join(sorted(names, key=len, reverse=True))
    source = re.sub(f"(?<![A-Za-z0-9])(?:{longest_first})(?![A-Za-z0-9])", "", source)
    return " ".join(sorted(re.split(r"[\s,();]+", source)))


def _same(item: dict) -> dict:
    """What two networks have alike of a task that both call. TVM numbers a task's name and names its buffers by what
    else is in the network, and a kernel's arguments are in the order of their names. A source is taken as its words."""
    if item["kind"] == "task" and "name" in item:
        return item | {"name": re.sub(r"\d+", "", item["name"])}
    if "kernels" in item:
        item = item | {"kernels": [kernel | {"args": sorted(kernel["args"])} for kernel in item["kernels"]]}
    if "source" in item:
        item = item | {"source": _unnamed(item["source"])}
    return item


class Digest:
    """The hash of lines of a pack. The order of the keys, the names of buffers and the compression do not count."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, item: dict) -> None:
        self._hash.update(json.dumps(_same(item), separators=(",", ":"), sort_keys=True).encode() + b"\n")

    def hex(self) -> str:
        return self._hash.hexdigest()

    def short(self) -> str:
        return self.hex()[:_SHORT]


def digest(items: Iterable[dict]) -> str:
    whole = Digest()
    for item in items:
        whole.add(item)
    return whole.hex()


@dataclass
class Network:
    name: str
    batch: int
    hash: str  # of its line; empty if the pack has only tasks of it


@dataclass
class Task:
    id: str
    network: int  # one that calls it
    hash: str  # of its line and those of its programs
    indices: list[int] = field(default_factory=list)


@dataclass
class Contents:
    name: str
    head: dict
    want: set[str]  # of "features" and "source"
    programs: int
    sha256: str
    networks: list[Network] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    # In the order of the pack's lines: ("network", number), ("task", number), or the number of a task and an index.
    lines: list[tuple[str, int] | tuple[int, int]] = field(default_factory=list)


def of_packs(paths: list[Path]) -> list[Contents]:
    """Reads packs, which have to be whole. Each task has to be called by a network of one of them."""
    callers = {path: _callers(path) for path in paths}
    every = {task: network for path in reversed(paths) for task, network in callers[path].items()}
    found = []
    for path in paths:
        own = callers[path]
        tasks = [item["task"] for item in _items(path) if item["kind"] == "task"]
        if missing := [task for task in tasks if task not in every]:
            raise usage_error(f"{path}: no network of these packs calls task {missing[0]}")
        others = list(dict.fromkeys(every[task] for task in tasks if task not in own))
        found.append(_of_pack(path, every | own, others))
    return found


def _items(path: Path) -> Iterator[dict]:
    def refuse(text: str) -> None:
        raise usage_error(text)

    return pack.read_lines(path, torn=refuse)


def _callers(path: Path) -> dict[str, tuple[str, int]]:
    """The first network that calls each task."""
    found: dict[str, tuple[str, int]] = {}
    for item in _items(path):
        if item["kind"] == "network":
            for call in item["calls"]:
                found.setdefault(call["task"], (item["name"], item["batch"]))
    return found


def _of_pack(path: Path, callers: dict[str, tuple[str, int]], others: list[tuple[str, int]]) -> Contents:
    items = _items(path)
    whole, parts = Digest(), {}
    found = Contents(path.stem, next(items), set(), 0, "", [Network(name, batch, "") for name, batch in others])
    whole.add(found.head)
    networks = {network: number for number, network in enumerate(others)}
    tasks: dict[str, int] = {}
    for item in items:
        whole.add(item)
        if item["kind"] == "network":
            networks[item["name"], item["batch"]] = len(found.networks)
            found.lines.append(("network", len(found.networks)))
            found.networks.append(Network(item["name"], item["batch"], digest([item])[:_SHORT]))
            continue
        parts.setdefault(item["task"], Digest()).add(item)
        if item["kind"] == "task":
            tasks[item["task"]] = len(found.tasks)
            found.lines.append(("task", len(found.tasks)))
            found.tasks.append(Task(item["task"], networks[callers[item["task"]]], ""))
        else:
            found.lines.append((tasks[item["task"]], item["index"]))
            found.tasks[tasks[item["task"]]].indices.append(item["index"])
            found.programs += 1
            found.want |= {"features", "source"} & set(item)
    for task in found.tasks:
        task.hash = parts[task.id].short()
    found.sha256 = whole.hex()
    return found


def _text(found: Contents) -> str:
    lines = [f"other {network.name} {network.batch}" for network in found.networks if not network.hash]
    run: int | None = None  # the task of the last line of programs
    for what, number in found.lines:
        if what == "network":
            network = found.networks[number]
            lines.append(f"network {network.name} {network.batch} {network.hash}")
        elif what == "task":
            task = found.tasks[number]
            lines.append(f"task {task.id} {task.network} {task.hash}")
        elif run == what:
            lines[-1] += f" {number}"
        else:
            lines.append(f"{what} {number}")
        run = what if isinstance(what, int) else None
    return "\n".join(lines) + "\n"


def write(found: list[Contents], folder: Path) -> None:
    """Adds packs to the folder's manifest, or changes their lines in it."""
    manifest = folder / MANIFEST
    known = json.loads(manifest.read_text()) if manifest.exists() else {}
    for one in found:
        (folder / f"{one.name}.contents.xz").write_bytes(lzma.compress(_text(one).encode(), preset=9))
        known[one.name] = one.head | {"want": sorted(one.want), "programs": one.programs, "sha256": one.sha256}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    manifest.write_text(f"{{\n{lines}\n}}\n")


def _add_line(found: Contents, words: list[str]) -> None:
    if words[0] == "network":
        found.lines.append(("network", len(found.networks)))
        found.networks.append(Network(words[1], int(words[2]), words[3]))
    elif words[0] == "other":
        found.networks.append(Network(words[1], int(words[2]), ""))
    elif words[0] == "task":
        found.lines.append(("task", len(found.tasks)))
        found.tasks.append(Task(words[1], int(words[2]), words[3]))
    else:
        task, *indices = map(int, words)
        found.lines += [(task, index) for index in indices]
        found.tasks[task].indices += indices


def read(manifest: Path, names: list[str]) -> list[Contents]:
    """The contents of these packs, or of all of the manifest."""
    try:
        known = json.loads(manifest.read_text())
    except (OSError, ValueError) as error:
        raise usage_error(f"{manifest}: {getattr(error, 'strerror', None) or 'not JSON'}") from None
    if unknown := [name for name in names if name not in known]:
        raise usage_error(f"{manifest} has no {', '.join(unknown)}, only {', '.join(known)}")
    return [_read(manifest.with_name(f"{name}.contents.xz"), name, known[name]) for name in names or known]


def _read(path: Path, name: str, entry: dict) -> Contents:
    head = {key: value for key, value in entry.items() if key not in ("want", "programs", "sha256")}
    found = Contents(name, head, set(entry["want"]), entry["programs"], entry["sha256"])
    try:
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            _add_line(found, line.split())
    except OSError as error:
        raise usage_error(f"{path}: {error.strerror}") from None
    except (lzma.LZMAError, ValueError, IndexError):
        raise usage_error(f"{path} is damaged") from None
    if sum(len(task.indices) for task in found.tasks) != found.programs:
        raise usage_error(f"{path} does not have the {found.programs} programs that {MANIFEST} says")
    return found
