"""The faults that are kept by hand, in kept/*.toml: those of the protocol, liveness, the interposer and the board.

Each has: what (a line for people), function (as in `Jobs::end`, without namespaces; a class or a variable where the
text is in none), old (text that its body has exactly once; white space does not matter), new, program (the target of
the test program) and tests (a regular expression of the tests that should fail). No file: code may move.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kinds import Fault, parse
from tree_sitter import Node

FOLDER = Path(__file__).resolve().parent / "kept"
_NAMED = {"function_definition", "class_specifier", "struct_specifier", "enum_specifier", "declaration"}
_TOKEN = re.compile(rb"\w+|\S")


class StaleError(Exception):
    pass


@dataclass(frozen=True)
class Kept:
    list: str
    what: str
    function: str
    old: str
    new: str
    program: str
    tests: str


def read_kept(names: list[str], folder: Path = FOLDER) -> list[Kept]:
    """Raises StaleError where a list is missing or has something unknown."""
    faults = []
    for name in names or sorted(path.stem for path in folder.glob("*.toml")):
        file = folder / f"{name}.toml"
        if not file.exists():
            raise StaleError(f"no list '{name}'; there are: {', '.join(sorted(p.stem for p in folder.glob('*.toml')))}")
        for number, entry in enumerate(tomllib.loads(file.read_text())["fault"], 1):
            try:
                faults.append(Kept(name, **entry))
            except TypeError as error:
                raise StaleError(f"{file.name}: fault {number}: {error}") from None
    return faults


class Functions:
    """The bodies of all functions of some files, by name."""

    def __init__(self, root: Path, files: list[str]):
        self._texts = {file: (root / file).read_bytes() for file in files if file.endswith((".cpp", ".hpp"))}
        self._bodies: dict[str, list[tuple[str, int, int]]] = {}
        for file, text in self._texts.items():
            for name, node in named_nodes(parse(file, text)):
                self._bodies.setdefault(name, []).append((file, node.start_byte, node.end_byte))

    def locate(self, kept: Kept) -> Fault:
        """Raises StaleError unless the text is there exactly once."""
        pattern = re.compile(rb"\s*".join(map(re.escape, _TOKEN.findall(kept.old.encode()))))
        found = {
            (file, first + match.start(), first + match.end())
            for file, first, last in self._bodies.get(kept.function, [])
            for match in pattern.finditer(self._texts[file][first:last])
        }
        if len(found) != 1:
            why = f"has it {len(found)} times" if kept.function in self._bodies else "is not there"
            raise StaleError(f"{kept.list}: '{kept.what}': {kept.function} {why}: {kept.old}")
        file, start, end = found.pop()
        line = self._texts[file][:start].count(b"\n") + 1
        return Fault(file, line, "kept", 1, start, end, kept.new)


def named_nodes(node: Node, around: str = "") -> Iterator[tuple[str, Node]]:
    """Functions, classes and variables, with the names of the classes around them."""
    name = ""
    if node.type in _NAMED:
        named = node.child_by_field_name("name") or _declared(node)
        name = "" if named is None or named.text is None else re.sub(r"\s+", "", named.text.decode())
        name = f"{around}::{name}" if around and name else name
        if name:
            yield name, node
    inner = name if name and node.type.endswith("_specifier") else around
    if node.type != "function_definition":
        for child in node.children:
            yield from named_nodes(child, inner)


def _declared(node: Node) -> Node | None:
    while (inner := node.child_by_field_name("declarator") or _reference(node)) is not None:
        node = inner
    return node if node.type.endswith("identifier") or node.type in ("destructor_name", "operator_name") else None


def _reference(node: Node) -> Node | None:
    return node.named_child(0) if node.type == "reference_declarator" else None
