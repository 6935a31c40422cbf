"""The index of a program. A wrong codec would give every record of a tuner to another program, silently."""

import random

import pytest
from sluice_tools.programs import knobs

SMALL = [
    {"knobs": [{"name": "choice_0", "type": "ot", "values": [32, 64]}]},
    {
        "knobs": [
            {"name": "tile_0", "type": "sp", "extent": 12, "parts": 3, "max_innermost": 4},
            {"name": "choice_1", "type": "ot", "values": [0, 16, 64]},
        ]
    },
]
BIG = [
    {
        "knobs": [
            {"name": "tile_0", "type": "sp", "extent": 4096, "parts": 5, "max_innermost": 64},
            {"name": "tile_1", "type": "sp", "extent": 3136, "parts": 5, "max_innermost": 64},
            {"name": "tile_2", "type": "sp", "extent": 1024, "parts": 3, "max_innermost": 64},
            {"name": "choice_3", "type": "ot", "values": [0, 16, 64, 512, 1024]},
        ]
    }
] * 3


def test_counts_by_hand():
    # 12 = 2 * 2 * 3 in three ordered factors: C(4, 2) * 3 = 18, less those that end in 6 (2) and in 12 (1).
    assert len(knobs.factorisations(12, 3, 12)) == 18
    assert len(knobs.factorisations(12, 3, 4)) == 15
    assert [knobs.size(sketch) for sketch in SMALL] == [2, 45]
    # C(12 + 4, 4) ordered factorisations of 2^12 into five.
    assert len(knobs.factorisations(4096, 5, 4096)) == 1820


def test_factorisations_are_in_lexicographic_order():
    assert knobs.factorisations(4, 2, 4) == [(1, 4), (2, 2), (4, 1)]
    found = knobs.factorisations(3136, 5, 64)
    assert found == sorted(found) and len(set(found)) == len(found)
    assert all(choice[-1] <= 64 for choice in found)


def test_every_index_of_a_small_space_comes_back():
    seen = set()
    for index in range(47):
        sketch, entity = knobs.entity_of(SMALL, index)
        assert knobs.index_of(SMALL, sketch, entity) == index
        seen.add(str((sketch, entity)))
    assert len(seen) == 47


def test_the_first_knob_is_the_least_significant():
    assert knobs.entity_of(SMALL, 1) == (0, [["choice_0", "ot", 64]])
    assert knobs.entity_of(SMALL, 2) == (1, [["tile_0", "sp", [1, 3, 4]], ["choice_1", "ot", 0]])
    assert knobs.entity_of(SMALL, 3)[1] == [["tile_0", "sp", [1, 4, 3]], ["choice_1", "ot", 0]]
    assert knobs.entity_of(SMALL, 2 + 15)[1] == [["tile_0", "sp", [1, 3, 4]], ["choice_1", "ot", 16]]


def test_random_indices_of_a_big_space_come_back():
    random_numbers = random.Random(1)
    total = sum(map(knobs.size, BIG))
    assert total > 10**9
    for _ in range(10000):
        index = random_numbers.randrange(total)
        sketch, entity = knobs.entity_of(BIG, index)
        assert knobs.index_of(BIG, sketch, entity) == index


@pytest.mark.parametrize("index", [-1, 47, 10**30])
def test_an_index_outside_of_the_space_is_refused(index):
    with pytest.raises(IndexError, match="index"):
        knobs.entity_of(SMALL, index)


def test_a_changed_program_keeps_most_decisions():
    """A tuner's proposals that are random programs would make its half of new data like the other half."""
    random_numbers, spread = random.Random(3), set()
    parent = knobs.index_of(BIG, 1, [[knob["name"], knob["type"], knobs.choices(knob)[-1]] for knob in BIG[1]["knobs"]])
    for _ in range(200):
        child = knobs.changed(BIG, parent, random_numbers)
        (sketch, theirs), (_, before) = knobs.entity_of(BIG, child), knobs.entity_of(BIG, parent)
        assert sketch == 1
        spread.add(sum(a != b for a, b in zip(theirs, before)))
    assert {1, 2, 3} <= spread <= {0, 1, 2, 3}


def test_a_task_without_decisions_has_one_program():
    assert knobs.changed([{"knobs": []}], 0, random.Random(0)) == 0
