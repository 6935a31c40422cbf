"""Packs of random lines, for tests that need no TVM."""

import random
from pathlib import Path

from sluice_tools.programs import pack


def random_pack(seed: int, name: str, calls_of: list[list[str]] | None = None) -> list[dict]:
    """Lines in any order that a pack may have: a task behind a network that calls it, a program behind its task."""
    draw = random.Random(f"{name} {seed}")
    tasks = [f"{draw.getrandbits(64):016x}" for _ in range(draw.randint(1, 8))]
    calls_of = calls_of or [draw.sample(tasks, draw.randint(1, len(tasks))) for _ in range(3)]
    items = [
        {
            "kind": "network",
            "name": f"{name}-{number}",
            "batch": draw.choice([1, 8]),
            "calls": [{"task": t} for t in own],
        }
        for number, own in enumerate(calls_of)
    ]
    called = list(dict.fromkeys(task for own in calls_of for task in own))
    for task in called:
        first = next(n for n, item in enumerate(items) if {"task": task} in item.get("calls", []))
        items.insert(draw.randint(first + 1, len(items)), {"kind": "task", "task": task, "flop": draw.randint(0, 9)})
    for task in called:
        for index in draw.sample(range(10**14), draw.randint(0, 6)):
            at = next(n for n, item in enumerate(items) if item["kind"] == "task" and item["task"] == task)
            line = {"kind": "program", "task": task, "index": index, "source": "a", "features": [[0.5, 1]]}
            items.insert(draw.randint(at + 1, len(items)), line)
    return [{"kind": "pack", "version": 1, "target": "llvm", "tvm": "t", "ffi": "f", "seed": seed}, *items]


def written(folder: Path, name: str, items: list[dict]) -> Path:
    pack.write_lines(folder / f"{name}.programs", items)
    return folder / f"{name}.programs"
