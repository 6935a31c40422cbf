"""Checks that the imports of tools/python follow its floors: arrows between packages point down only.

Three rules, over every module below tools/python:
- each package has a floor in the drawing of docs/guide/architecture.md, which is read here;
- a package imports only itself and packages of the floors below, so no two packages of one floor;
- the modules form no circle.
An import counts wherever it is: at the top, in a function, under `if TYPE_CHECKING`, or relative. The name of a module
in a string ("sluice_tools.bench", for `python -m`) counts for the floors, but not for the circles.
check_includes.py runs this check.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from circles import circles

PLACE = Path("tools/python")
PAGE = Path("docs/guide/architecture.md")
_DRAWN = re.compile(r"^ (\d+)  (\w+(?: +\w+)*) *│", re.MULTILINE)
_NO_FLOOR = f"has no floor in the drawing of {PAGE}"


def drawn_floors(page: str) -> list[list[str]]:
    """The packages from the top down. A package is a folder of sluice_tools, or what is next to sluice_tools."""
    rows = _DRAWN.findall(page)
    floors = [names.split() for _, names in rows]
    packages = [package for floor in floors for package in floor]
    numbers = [int(number) for number, _ in rows]
    if not rows or numbers != list(reversed(range(len(rows)))) or len(packages) != len(set(packages)):
        sys.exit(f"{PAGE}: the drawing of the Python packages must have floors down to 0, and each package once")
    return floors


FLOORS = drawn_floors((Path(__file__).parents[2] / PAGE).read_text())
_FLOOR = {package: floor for floor, packages in enumerate(reversed(FLOORS)) for package in packages}
_FLOOR["sluice_tools"] = 0  # its __init__.py
_MODULE = re.compile(r"(sluice_tools(?:\.\w+)+)\.?")


def _modules(root: Path) -> dict[str, Path]:
    """The files by their dotted names."""
    found = {}
    for path in sorted((root / PLACE).rglob("*.py")):
        parts = path.relative_to(root / PLACE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _package(module: str) -> str:
    top, _, inner = module.partition(".")
    return inner.partition(".")[0] if top == "sluice_tools" and inner else top


def _base(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Of `from BASE import ...`, as an absolute name."""
    if not node.level:
        return node.module or ""
    parents = module.split(".")
    above = node.level - (path.name == "__init__.py")  # a package's own name is one dot
    kept = parents[: len(parents) - above]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _imports(tree: ast.AST, module: str, modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, modules[module])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in modules else base


def _named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each string that is a module's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _MODULE.fullmatch(node.value)):
            yield node.lineno, found[1]


def _climbs(package: str, other: str) -> str:
    """What is wrong with an import of `other` in `package`, which has a floor; empty for nothing."""
    if other not in _FLOOR:
        return f"{other} {_NO_FLOOR}"
    if package == other or _FLOOR[other] < _FLOOR[package]:
        return ""
    where = "above" if _FLOOR[other] > _FLOOR[package] else "on the same floor as"
    return f"{other} is {where} {package} ({PAGE})"


def faults(root: Path) -> list[str]:
    modules = _modules(root)
    ours = {name.partition(".")[0] for name in modules} | {"sluice", "sluice_tools"}
    edges: dict[str, set[str]] = {}
    found = []
    for module, path in modules.items():
        name, package = path.relative_to(root), _package(module)
        if package not in _FLOOR:
            found.append(f"{name}: {package} {_NO_FLOOR}")
            continue
        tree = ast.parse(path.read_bytes(), filename=str(path))
        imported = {(line, target) for line, target in _imports(tree, module, modules) if target.split(".")[0] in ours}
        for line, target in sorted({*imported, *_named(tree)}):
            if fault := _climbs(package, _package(target)):
                found.append(f"{name}:{line}: imports {target}, but {fault}")
        edges[module] = {target for _, target in imported}
    for circle in circles(edges):
        found.append(f"{PLACE}: {', '.join(sorted(circle))} are in a circle of imports")
    return found
