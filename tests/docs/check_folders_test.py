#!/usr/bin/env python3
"""The check of the folder tables itself: it must notice a file that no row names, and a row without a file.

Prevents: a check that passes because it reads no table.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_folders


class CheckFolders(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)
        self.table("| `one.*`, `other.hpp` | `prose.cpp` |", "| `deep/` | all below it |")
        for name in ("one.cpp", "one.hpp", "other.hpp", "deep/a.cpp", "CMakeLists.txt"):
            self.write("part/" + name)

    def write(self, name: str, text: str = ""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def table(self, *rows: str):
        self.write("part/README.md", "\n".join(["# part/", "", "| file | subject |", "| --- | --- |", *rows, ""]))

    def test_a_sound_folder_has_no_fault(self):
        self.assertEqual(check_folders.faults(self.root), [])

    def test_a_file_that_no_row_names_is_a_fault(self):
        self.write("part/two.cpp")
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: no row names two.cpp"])

    def test_only_the_first_column_names_files(self):
        self.write("part/prose.cpp")
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: no row names prose.cpp"])

    def test_a_header_does_not_name_its_source(self):
        self.write("part/other.cpp")
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: no row names other.cpp"])

    def test_a_file_of_the_name_of_a_folder_is_not_named_by_the_folder(self):
        self.write("part/far/deep")
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: no row names far/deep"])

    def test_a_row_without_a_file_is_a_fault(self):
        (self.root / "part/other.hpp").unlink()
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: other.hpp does not exist"])

    def test_a_row_may_name_a_folder_elsewhere(self):
        self.table("| `one.*`, `other.hpp`, `../far/` | |", "| `deep/` | |")
        self.assertEqual(check_folders.faults(self.root), ["part/README.md: ../far/ does not exist"])
        self.write("far/x.cpp")
        self.assertEqual(check_folders.faults(self.root), [])

    def test_a_readme_further_down_answers_for_its_files(self):
        self.write("part/sub/README.md", "| file | subject |\n| --- | --- |\n| `x.py` | |\n")
        self.write("part/sub/x.py")
        self.write("part/sub/y.py")
        self.assertEqual(check_folders.faults(self.root), ["part/sub/README.md: no row names y.py"])

    def test_a_readme_without_a_table_names_nothing(self):
        self.write("loose/README.md", "# loose/\n")
        self.write("loose/x.py")
        self.assertEqual(check_folders.faults(self.root), [])

    def test_exit_codes(self):
        program = [sys.executable, check_folders.__file__]
        self.assertEqual(subprocess.run([*program, self.root], check=False).returncode, 0)
        self.write("part/two.cpp")
        found = subprocess.run([*program, self.root], check=False, stdout=subprocess.PIPE, text=True)
        self.assertEqual((found.returncode, found.stdout), (1, "part/README.md: no row names two.cpp\n"))
        self.assertEqual(subprocess.run([*program, "a", "b"], check=False, stderr=subprocess.DEVNULL).returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])  # a root, which the checks themselves take, is no name of a test
