#!/usr/bin/env python3
"""The size check itself: it must notice each kind of fault, in checkouts made for it.

Prevents: a check that passes because it counts nothing, or only what is committed.
"""

import subprocess
import tempfile
import unittest
from pathlib import Path

import check_size

PROGRAM = Path(check_size.__file__)


class CheckSize(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)
        self.git("init", "-q")
        for name in check_size.LARGE:
            self.write(name, check_size.MOST_OF_A_FILE + 1)

    def git(self, *arguments: str):
        subprocess.run(["git", "-C", self.root, *arguments], check=True)

    def write(self, name: str, size: int, track: bool = True):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
        if track:
            self.git("add", "-N", "--", name)

    def check(self) -> tuple[int, str]:
        done = subprocess.run(["python3", PROGRAM, self.root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_a_small_tree_has_no_fault(self):
        self.write("a.txt", check_size.MOST_OF_A_FILE)
        self.assertEqual(self.check()[0], 0)

    def test_a_large_file_is_named(self):
        self.write("docs/data/b c.csv", check_size.MOST_OF_A_FILE + 1)
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn(f"docs/data/b c.csv has {check_size.MOST_OF_A_FILE + 1} bytes", said)

    def test_many_small_files_are_too_much_together(self):
        count = -(-check_size.MOST // check_size.MOST_OF_A_FILE)
        for number in range(count):
            self.write(f"{number}.bin", check_size.MOST_OF_A_FILE)
        code, said = self.check()
        self.assertEqual(code, 1)
        self.assertIn(f"more than {check_size.MOST}; the largest are ", said)

    def test_files_that_are_not_tracked_do_not_count(self):
        self.write("build/large", 2 * check_size.MOST, track=False)
        self.assertEqual(self.check()[0], 0)

    def test_a_name_of_the_list_that_is_not_large_any_more_is_said(self):
        for name in check_size.LARGE:
            self.write(name, check_size.MOST_OF_A_FILE)
            code, said = self.check()
            self.assertEqual(code, 1)
            self.assertIn(f"{name} is named in tests/layout/check_size.py, and is not larger", said)

    def test_the_limit_is_for_the_whole_tree(self):
        most = {f"{number}": check_size.MOST // 20 for number in range(20)}
        self.assertEqual(check_size.faults(most, {}), [])
        self.assertEqual(len(check_size.faults(most | {"one": 1}, {})), 1)

    def test_what_is_no_checkout_is_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["python3", PROGRAM, folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 77)

    def test_every_name_of_the_list_has_a_reason(self):
        for name, reason in check_size.LARGE.items():
            self.assertGreater(len(reason.split()), 4, name)


if __name__ == "__main__":
    unittest.main()
