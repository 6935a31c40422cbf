"""The index of a program: a number over all decisions of all sketches of a task. Needs no TVM.

A knob is {"type": "sp", "extent", "parts", "max_innermost"}: one of all ordered factorisations, in lexicographic
order; or {"type": "ot", "values"}: one of the values. The first knob is the least significant digit. The programs
of a sketch follow those of the sketches before it.
"""

import functools
import math
import random


@functools.lru_cache(maxsize=4096)
def factorisations(extent: int, parts: int, max_innermost: int) -> list[tuple[int, ...]]:
    """All tuples of `parts` factors whose product is `extent` and whose last factor is at most `max_innermost`."""
    if parts == 1:
        return [(extent,)] if extent <= max_innermost else []
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return [(d, *rest) for d in divisors for rest in factorisations(extent // d, parts - 1, max_innermost)]


def choices(knob: dict) -> list:
    if knob["type"] == "ot":
        return knob["values"]
    return factorisations(knob["extent"], knob["parts"], knob["max_innermost"])


def size(sketch: dict) -> int:
    return math.prod(len(choices(knob)) for knob in sketch["knobs"])


def entity_of(sketches: list[dict], index: int) -> tuple[int, list[list]]:
    """The sketch, and [name, type, choice] of each of its knobs. IndexError if there is no such program."""
    if index < 0:
        raise IndexError(f"index {index} is negative")
    rest = index
    for number, sketch in enumerate(sketches):
        if rest < size(sketch):
            entity = []
            for knob in sketch["knobs"]:
                rest, digit = divmod(rest, len(choices(knob)))
                choice = choices(knob)[digit]
                entity.append([knob["name"], knob["type"], list(choice) if knob["type"] == "sp" else choice])
            return number, entity
        rest -= size(sketch)
    raise IndexError(f"index {index} is past the last of {sum(map(size, sketches))} programs")


def index_of(sketches: list[dict], number: int, entity: list[list]) -> int:
    index = 0
    for knob, (_, kind, choice) in reversed(list(zip(sketches[number]["knobs"], entity))):
        digit = choices(knob).index(tuple(choice) if kind == "sp" else choice)
        index = index * len(choices(knob)) + digit
    return index + sum(size(sketch) for sketch in sketches[:number])


def changed(sketches: list[dict], index: int, random_numbers: random.Random) -> int:
    """The index with one to three decisions drawn anew, as a tuner does with a program that was fast."""
    number, entity = entity_of(sketches, index)
    knobs = sketches[number]["knobs"]
    for _ in range(random_numbers.randint(1, 3) if knobs else 0):
        place = random_numbers.randrange(len(knobs))
        entity[place][2] = random_numbers.choice(choices(knobs[place]))
    return index_of(sketches, number, entity)
