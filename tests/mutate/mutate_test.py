#!/usr/bin/env python3
"""The runner of `./x mutate`, on a small C++ tree of its own.

Prevents: a fault counts as noticed because it was never put in, because the test fails anyway, or because no test ran;
faults are put where the compiler or nobody looks; a kept fault goes stale without a word.
"""

import argparse
import contextlib
import io
import itertools
import json
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import mutate
from copy_of_tree import Copy, InUseError
from cover import Cover
from kept import Functions, Kept, StaleError, read_kept
from kinds import faults_of

_TREE = {
    ".gitignore": "/build/\n",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
enable_testing()
include_directories(${PROJECT_SOURCE_DIR})
add_subdirectory(part)
add_subdirectory(tests/part)
""",
    "part/CMakeLists.txt": "add_library(part STATIC part.cpp)\nadd_executable(prints prints.cpp)\n",
    "part/part.hpp": "int first(int x);\nint second(int x);\ninline bool third(int x) { return x > 7; }\n",
    "part/part.cpp": """\
#include "part/part.hpp"
int first(int x) {
  if (x > 3) return 0;
  return x + 2;
}
int second(int x) { return x + 2; }
""",
    "part/prints.cpp": "int main() { return 0; }\n",
    "part/loose.cpp": "int loose() { return 5; }\n",
    "tests/part/CMakeLists.txt": """\
add_executable(part_test part_test.cpp)
target_link_libraries(part_test part)
add_test(NAME part.first COMMAND part_test)
add_test(NAME part.prints COMMAND ${CMAKE_COMMAND} -E true)
""",
    "tests/part/part_test.cpp": """\
#include "part/part.hpp"
int main() { return first(3) == 5 && first(4) == 0 && third(8) && !third(7) ? 0 : 1; }
""",
    "part/tool.py": "def answer():\n    return 41 + 1\n",
    "tests/test_tool.py": "from part.tool import answer\n",
    "tests/test_other.py": "import json\n",
}


def kinds_of(code: str, file: str = "a.cpp") -> set[tuple[str, str]]:
    """Each kind with what the line becomes, of code in one line."""
    text = code.encode()
    return {(fault.kind, fault.put_in(text).decode()) for fault in faults_of(file, text)}


class Kinds(unittest.TestCase):
    def test_each_kind_changes_what_it_says(self):
        self.assertEqual(
            kinds_of("bool f(int a, int b) { if (a < b && b) return g(); h(); a = b; return true; }"),
            {
                (kind, f"bool f(int a, int b) {{ {body} }}")
                for kind, body in (
                    ("negate", "if (!(a < b && b)) return g(); h(); a = b; return true;"),
                    ("compare", "if (a <= b && b) return g(); h(); a = b; return true;"),
                    ("logic", "if (((a < b) || (b))) return g(); h(); a = b; return true;"),
                    ("return", "if (a < b && b) return {}; h(); a = b; return true;"),
                    ("guard", "if (a < b && b) {} h(); a = b; return true;"),
                    ("call", "if (a < b && b) return g(); {} a = b; return true;"),
                    ("assignment", "if (a < b && b) return g(); h(); {} return true;"),
                    ("constant", "if (a < b && b) return g(); h(); a = b; return false;"),
                )
            },
        )
        self.assertEqual(
            kinds_of("if a == 1 or b: x(c - 2)\n", "a.py"),
            {
                ("negate", "if (not (a == 1 or b)): x(c - 2)\n"),
                ("compare", "if a != 1 or b: x(c - 2)\n"),
                ("logic", "if ((a == 1) and (b)): x(c - 2)\n"),
                ("constant", "if a == 0 or b: x(c - 2)\n"),
                ("constant", "if a == 1 or b: x(c - (2 * 2))\n"),
                ("arithmetic", "if a == 1 or b: x(c + 2)\n"),
                ("call", "if a == 1 or b: pass\n"),
            },
        )

    def test_comments_types_and_what_only_the_compiler_reads_stay(self):
        for code in (
            "// if (a < 3)",
            '#include "a/3.hpp"',
            "std::array<int, 4> a;",
            "static_assert(sizeof(int) == 4);",
            "void f() { a.reserve(n); spdlog::debug(n); }",
            "struct S { S(); virtual void f() = 0; };",
            'const char* s = "1 < 2";',
        ):
            self.assertEqual(kinds_of(code), set(), code)


class Interval(unittest.TestCase):
    def test_it_is_wilsons(self):
        # R: prop.test(48, 64, correct = FALSE) and prop.test(10, 10, correct = FALSE)
        for counts, expected in (((48, 64), (0.6318, 0.8395)), ((10, 10), (0.7225, 1.0))):
            for found, bound in zip(mutate.interval(*counts), expected):
                self.assertAlmostEqual(found, bound, 3)


class SmallTree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "tree"
        for name, text in _TREE.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def options(self, **given) -> argparse.Namespace:
        defaults = {"names": ["part"], "seed": "1", "places": 3, "own": False, "bare": True, "place": [], "program": []}
        return argparse.Namespace(**defaults | given)

    def run_places(self, *places: str) -> tuple[int, dict]:
        with contextlib.redirect_stdout(io.StringIO()):
            code = mutate.run_places(self.options(place=list(places)), self.root)
        report = json.loads((self.root / "build" / "mutate" / "report.json").read_text())
        for name, text in _TREE.items():
            self.assertEqual((self.root / name).read_text(), text)
        return code, report["parts"]["places"]

    def test_what_a_test_notices_and_what_it_does_not(self):
        code, result = self.run_places(
            "part/part.cpp:3:compare", "part/part.cpp:6:arithmetic", "part/part.hpp:3:compare"
        )
        self.assertEqual(code, 1)
        self.assertEqual((result["noticed"], result["of"], result["own"]), (2, 3, 2))
        noticed, survivor, header = result["places"]
        self.assertEqual((noticed["result"], noticed["by"]), ("noticed", "part.first"))
        self.assertEqual((survivor["result"], survivor["becomes"]), ("SURVIVED", "int second(int x) { return x - 2; }"))
        self.assertEqual(header["result"], "noticed")

    def test_a_fault_that_does_not_build_is_not_counted(self):
        file = self.root / "part/part.cpp"
        file.write_text(_TREE["part/part.cpp"] + "struct S { int& r; };\nS third(S s) { return s; }\n")
        with contextlib.redirect_stdout(io.StringIO()):
            mutate.run_places(self.options(place=["part/part.cpp:8:return"]), self.root)
        result = json.loads((self.root / "build/mutate/report.json").read_text())["parts"]["places"]
        self.assertEqual((result["of"], result["did_not_build"]), (0, 1))

    def test_a_target_that_does_not_build_anyway_is_an_error(self):
        (self.root / "tests/part/part_test.cpp").write_text("#error not yet\n")
        with self.assertRaisesRegex(mutate.UsageError, "without a fault, not all of part_test can be built"):
            self.run_places("part/part.cpp:3:compare")

    def test_a_test_that_fails_anyway_proves_nothing(self):
        with (self.root / "tests/part/CMakeLists.txt").open("a") as file:
            file.write("add_test(NAME part.broken COMMAND ${CMAKE_COMMAND} -E false)\n")
        with contextlib.redirect_stdout(io.StringIO()) as said:
            mutate.run_places(self.options(place=["part/part.cpp:6:arithmetic"]), self.root)
        self.assertIn("noticed 0 of 1", said.getvalue())
        self.assertIn("fail without a fault or by chance: part.broken", said.getvalue())

    def test_a_draw_counts_its_places_and_leaves_out_what_is_not_compiled(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            mutate.run_draw(self.options(), self.root)
        result = json.loads((self.root / "build/mutate/report.json").read_text())["parts"]["part"]
        self.assertEqual(result["of"], 3, said.getvalue())
        self.assertFalse([place for place in result["places"] if place["place"].startswith("part/loose.cpp")])

    def test_an_interrupted_draw_reports_what_it_has(self):
        with (
            mock.patch.object(mutate.Trial, "of", side_effect=KeyboardInterrupt),
            contextlib.redirect_stdout(io.StringIO()) as said,
        ):
            mutate.run_draw(self.options(), self.root)
        self.assertIn("part: noticed 0 of 0", said.getvalue())

    def test_a_seed_gives_the_same_draw_again_and_another_seed_another(self):
        files = sorted(_TREE)
        draws = [list(mutate.draw("part", files, self.root, seed)) for seed in ("1", "1", "2")]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])
        lines = [(fault.file, fault.line) for fault in draws[0]]
        self.assertEqual(len(lines), len(set(lines)))

    def test_a_place_that_is_not_there_is_refused(self):
        for place in ("part/part.cpp:1:compare", "part/none.cpp:1:compare", "nonsense"):
            with self.assertRaises(mutate.UsageError):
                self.run_places(place)

    def test_two_runs_do_not_share_a_copy(self):
        first = Copy(self.root, self.root / "build" / "mutate")
        with self.assertRaises(InUseError):
            Copy(self.root, self.root / "build" / "mutate")
        del first

    def test_which_tests_cover_a_file(self):
        copy = Copy(self.root, self.root / "build" / "mutate", bare=True)
        cover = Cover(copy, copy.refresh())
        self.assertTrue(copy.configure())
        for file in ("part/part.cpp", "part/part.hpp"):
            first, *rest = cover.batches(file)
            self.assertEqual((first.own, first.targets), (True, ("part_test",)))
            self.assertEqual([batch.scripts for batch in rest], [("part.prints",)])
        (scripts,) = cover.batches("part/prints.cpp")
        self.assertEqual((scripts.targets, scripts.scripts), (("prints",), ("part.prints",)))
        (python,) = cover.batches("part/tool.py")
        self.assertEqual(python.pytest, ("tests/test_tool.py",))


class KeptFaults(unittest.TestCase):
    CODE = """\
struct S {
  int f() {
    return a <
      b;
  }
};
int S::g() { return a < b + a; }
int f() { return 2; }
"""

    def locate(self, **given):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.cpp").write_text(self.CODE)
            entry = {"function": "S::f", "old": "a < b", "new": "a > b", "program": "p", "tests": "t"} | given
            return Functions(Path(folder), ["a.cpp"]).locate(Kept("list", "what", **entry))

    def test_the_text_is_found_in_its_function_wherever_the_lines_break(self):
        self.assertEqual(self.locate().put_in(self.CODE.encode()).decode(), self.CODE.replace("a <\n      b", "a > b"))
        self.assertEqual(self.locate(function="S::g").line, 7)
        self.assertEqual(self.locate(function="f", old="2").line, 8)

    def test_a_stale_fault_is_said(self):
        for given in ({"function": "S::h"}, {"old": "a <= b"}, {"function": "S::g", "old": "a"}):
            with self.assertRaises(StaleError):
                self.locate(**given)

    def test_each_kept_fault_applies_to_the_tree(self):
        product = (path for path in mutate.ROOT.iterdir() if path.is_dir() and path.name not in ("build", "tests"))
        files = itertools.chain.from_iterable(path.rglob("*.[ch]pp") for path in product)
        functions = Functions(mutate.ROOT, [str(file.relative_to(mutate.ROOT)) for file in files])
        for fault in read_kept([]):
            functions.locate(fault)


if __name__ == "__main__":
    unittest.main()
