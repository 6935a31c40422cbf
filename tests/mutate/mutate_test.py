#!/usr/bin/env python3
"""The runner of `./x mutate` itself, on a small tree whose tests are shell commands.

Prevents: a runner that calls a fault killed because it never put it in, because the test fails anyway,
or because no test ran.
"""

import contextlib
import io
import subprocess
import tempfile
import unittest
from pathlib import Path

import mutate

_CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
enable_testing()
add_custom_target(all_of_it)
add_test(NAME positive COMMAND grep -q "x > 0" ${CMAKE_SOURCE_DIR}/code.txt)
"""


class Mutate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "tree"
        self.root.mkdir()
        (self.root / "CMakeLists.txt").write_text(_CMAKE)
        (self.root / "code.txt").write_text("if x > 0 and y > 1\n")
        (self.root / ".gitignore").write_text("/build/\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def run_with(self, **fault) -> tuple[int, str]:
        given = {"file": "code.txt", "what": "w", "ctest": "positive", "targets": ["all_of_it"]} | fault
        lines = [f"{key} = {value!r}" for key, value in given.items() if value is not None]
        (self.root / "small.toml").write_text("[[fault]]\n" + "\n".join(lines) + "\n")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = mutate.run(["small"], self.root, self.root)
        self.assertEqual((self.root / "code.txt").read_text(), "if x > 0 and y > 1\n")
        return code, said.getvalue()

    def test_a_fault_that_the_test_notices_is_killed(self):
        code, said = self.run_with(old="x > 0", new="x >= 0")
        self.assertEqual(code, 0, said)
        self.assertIn("1 of 1 killed", said)

    def test_a_fault_that_it_does_not_notice_survives(self):
        code, said = self.run_with(old="y > 1", new="y > 2")
        self.assertEqual(code, 1)
        self.assertIn("SURVIVED", said)

    def test_a_fault_that_does_not_apply_is_no_success(self):
        for old, new in (("z", "q"), (">", "<"), ("x > 0", "x > 0")):
            code, said = self.run_with(old=old, new=new)
            self.assertEqual(code, 1)
            self.assertIn("DOES NOT APPLY", said)

    def test_a_test_that_fails_anyway_proves_nothing(self):
        (self.root / "CMakeLists.txt").write_text(_CMAKE.replace("x > 0", "never"))
        code, said = self.run_with(old="x > 0", new="x >= 0")
        self.assertEqual(code, 1)
        self.assertIn("fail without a fault: positive", said)

    def test_an_expression_that_names_no_test_proves_nothing(self):
        code, said = self.run_with(old="x > 0", new="x >= 0", ctest="nobody")
        self.assertEqual(code, 1)
        self.assertIn("fail without a fault: nobody", said)

    def test_a_fault_without_a_test_is_refused(self):
        with self.assertRaises(mutate.UsageError):
            self.run_with(old="x", new="y", ctest=None)
        with self.assertRaises(mutate.UsageError):
            self.run_with(old="x", new="y", speed="fast")

    def test_the_lists_of_the_tree_can_be_read(self):
        for file in mutate.HERE.glob("*.toml"):
            for fault in mutate.read_faults(file.stem):
                text = (mutate.ROOT / fault.file).read_text()
                self.assertEqual(text.count(fault.old), 1, f"{fault.file}: {fault.what}")


if __name__ == "__main__":
    unittest.main()
