#!/usr/bin/env python3
"""The include check itself: it must notice each kind of fault, in trees made for it.

Prevents: a check that passes because it reads nothing, or no longer understands an include.
"""

import itertools
import tempfile
import unittest
from pathlib import Path

import check_includes

ROOT = Path(__file__).parents[2]


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.root = Path(self._folder.name)

    def write(self, name: str, text: str):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def faults(self) -> list:
        return check_includes.faults(self.root)

    def test_a_tree_that_keeps_the_rules_has_no_fault(self):
        self.write("runner/a.cpp", '#include "engine/b.hpp"\n#include "sluice/sluice.h"\n')
        self.write("tests/a.cpp", '#include "runner/a.hpp"\n#include <torch/torch.h>\n')
        self.assertEqual(self.faults(), [])

    def test_an_arrow_that_points_up_names_the_file(self):
        self.write("base/a.hpp", '  #  include "shm/board.hpp"\n')
        self.assertEqual(len(self.faults()), 1)
        self.assertIn("base/a.hpp: includes shm/board.hpp", self.faults()[0])

    def test_an_include_of_a_floor_above_names_the_file(self):
        for folder, floors in check_includes.FLOORS.items():
            for above, below in itertools.pairwise(floors):
                self.write(f"{folder}/{above}/a.cpp", f'#include "{folder}/{below}/b.hpp"\n')
                self.write(f"{folder}/{below}/c.hpp", f'#include "{folder}/{above}/d.hpp"\n')
            faults = [fault for fault in self.faults() if fault.startswith(folder)]
            self.assertEqual(len(faults), len(floors) - 1)
            for above, below in itertools.pairwise(floors):
                broken = f"{folder}/{below}/c.hpp: includes {folder}/{above}/d.hpp, but {above}/ is above {below}/"
                self.assertTrue(any(fault.startswith(broken) for fault in faults), broken)

    def test_the_core_has_seven_floors(self):
        floors = ("hooks", "client", "jobs", "pacing", "slot", "trace", "driver")
        self.assertEqual(check_includes.FLOORS["intercept"], floors)

    def test_the_pages_have_the_floors_of_the_interposer(self):
        floors = [f"`{floor}/`" for floor in check_includes.FLOORS["intercept"]]
        self.assertIn(f"\n{' > '.join(floors)}.\n", (ROOT / "docs/guide/architecture.md").read_text())
        self.assertIn(f" From the top down: {', '.join(floors)}.\n", (ROOT / "intercept/README.md").read_text())

    def test_a_folder_that_is_no_floor_is_named(self):
        self.write("intercept/attic/a.cpp", '#include "intercept/driver/b.hpp"\n')
        self.assertEqual(len(self.faults()), 1)
        self.assertIn("attic is no floor of intercept/", self.faults()[0])

    def test_nothing_includes_the_interposer(self):
        for folder in check_includes.ARROWS:
            if folder != "intercept":
                self.write(f"{folder}/z.cpp", '#include "intercept/client/client.hpp"\n')
        self.assertEqual(len(self.faults()), len(check_includes.ARROWS) - 1)

    def test_libtorch_stays_in_its_places(self):
        self.write("engine/torch/a.cpp", "#include <ATen/ATen.h>\n")
        self.write("runner/run/a.cpp", "#include <ATen/ATen.h>\n")
        self.assertEqual(len(self.faults()), 1)
        self.assertIn("runner/run/a.cpp", self.faults()[0])

    def test_a_new_circle_is_found(self):
        self.write("shm/a.hpp", '#include "shm/b.hpp"\n')
        self.write("shm/b.cpp", '#include "shm/a.hpp"\n')
        self.assertEqual(len(self.faults()), 1)
        self.assertIn("a, b are in a circle", self.faults()[0])

    def test_a_header_and_its_source_are_one_unit(self):
        self.write("shm/a.cpp", '#include "shm/a.hpp"\n')
        self.assertEqual(self.faults(), [])


if __name__ == "__main__":
    unittest.main()
