"""How much memory a micro-batch needs, learned: a fit that is too low costs failed allocations, one that is too high
makes a training slower than its memory allows. tests/engine/memory_fit_test.cpp has the same cases."""

import re

from conftest import PACKAGE
from sluice._memory_fit import MemoryFit
from sluice._orders import NO_LIMIT, Kind


def test_the_fit_is_a_line_through_what_was_seen():
    """A server takes memory down to it. Optimizer state and steps count, first-time costs do not."""
    line = MemoryFit()
    assert (line.fit(), line.to_measure(16)) == (None, 1)
    line.saw(1, 100, 9000)
    assert (line.fit(), line.to_measure(16)) == (None, 1)
    line.saw(1, 100, 130)
    assert (line.fit(), line.to_measure(16)) == ((100, 30), 8)
    line.saw(8, 100, 270)
    assert (line.fit(), line.to_measure(16)) == ((110, 20), None)
    line.saw(15, 100, 410)
    assert line.fit() == (110, 20)
    line.batch_ended()
    line.saw(15, 300, 610)
    assert line.fit() == (310, 20)
    line.saw_outside(1330)
    assert line.fit() == (1310, 20)


def test_halves_round_up():
    """Else a trainer in C++ would report another need for the same work."""
    line = MemoryFit()
    line.saw(1, 100, 100)
    line.saw(2, 100, 105)
    assert line.fit() == (100, 3)
    line.saw(4, 100, 108)
    assert line.fit() == (101, 2)


def test_the_words_are_those_of_the_c_api():
    header = (PACKAGE.parents[1] / "include" / "sluice" / "sluice.h").read_text()
    kinds = {name: int(value) for name, value in re.findall(r"\bSLUICE_ORDER_([A-Z]+) = ([0-9]+)", header)}
    assert kinds == {kind.name: kind.value for kind in Kind}
    assert "#define SLUICE_NO_LIMIT UINT64_MAX\n" in header and NO_LIMIT == 2**64 - 1


def test_sizes_are_few_and_within_the_grant():
    """Every new size costs libraries their preparation; one that is too large, a failed allocation."""
    line = MemoryFit()
    assert line.items(5, 64) == 64  # nothing is known
    for items in (1, 1, 32):
        line.saw(items, 1000, 1000 + 10 * items)
    assert line.items(NO_LIMIT, 64) == 64
    assert line.items(1639, 64) == 60
    assert line.items(1640, 64) == 64
    assert line.items(1035, 64) == 3
    assert line.items(1009, 64) == 0
    assert line.items(0, 64) == 0
    line.doubt(1005)
    assert line.items(1004, 64) == 0
    assert line.items(1005, 64) == 1
    line.lacked_memory(1, 1005)
    assert line.items(1005, 64) == 0
    line.doubt(1005)
    assert line.items(1005, 64) == 1
    line.lacked_memory(60, 1639)
    assert line.items(1639, 64) == 45
    assert line.items(1640, 64) == 64
    assert line.items(1639, 64) == 60


def test_a_first_item_that_failed_is_tried_again():
    """Else a training that lacked memory for one item waits indefinitely under a grant that does not grow."""
    line = MemoryFit()
    line.lacked_memory(1, 1000)
    assert line.items(1000, 64) == 0
    line.doubt(1000)
    assert [line.items(grant, 64) for grant in (999, 1000)] == [0, 1]
