#!/usr/bin/env python3
"""The link check itself: it must notice each kind of broken link, in trees made for it.

Prevents: a check that passes because it finds no links, or takes code for links.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_links


class CheckLinks(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)
        self.write("docs/README.md", "# Pages\n[guide](guide/a.md)\n")
        self.write("docs/guide/a.md", "# A page\n\n## Two *words*, `code` and 1 number\n")

    def write(self, name: str, text: str = ""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, *parts: str):
        """Exactly one fault, which contains these parts."""
        found = check_links.faults(self.root)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_sound_tree_has_no_fault(self):
        self.write(
            "README.md",
            "[a](docs/guide/a.md#two-words-code-and-1-number) [docs](docs)\n"
            "[x](https://example.org/none) [m](mailto:a@example.org)\n"
            "![p](docs/p.png) [top](#heading)\n\n# Heading\n",
        )
        self.write("docs/p.png")
        self.assertEqual(check_links.faults(self.root), [])

    def test_a_link_to_no_file_is_a_fault_with_its_line(self):
        self.write("README.md", "one\n[two](docs/none.md)\n")
        self.expect("README.md:2", "docs/none.md", "no such file")

    def test_a_link_after_another_one_of_the_line_is_seen(self):
        self.write("README.md", "[a](docs/guide/a.md), [b](docs/none.md)\n")
        self.expect("docs/none.md")

    def test_a_definition_to_no_file_is_a_fault(self):
        self.write("README.md", "[a][b]\n\n[b]: docs/none.md\n")
        self.expect("README.md:3", "docs/none.md")

    def test_html_is_read(self):
        self.write("README.md", '<a href="docs/none.md">a</a>\n')
        self.expect("docs/none.md")

    def test_a_link_to_no_heading_is_a_fault(self):
        self.write("README.md", "[a](docs/guide/a.md#three-words)\n")
        self.expect("#three-words", "no heading")

    def test_a_link_to_no_heading_of_its_own_page_is_a_fault(self):
        self.write("README.md", "[a](#none)\n")
        self.expect("#none", "no heading")

    def test_a_heading_inside_code_is_none(self):
        self.write("README.md", "[a](#comment)\n```\n# comment\n```\n")
        self.expect("#comment")

    def test_equal_headings_are_numbered(self):
        self.write("README.md", "[a](#twice-1) [b](#twice-2)\n# Twice\n# Twice\n")
        self.expect("#twice-2")

    def test_a_missing_image_is_a_fault(self):
        self.write("docs/README.md", "[guide](guide/a.md) ![p](images/none.png)\n")
        self.expect("images/none.png", "no such image")

    def test_a_page_that_nobody_links_is_a_fault(self):
        self.write("docs/guide/b.md", "[back](a.md)\n")
        self.expect("docs/guide/b.md", "cannot be reached")

    def test_a_page_is_reached_through_others(self):
        self.write("docs/guide/a.md", "[b](b.md)\n")
        self.write("docs/guide/b.md")
        self.assertEqual(check_links.faults(self.root), [])

    def test_a_link_in_code_is_none(self):
        self.write("README.md", "`[a](none.md)` and ``[`b`](none.md)``\n```\n[c](none.md)\n```\n")
        self.assertEqual(check_links.faults(self.root), [])

    def test_a_link_out_of_the_tree_is_a_fault(self):
        self.write("README.md", "[a](../elsewhere.md)\n")
        self.expect("out of the tree")

    def test_results_of_runs_are_not_read_but_docs_results_is(self):
        self.write("results/pairs.md", "[a](none.md)\n")
        self.write("build/a.md", "[a](none.md)\n")
        self.assertEqual(check_links.faults(self.root), [])
        self.write("docs/README.md", "[guide](guide/a.md) [r](results/r.md)\n")
        self.write("docs/results/r.md", "[a](none.md)\n")
        self.expect("docs/results/r.md:1")

    def test_a_page_that_code_names_and_that_is_gone_is_a_fault(self):
        self.write("tools/main.cpp", '"see docs/guide/a.md and\\n"\n"docs/none.md.\\n"\n')
        self.assertEqual(check_links.mention_faults(self.root), ["tools/main.cpp:2: docs/none.md: no such page"])

    def test_a_place_in_code_is_where_the_page_says(self):
        self.write(
            "shm/gates.cpp",
            "// also void gone(int);\nvoid begin_job(int self) {\n  board.other(self);\n  third(self);\n}\n",
        )
        self.write("README.md", "`shm/gates.cpp:begin_job`\n")
        self.assertEqual(check_links.faults(self.root), [])
        for name in ("other", "third", "gone", "begin"):  # called, called, in a comment, a part of a name
            self.write("README.md", f"one\n`shm/gates.cpp:{name}`\n")
            self.expect("README.md:2", "shm/gates.cpp", f"does not declare {name}")
        self.write("README.md", "`shm/gate.cpp:begin_job`\n")
        self.expect("README.md:1", "shm/gate.cpp", "no such file")

    def test_declarations_of_every_form_are_known(self):
        code = (
            "struct alignas(64) Slot {};\nstruct Later;\nclass Pacer {\n  explicit Pacer(int n);\n"
            "  [[nodiscard]] bool open() const;\n"
            "  const View* view(int slot);\n};\nPacer::~Pacer() {}\nstd::vector<int> Pacer::all(\n    int n) {\n"
            "  return made(n);\n  else_if = used(n);\n}\n"
        )
        for name in ("Slot", "Pacer", "Pacer::open", "view", "~Pacer", "Pacer::all"):
            self.assertTrue(check_links.declares(code, ".hpp", name), name)
        for name in ("made", "used", "Later"):
            self.assertFalse(check_links.declares(code, ".hpp", name), name)
        self.assertTrue(check_links.declares("class A:\n    async def run(self):\n", ".py", "run"))
        self.assertFalse(check_links.declares("# def run\nrun()\n", ".py", "run"))

    def test_a_step_without_a_place_is_a_fault(self):
        self.write("docs/guide/a.md", "| 1 | a row of another page |\n")
        self.write("docs/README.md", "[guide](guide/a.md) [b](guide/architecture.md)\n")
        self.write("docs/guide/architecture.md", "| 1 | The hook counts the launch. |\n")
        self.expect("docs/guide/architecture.md:1", "without a place")

    def test_exit_codes(self):
        def run(*arguments):
            return subprocess.run([sys.executable, check_links.__file__, *arguments], capture_output=True).returncode

        self.assertEqual(run(self.root), 0)
        self.assertEqual(run(self.root / "docs"), 2)
        self.write("tools/a.py", "# docs/none.md\n")
        self.assertEqual(run(self.root), 0)
        self.assertEqual(run("--mentions", self.root), 1)
        self.write("README.md", "[a](none.md)\n")
        self.assertEqual(run(self.root), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])  # a root, which the checks themselves take, is no name of a test
