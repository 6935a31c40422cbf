#!/usr/bin/env python3
"""The import check itself: it must notice each kind of fault, in trees made for it.

Prevents: a check that passes because it reads nothing, or misses an import that is not a plain line at the top.
"""

import itertools
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_imports

ROOT = Path(__file__).parents[2]
TOOLS = "tools/python/sluice_tools"
FLOORS = check_imports.FLOORS


def path_of(package: str) -> str:
    return f"tools/python/{package}" if package in FLOORS[-1] else f"{TOOLS}/{package}"


def name_of(package: str) -> str:
    return path_of(package).removeprefix("tools/python/").replace("/", ".")


class CheckImports(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)

    def write(self, name: str, text: str = ""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def faults(self) -> list[str]:
        return check_imports.faults(self.root)

    def only_fault(self, *parts: str):
        faults = self.faults()
        self.assertEqual(len(faults), 1, faults)
        for part in parts:
            self.assertIn(part, faults[0])

    def test_a_tree_that_keeps_the_rules_has_no_fault(self):
        self.write(f"{TOOLS}/__init__.py")
        self.write(f"{TOOLS}/common/errors.py", "import sys\nfrom pathlib import Path\n")
        self.write(f"{TOOLS}/bench/llm/cli.py", "from sluice_tools.common import errors\nfrom ..cli import main\n")
        self.write(f"{TOOLS}/bench/cli.py", "import sluice\nimport sluice_tools.measure.rows as rows\nimport numpy\n")
        self.write("tools/python/sluice/__init__.py", "from sluice._jobs import job\n")
        self.write("tools/python/sluice/_jobs.py", "import ctypes\n")
        self.assertEqual(self.faults(), [])

    def test_every_floor_may_use_those_below_and_none_above(self):
        broken = set()
        for above, below in itertools.combinations(FLOORS, 2):
            for high, low in itertools.product(above, below):
                self.write(f"{path_of(high)}/x_{low}.py", f"import {name_of(low)}.y\n")
                self.write(f"{path_of(low)}/x_{high}.py", f"import {name_of(high)}.y\n")
                broken.add(f"{path_of(low)}/x_{high}.py:1: imports {name_of(high)}.y, but {high} is above {low}")
        self.assertEqual({fault.removesuffix(" (docs/guide/architecture.md)") for fault in self.faults()}, broken)

    def test_packages_of_one_floor_do_not_import_each_other(self):
        broken = set()
        for one, other in (pair for floor in FLOORS for pair in itertools.permutations(floor, 2)):
            self.write(f"{path_of(one)}/x_{other}.py", f"import {name_of(other)}\n")
            broken.add(f"{path_of(one)}/x_{other}.py:1: imports {name_of(other)}, but {other} is on the same floor")
        self.assertEqual({fault.partition(" as ")[0] for fault in self.faults()}, broken)

    def test_every_form_of_an_import_counts(self):
        forms = {
            "import": "import sluice_tools.sweep.cli",
            "import of two": "import sys, sluice_tools.sweep.cli",
            "import as": "import sluice_tools.sweep.cli as c",
            "from a module": "from sluice_tools.sweep.cli import main",
            "from a package": "from sluice_tools.sweep import cli",
            "from the top": "from sluice_tools import sweep",
            "from the top, of two": "from sluice_tools import (\n    common,\n    sweep,\n)",
            "everything": "from sluice_tools.sweep import *",
            "in a function": "def f():\n    from sluice_tools.sweep import cli",
            "in a method": "class A:\n    def f(self):\n        import sluice_tools.sweep",
            "in a try": "try:\n    import sluice_tools.sweep\nexcept ImportError:\n    pass",
            "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sluice_tools.sweep import cli",
            "for types, the module": "import typing\nif typing.TYPE_CHECKING:\n    import sluice_tools.sweep",
            "relative": "from ..sweep import cli",
            "relative, a module": "from ..sweep.cli import main",
            "relative, the package": "from .. import sweep",
            "by its name": "import importlib\nimportlib.import_module('sluice_tools.sweep.cli')",
            "as a program": "words = ['python', '-m', 'sluice_tools.sweep']",
            "by a part of its name": "name = f'sluice_tools.sweep.{1}'",
        }
        for what, text in forms.items():
            with self.subTest(what):
                self.write(f"{TOOLS}/common/__init__.py")
                self.write(f"{TOOLS}/sweep/__init__.py")
                self.write(f"{TOOLS}/sweep/cli.py")
                self.write(f"{TOOLS}/common/a.py", text + "\n")
                self.only_fault(f"{TOOLS}/common/a.py:", "imports sluice_tools.sweep", "sweep is above common")

    def test_the_line_of_an_import_is_named(self):
        self.write(f"{TOOLS}/common/a.py", "import sys\n\n\ndef f():\n    import sluice_tools.sweep\n")
        self.only_fault(f"{TOOLS}/common/a.py:5: ")

    def test_a_relative_import_begins_at_its_own_package(self):
        # In the __init__.py of a package, one dot is the package itself.
        self.write(f"{TOOLS}/common/__init__.py", "from . import errors\nfrom .errors import x\n")
        self.write(f"{TOOLS}/common/errors.py", "x = 1\n")
        self.write(f"{TOOLS}/bench/llm/__init__.py", "from ..common import talker\n")
        self.write(f"{TOOLS}/bench/common/talker.py", "from ...measure import rows\nfrom .. import coverage\n")
        self.write(f"{TOOLS}/bench/coverage.py")
        self.assertEqual(self.faults(), [])
        self.write(f"{TOOLS}/common/__init__.py", "from ..measure import rows\n")
        self.only_fault("imports sluice_tools.measure, but measure is above common")

    def test_a_package_without_a_floor_is_named(self):
        self.write(f"{TOOLS}/attic/__init__.py", "import sluice_tools.common\n")
        self.only_fault(f"{TOOLS}/attic/__init__.py: attic has no floor")

    def test_a_module_next_to_the_packages_has_no_floor(self):
        self.write(f"{TOOLS}/helpers.py")
        self.write("tools/python/loose.py")
        self.assertEqual(len(self.faults()), 2)
        self.assertTrue(any(fault.startswith(f"{TOOLS}/helpers.py: helpers has no floor") for fault in self.faults()))
        self.assertTrue(any(fault.startswith("tools/python/loose.py: loose has no floor") for fault in self.faults()))

    def test_an_import_of_a_package_without_a_floor_is_a_fault(self):
        self.write(f"{TOOLS}/predict_sharing/a.py", "import sluice_tools.attic.b\n")
        self.only_fault(f"{TOOLS}/predict_sharing/a.py:1: imports sluice_tools.attic.b, but attic has no floor")

    def test_the_package_of_users_programs_uses_none_of_the_tools(self):
        self.write("tools/python/sluice/asgi.py", "def f():\n    from sluice_tools.common import errors\n")
        self.only_fault("tools/python/sluice/asgi.py:2: imports sluice_tools.common", "common is above sluice")

    def test_the_examples_use_nothing_of_ours(self):
        self.write("tools/python/examples/serve.py", "import sluice\n")
        self.only_fault("tools/python/examples/serve.py:1: imports sluice, but sluice is on the same floor as examples")

    def test_the_top_package_imports_nothing(self):
        self.write(f"{TOOLS}/__init__.py", "from sluice_tools.common import errors\n")
        self.only_fault(f"{TOOLS}/__init__.py:1: ", "common is above sluice_tools")

    def test_a_circle_of_two_packages_is_a_fault(self):
        self.write(f"{TOOLS}/opbench/page.py", "from sluice_tools.predict import page\n")
        self.write(f"{TOOLS}/predict/page.py", "from sluice_tools.opbench import records\n")
        self.only_fault(f"{TOOLS}/predict/page.py:1: imports sluice_tools.opbench", "opbench is above predict")

    def test_a_circle_of_modules_is_found(self):
        self.write(f"{TOOLS}/bench/a.py", "from sluice_tools.bench import b\n")
        self.write(f"{TOOLS}/bench/b.py", "from .llm.c import d\n")
        self.write(f"{TOOLS}/bench/llm/c.py", "def f():\n    from sluice_tools.bench.a import x\n")
        bench = "sluice_tools.bench"
        self.only_fault(f"{bench}.a, {bench}.b, {bench}.llm.c are in a circle of imports")

    def test_a_package_that_imports_its_parts_is_in_a_circle_with_one_that_imports_it(self):
        self.write("tools/python/sluice/__init__.py", "from sluice._jobs import job\n")
        self.write("tools/python/sluice/_jobs.py", "import sluice\n")
        self.only_fault("sluice, sluice._jobs are in a circle")

    def test_a_program_that_starts_another_of_its_package_is_no_circle(self):
        self.write(f"{TOOLS}/bench/stage.py", "words = ['-m', 'sluice_tools.bench.server']\n")
        self.write(f"{TOOLS}/bench/server.py", "import sluice_tools.bench.stage\n")
        self.assertEqual(self.faults(), [])

    def test_a_text_that_mentions_a_module_is_no_import(self):
        self.write(
            f"{TOOLS}/common/a.py", '"""Used by sluice_tools.sweep and others."""\n# import sluice_tools.sweep\n'
        )
        self.assertEqual(self.faults(), [])

    def test_the_check_of_includes_runs_this_one(self):
        command = [sys.executable, Path(__file__).with_name("check_includes.py"), self.root]
        self.assertEqual(subprocess.run(command, check=False).returncode, 0)
        self.write(f"{TOOLS}/attic/a.py")
        found = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
        self.assertEqual(found.returncode, 1)
        self.assertIn("attic has no floor", found.stderr)

    def test_the_drawing_is_read_from_the_top_down(self):
        text = (
            "Text.\n 3  no bar\n```\n 2  a  b   │ for a and b\n 1  c_d    │ more\n 0  e      │\n```\n| 3 | no floor |\n"
        )
        self.assertEqual(check_imports.drawn_floors(text), [["a", "b"], ["c_d"], ["e"]])

    def test_a_drawing_that_is_no_order_ends_the_check(self):
        for what, text in {
            "none": "Text.\n",
            "not down to 0": " 2  a │\n 1  b │\n",
            "a gap": " 3  a │\n 1  b │\n 0  c │\n",
            "upside down": " 0  a │\n 1  b │\n",
            "a package twice": " 1  a  b │\n 0  b │\n",
            "a number twice": " 1  a │\n 1  b │\n 0  c │\n",
        }.items():
            with self.subTest(what), self.assertRaisesRegex(SystemExit, "architecture.md: the drawing"):
                check_imports.drawn_floors(text)

    def test_the_tree_has_a_module_of_each_package(self):
        there = {check_imports._package(module) for module in check_imports._modules(ROOT)}
        self.assertEqual(there - {"sluice_tools"}, {package for floor in FLOORS for package in floor})

    def test_the_laboratory_is_above_all_that_is_installed_without_it(self):
        commands = re.search(r"set\(SLUICE_LAB_COMMANDS ([\w ]+)\)", (ROOT / "cmake/SluiceLayout.cmake").read_text())
        assert commands
        lab = {*commands[1].split(), "predict_sharing"}  # as in tools/python/CMakeLists.txt
        top = list(itertools.takewhile(lab.issuperset, FLOORS))
        self.assertEqual({package for floor in top for package in floor}, lab)


if __name__ == "__main__":
    unittest.main()
