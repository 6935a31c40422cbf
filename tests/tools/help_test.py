#!/usr/bin/env python3
"""Prevents: a --help with bytes that no terminal shows, with lines or words that a terminal of 80 columns breaks, and
without examples or exit codes. usage: help_test.py BUILD [ARGS of unittest]"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

SLUICE = Path(sys.argv.pop(1)) / "bin" / "sluice"
COLUMNS = 80
# What CLI11 prints of a type or a check that nobody has described.
_RAW = re.compile(r"\bENUM\b|value in \{|\bTEXT:|\b(?:U?INT|FLOAT)\b|\[[\d.e+]+ - ")


def help_of(*words: str, columns: int | None = None) -> str:
    about = {name: value for name, value in os.environ.items() if name != "COLUMNS" and not name.startswith("SLUICE_")}
    if columns:
        about["COLUMNS"] = str(columns)
    done = subprocess.run([SLUICE, *words, "--help"], capture_output=True, text=True, env=about)
    if done.returncode or done.stderr:
        raise AssertionError(f"{words}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def commands() -> list[str]:
    return re.findall(r"^  ([a-z][a-z_-]+)  ", help_of(columns=1000).split("\nExamples:")[0], re.MULTILINE)


def actions(text: str) -> list[str]:
    """The commands of a command, which `text` lists: CLI11's, argparse's, and those of bench and predict."""
    listed = re.search(r"^(?:Subcommands:|  COMMAND)\n((?:  .*\n)+)", text, re.MULTILINE)
    if listed:
        return re.findall(r"^ {2,4}([a-z_-]+)  ", listed[1], re.MULTILINE)
    named = re.search(r"^  ([a-z]+(?:\|[a-z]+)+)$", text, re.MULTILINE)
    if named:
        return named[1].split("|")
    return re.findall(r"^  ([a-z_]+)  ", text.split("Positionals:")[0], re.MULTILINE)


class Help(unittest.TestCase):
    narrow: dict[str, str]
    wide: dict[str, str]

    @classmethod
    def setUpClass(cls):
        cls.commands = commands()
        cls.wide = {name: help_of(name, columns=1000) for name in cls.commands}
        cls.actions = [f"{name} {action}" for name in cls.commands for action in actions(cls.wide[name])]
        cls.wide |= {name: help_of(*name.split(), columns=1000) for name in cls.actions} | {"": help_of(columns=1000)}
        cls.narrow = {name: help_of(*name.split()) for name in cls.wide}

    def test_it_looks_at_all_of_them(self):
        self.assertGreater(len(self.commands), 24)
        expected = {"opbench measure", "predict train", "bench programs", "models export", "records stat"}
        self.assertLessEqual(expected, set(self.actions))

    def test_a_terminal_shows_every_character(self):
        for name, text in self.wide.items():
            self.assertTrue(text.replace("\n", "").isprintable(), f"{name}: {text!r}")

    def test_no_line_is_longer_than_a_terminal(self):
        for name, text in self.narrow.items():
            for line in text.splitlines():
                self.assertLessEqual(len(line), COLUMNS, f"{name}: {line}")

    def test_no_word_is_broken_or_lost(self):
        for name, text in self.narrow.items():
            self.assertEqual(text.split(), self.wide[name].split(), name)

    def test_types_are_in_words(self):
        for name, text in self.wide.items():
            self.assertNotRegex(text, _RAW, name)

    def test_a_command_has_examples_and_exit_codes(self):
        for name in ("", *self.commands):
            text = self.narrow[name]
            self.assertRegex(text, r"(?i)\bexamples?:", name)
            self.assertRegex(text, r"(?i)\bexit codes?\b", name)
            self.assertTrue([line for line in text.splitlines() if re.match(rf"  .*sluice {name}\b", line)], name)


if __name__ == "__main__":
    unittest.main()
