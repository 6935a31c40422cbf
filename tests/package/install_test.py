#!/usr/bin/env python3
"""Prevents: an install with debug information in its programs, a program whose debug information gdb does not find, and
a part that users need in the package of the laboratory. usage: install_test.py BUILD [ARGS of unittest]"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv.pop(1))
MIB = 1 << 20
# Together 45 MiB, with LibTorch. The laboratory has a trained predictor of 2 MiB.
# The programs bring their C++ runtime: 0.7 MB each.
MOST = {"sluice": 40 * MIB, "lab": 18 * MIB, "dev": MIB}


def install(component: str, prefix: Path) -> Path:
    command = ["cmake", "--install", str(BUILD), "--component", component, "--prefix", str(prefix)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return prefix


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def programs(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.suffix != ".debug" and path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    ]


def run(*command: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)


def imported(file: Path) -> set[str]:
    """The subpackages of sluice_tools that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("sluice_tools.")}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.parts = {name: install(name, cls.folder / name) for name in MOST}
        cls.sluice = cls.parts["sluice"] / "bin" / "sluice"

    def test_no_part_is_larger_than_its_code(self):
        for name, most in MOST.items():
            self.assertGreater(size(self.parts[name]), 0, name)
            self.assertLess(size(self.parts[name]), most, name)

    def test_programs_are_stripped(self):
        found = programs(self.parts["sluice"]) + programs(self.parts["lab"])
        self.assertGreater(len(found), 15)
        for path in found:
            sections = run("readelf", "-WS", path).stdout
            self.assertIn(".dynsym", sections)
            self.assertNotRegex(sections, r"\.(debug_info|symtab)", path.name)

    def test_a_file_has_one_component(self):
        files = {
            name: {str(path.relative_to(part)) for path in part.rglob("*") if not path.is_dir()}
            for name, part in self.parts.items()
        }
        self.assertEqual(files["sluice"] & files["lab"], set())
        self.assertIn("libexec/sluice/sluice-sweep", files["lab"])
        self.assertIn("share/sluice/python/sluice_tools/bench/programs/cli.py", files["lab"])
        self.assertIn("share/sluice/python/sluice_tools/measure/programs.py", files["sluice"])
        self.assertEqual(files["dev"], {"include/sluice/sluice.h"})

    def test_what_users_run_imports_nothing_of_the_laboratory(self):
        tools = self.parts["sluice"] / "share/sluice/python/sluice_tools"
        modules = list(tools.rglob("*.py"))
        self.assertGreater(len(modules), 60)
        for module in modules:
            for name in imported(module):
                found = (tools / name).is_dir() or (tools / f"{name}.py").exists()
                self.assertTrue(found, f"{module.relative_to(tools)} imports {name}")

    def test_without_the_laboratory_one_line_names_it(self):
        help_text = run(self.sluice, "--help").stdout
        self.assertIn("\nNot installed, of the package sluice-lab: sweep bench opbench predict programs\n", help_text)
        for command in ("bench", "sweep", "opbench", "predict", "programs"):
            done = run(self.sluice, command)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(
                done.stderr,
                rf"^sluice: `sluice {command}` is in the package sluice-lab, which is not installed: apt install "
                r"\./sluice-lab_[0-9.]*_amd64\.deb, or \./x build in a checkout\n$",
            )
        for command in ("exec", "status", "top", "set", "compare", "run", "report", "doctor"):
            self.assertEqual(run(self.sluice, command, "--help").returncode, 0, command)

    def test_with_the_laboratory_its_commands_run(self):
        both = self.folder / "both"
        for name in ("sluice", "lab"):
            shutil.copytree(self.parts[name], both, dirs_exist_ok=True)
        sluice = both / "bin" / "sluice"
        self.assertNotIn("sluice-lab", run(sluice, "--help").stdout)
        for command in ("bench", "sweep"):
            done = run(sluice, command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    def test_a_command_that_was_not_built_says_what_was_missing(self):
        partly = shutil.copytree(self.parts["sluice"], self.folder / "partly")
        shutil.copytree(self.parts["lab"], partly, dirs_exist_ok=True)
        for command, library in (("serve", "gRPC"), ("opbench", "liblzma")):
            (partly / "libexec/sluice" / f"sluice-{command}").unlink()
            done = run(partly / "bin" / "sluice", command)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf"^sluice: `sluice {command}` was not built: no {library} .*: \./x build\n$")

    def test_gdb_finds_the_debug_files(self):
        prefix = shutil.copytree(self.parts["sluice"], self.folder / "with_debug")
        install("debug", prefix)
        self.assertFalse(
            (prefix / "libexec/sluice/.debug/sluice-opbench.debug").exists(), "the laboratory is not there"
        )
        for path in programs(prefix):
            debug = path.parent / ".debug" / f"{path.name}.debug"
            self.assertIn(".debug_info", run("readelf", "-WS", debug).stdout, path.name)
            self.assertIn(debug.name.encode(), path.read_bytes())
        self.assertEqual(run(prefix / "bin" / "sluice", "--version").returncode, 0)
        self.assertTrue(os.access(prefix / "bin" / "sluice", os.X_OK))
        if not shutil.which("gdb"):
            self.skipTest("no gdb here (apt-get install gdb): it was not asked")
        said = run("gdb", "-nx", "-batch", "-ex", "info line main", prefix / "bin" / "sluice")
        self.assertRegex(said.stdout, 'Line [0-9]+ of ".*" starts at address', said.stderr)


if __name__ == "__main__":
    unittest.main()
