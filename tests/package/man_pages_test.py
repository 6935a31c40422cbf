#!/usr/bin/env python3
"""Prevents: a command without a man page, an option or an example that is lost between --help and the page, and pages
that differ from one build to the next. usage: man_pages_test.py BUILD [ARGS of unittest]"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "man"))

import man_pages  # noqa: E402

BUILD = Path(sys.argv.pop(1)) if len(sys.argv) > 1 else ROOT / "build"
SLUICE = str(BUILD / "bin" / "sluice")


def write(folder: str, epoch: str = "1700000000") -> dict[str, str]:
    command = [sys.executable, str(ROOT / "tools/man/man_pages.py"), SLUICE, folder, "1.2.3"]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    return {path.name: gzip.decompress(path.read_bytes()).decode() for path in Path(folder).iterdir()}


def plain(text: str) -> str:
    """The text of a page without roff's escapes."""
    return re.sub(r"\\f[BR]|\\&", "", text).replace("\\-", "-").replace("\\e", "\\")


class ManPages(unittest.TestCase):
    folder: tempfile.TemporaryDirectory

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.pages = write(cls.folder.name)
        cls.commands = man_pages.commands(man_pages.help_of(SLUICE))
        cls.help = {name: man_pages.help_of(SLUICE, name) for name in cls.commands}

    def test_every_command_has_a_page(self):
        self.assertGreater(len(self.commands), 20)
        expected = {"sluice.1.gz", *(f"sluice-{name}.1.gz" for name in self.commands)}
        self.assertEqual(set(self.pages), expected)
        for name, summary in self.commands.items():
            page = plain(self.pages[f"sluice-{name}.1.gz"])
            self.assertIn(f".SH NAME\nsluice-{name} - {summary}\n.SH SYNOPSIS\n", page)
            self.assertIn(f"sluice-{name}", plain(self.pages["sluice.1.gz"]))

    def test_nothing_of_a_help_text_is_lost(self):
        for name in self.commands:
            page = plain(self.pages[f"sluice-{name}.1.gz"])
            said = " ".join(word for word in page.split() if word not in (".TP", ".PP", ".nf", ".fi")).upper()
            for line in self.help[name].splitlines():
                for part in re.split(r" {2,}", line.strip()):
                    part = re.sub(r"^usage: ?", "", part, flags=re.IGNORECASE).removesuffix(":")
                    self.assertIn(part.upper(), said, name)

    def test_every_option_is_an_entry(self):
        for name in self.commands:
            page = plain(self.pages[f"sluice-{name}.1.gz"])
            for option in re.findall(r"^ {2,4}(-.*?)(?: {2,}|$)", self.help[name], re.MULTILINE):
                self.assertIn(f".TP\n{option}\n", page, name)

    def test_examples_can_be_copied(self):
        page = self.pages["sluice-exec.1.gz"]
        examples = re.search(r'\.SH "EXAMPLES"\n\.nf\n(.*?)\.fi', page, re.DOTALL)
        self.assertTrue(examples)
        lines = [line.strip() for line in self.help["exec"].splitlines()]
        for line in plain(examples[1]).splitlines():
            self.assertIn(line.strip(), lines)

    def test_the_same_bytes_at_any_time(self):
        def read():
            return {path.name: path.read_bytes() for path in Path(self.folder.name).iterdir()}

        before = read()
        write(self.folder.name)
        self.assertEqual(read(), before)
        self.assertIn("2023-11-14", before and plain(self.pages["sluice.1.gz"]))

    def test_a_page_of_an_old_command_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sluice-gone.1.gz").touch()
            self.assertNotIn("sluice-gone.1.gz", write(folder))

    def test_roff_does_not_take_text_for_requests(self):
        text = "About.\nUsage: sluice x\n\nOptions:\n  --path D   where\n                 .so is\n\nA \\n stays.\n"
        _, body = man_pages.body(text)
        self.assertIn("\\&.so is", body)
        self.assertIn("A \\en stays.", body)

    def test_a_command_without_help_ends_it(self):
        with self.assertRaisesRegex(SystemExit, "nonsense --help: exit code 2: sluice: unknown command"):
            man_pages.help_of(SLUICE, "nonsense")

    @unittest.skipUnless(shutil.which("man") and shutil.which("groff"), "no man and groff here (man-db, groff-base)")
    def test_roff_has_no_complaint(self):
        for name in self.pages:
            command = ["man", "--warnings", "--troff-device=utf8", "-Z", "-l", str(Path(self.folder.name) / name)]
            done = subprocess.run(
                command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "120"}
            )
            self.assertEqual(done.stderr, "", name)


if __name__ == "__main__":
    unittest.main()
