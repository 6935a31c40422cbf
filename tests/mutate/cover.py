"""Which tests cover a file, from the nearest to the farthest.

Derived from the build, not listed: the programs whose code includes the file, links it or, by CMake's dependencies,
runs it; the other tests of the folder that has the file's name; and for Python the pytest files that import the module
or name its command.
"""

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from copy_of_tree import Copy

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Batch:
    """Tests that are built and run together. `own`: they belong to the folder of the file."""

    own: bool
    targets: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()  # names of tests
    pytest: tuple[str, ...] = ()
    only: str = ""  # of the tests of `targets` those that match


@dataclass(frozen=True)
class _Target:
    name: str
    folder: str
    kind: str
    sources: frozenset[str]
    artifacts: frozenset[str]
    links: frozenset[str]
    needs: frozenset[str] = field(default_factory=frozenset)

    @property
    def of_tests(self) -> bool:
        return self.folder.split("/")[0] == "tests"


def closure(start: set[str], edges: dict[str, set[str]]) -> set[str]:
    found, left = set(start), list(start)
    while left:
        new = edges.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


class Cover:
    def __init__(self, copy: Copy, files: list[str]):
        self._copy = copy
        self._files = files

    @cached_property
    def _targets(self) -> dict[str, _Target]:
        build = self._copy.build_folder
        found = {}
        for key, entry in self._copy.targets().items():
            fragments = entry.get("link", {}).get("commandFragments", [])
            found[key] = _Target(
                entry["name"],
                entry["paths"]["source"],
                entry["type"],
                frozenset(source["path"] for source in entry.get("sources", [])),
                frozenset(str(build / artifact["path"]) for artifact in entry.get("artifacts", [])),
                frozenset(fragment["fragment"].strip('"') for fragment in fragments),
                frozenset(needed["id"] for needed in entry.get("dependencies", [])),
            )
        return found

    @cached_property
    def _includers(self) -> dict[str, set[str]]:
        includers: dict[str, set[str]] = {}
        known = set(self._files)
        for file in self._files:
            if not file.endswith((".cpp", ".hpp", ".h")):
                continue
            text = (self._copy.tree / file).read_text(errors="replace")
            for name in _INCLUDE.findall(text):
                beside = str(Path(file).parent / name)
                included = name if name in known else beside if beside in known else f"include/{name}"
                includers.setdefault(included, set()).add(file)
        return includers

    def is_built(self, file: str) -> bool:
        """Whether the build compiles the file: without LibTorch it has no workers with PyTorch, for example."""
        return file.endswith(".py") or bool(self._compile(file))

    def _compile(self, file: str) -> set[str]:
        readers = closure({file}, self._includers)
        return {key for key, target in self._targets.items() if readers & target.sources}

    def _dependents(self, file: str) -> list[_Target]:
        users: dict[str, set[str]] = {}
        for key, target in self._targets.items():
            for needed in target.needs:
                users.setdefault(needed, set()).add(key)
        return [self._targets[key] for key in closure(self._compile(file), users)]

    def products(self) -> list[str]:
        """All that is installed, which tests may run without saying so to CMake."""
        return sorted(
            target.name
            for target in self._targets.values()
            if not target.of_tests and target.kind in ("EXECUTABLE", "SHARED_LIBRARY", "MODULE_LIBRARY")
        )

    def tests_of(self, batch: Batch) -> list[str]:
        """Names of the batch's tests for ctest, once its programs are built."""
        if not batch.targets or batch.scripts:
            return list(batch.scripts)
        programs = {
            path for target in self._targets.values() if target.name in batch.targets for path in target.artifacts
        }
        names = [test["name"] for test in self._copy.tests() if test["program"] in programs]
        return [name for name in names if re.search(batch.only, name)]

    def batches(self, file: str) -> list[Batch]:
        if file.endswith(".py"):
            return [Batch(own=True, targets=("build.ninja",), pytest=tuple(self._pytest_files(file)))]
        tests = self._copy.tests()
        dependents = self._dependents(file)
        batches = self._program_batches(file, dependents, tests)
        programs = {path for target in self._targets.values() for path in target.artifacts}
        scripts = tuple(
            test["name"]
            for test in tests
            if test["program"] not in programs | {""} and _shares_folder(file, test["folder"])
        )
        if scripts:
            products = set(self.products())
            rebuilt = tuple(sorted(target.name for target in dependents if target.name in products))
            batches.append(Batch(True, rebuilt, scripts))
        return sorted(batches, key=lambda batch: not batch.own)

    def _program_batches(self, file: str, dependents: list[_Target], tests: list[dict]) -> list[Batch]:
        # Of a test whose program is not built, only the name is known, or only the folder.
        tested = {test["name"] for test in tests} | {test["program"] for test in tests}
        folders = {test["folder"] for test in tests if not test["program"]}
        near, own, linking, other = set(), set(), set(), set()
        compiled = {path for key in self._compile(file) for path in self._targets[key].artifacts}
        linked = {path.removeprefix(f"{self._copy.build_folder}/") for path in compiled}
        for target in dependents:
            signs = target.artifacts | {f"{target.name}_NOT_BUILT"}
            if not target.of_tests or target.kind != "EXECUTABLE" or not (signs & tested or target.folder in folders):
                continue
            if _shares_folder(file, target.folder):
                named = any(_stem(source) == _stem(file) for source in target.sources)
                (near if named else own).add(target.name)
            elif target.links & linked or target.artifacts & compiled:
                linking.add(target.name)
            else:
                other.add(target.name)
        kinds = ((True, near), (True, own), (False, linking), (False, other))
        return [Batch(mine, tuple(sorted(names))) for mine, names in kinds if names]

    def _pytest_files(self, file: str) -> list[str]:
        tests = [name for name in self._files if re.search(r"(^|/)(test_\w+|\w+_test)\.py$", name)]
        imports = {name: self._imports(name) for name in self._files if name.endswith(".py")}
        # The command of sluice_tools/device_plugin/ is `device-plugin`.
        command = (Path(file).parent.name if "sluice_tools/" in file else Path(file).stem).replace("_", "-")
        word = re.compile(rf"""["'/]{re.escape(command)}["' ]""")
        ranked = []
        for test in tests:
            if file in closure({test}, imports):
                direct = file in imports[test]
            elif word.search((self._copy.tree / test).read_text()):
                direct = False
            else:
                continue
            named = _stem(test) in (_stem(file), command.replace("-", "_"))
            ranked.append((not named, not direct, test))
        return [test for *_, test in sorted(ranked)]

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Files by each dotted name that an import may use."""
        found = {}
        for file in self._files:
            parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
            for first in range(len(parts) if file.endswith(".py") else 0):
                found.setdefault(".".join(parts[first:]), file)
        return found

    def _imports(self, file: str) -> set[str]:
        names = set()
        for node in ast.walk(ast.parse((self._copy.tree / file).read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = Path(file).parts[: -node.level] if node.level else ()
                base = ".".join([*package, *([node.module] if node.module else [])])
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        return {self._modules[name] for name in names if name in self._modules}


def _stem(file: str) -> str:
    return Path(file).stem.removeprefix("test_").removesuffix("_test")


def _shares_folder(file: str, tests: str) -> bool:
    parts = tests.split("/")
    return len(parts) > 1 and parts[0] == "tests" and parts[1] == file.split("/")[0]
