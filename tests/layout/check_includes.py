#!/usr/bin/env python3
"""Checks that includes and imports follow the layout: arrows between folders point down only.

usage: check_includes.py [ROOT]

Four rules, over every C and C++ file of the tree:
- a folder includes only itself and the folders that ARROWS lists for it;
- in a folder with FLOORS, a file includes its own floor and those below it, never one above;
- a library that belongs to some folders only (LIBRARIES) is included nowhere else;
- the units of a folder (x.hpp and x.cpp are one unit) form no circle.
check_imports.py has the rules for Python, which are checked too.
Each fault is one line that names the file. Exit codes: 0 none, 1 faults, 2 wrong usage.
"""

import re
import sys
from pathlib import Path

import check_imports
from circles import circles

# folder: the other folders that it may include.
ARROWS = {
    "include": (),
    "base": (),
    "shm": ("include", "base"),
    "simgpu": ("base",),
    "intercept": ("include", "shm", "base"),
    "controller": ("shm", "base"),
    "engine": ("include", "base"),
    "scheduler": (),
    "runner": ("include", "engine", "shm", "base"),
    "predictor": ("profiler", "base"),
    "profiler": ("engine", "shm", "base"),
    "server": ("include", "scheduler", "engine", "shm", "base"),
    "tools": ("include", "shm", "base"),
    "slurm": (),
}
# folder: its folders from the top down.
FLOORS = {
    "intercept": ("hooks", "client", "jobs", "pacing", "slot", "trace", "driver"),
    "server": (
        "program", "workload", "api", "requests", "engines", "models", "figures", "memory", "training", "service",
    ),
    "profiler": (
        "opbench", "tuning", "runs", "tuner", "measure", "compile", "workers", "records", "packs",
    ),
}  # fmt: skip
# Tests and their helpers may include everything.
FREE = ("tests",)

# header pattern: the places that may include it.
LIBRARIES = {
    r"(ATen|c10|torch|caffe2)/": ("engine/torch/", "runner/worker/torch_main.cpp"),
    r"cuda(_runtime.*)?\.h$": ("intercept/", "simgpu/", "engine/", "profiler/", "tools/gpus/", "tools/examples/"),
    r"boost/interprocess/": ("shm/",),
    r"boost/(asio|beast)": ("controller/", "server/api/", "server/workload/"),
    r"slurm/(slurm|spank)": ("slurm/",),
    r"(grpc|grpcpp|google/protobuf)/": ("server/api/", "server/workload/"),
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_SUFFIXES = {".h", ".hpp", ".hpp.in", ".cpp", ".cu", ".def", ".c"}


def _files(root: Path):
    for folder in (*ARROWS, *FREE):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and (path.suffix in _SUFFIXES or path.name.endswith(".hpp.in")):
                yield path


def _folder_of(include: str) -> str:
    """The folder of an include written "folder/...": the C API is included as "sluice/sluice.h"."""
    top = include.split("/", 1)[0]
    return "include" if top == "sluice" else top


def _unit(path: Path, root: Path) -> str:
    """The name without its suffix, below its top folder."""
    inner = path.relative_to(root).parts[1:]
    return "/".join(inner).split(".", 1)[0]


def _climbs(name: str, include: str) -> str:
    """What is wrong with an include inside the folder of `name`, by its FLOORS; empty for nothing."""
    folder, floor = name.split("/")[:2]
    floors = FLOORS.get(folder)
    if floors is None:
        return ""
    target = include.split("/")[1]
    for each in (floor, target):
        if each not in floors:
            return f"{each} is no floor of {folder}/: {', '.join(floors)}"
    if floors.index(target) < floors.index(floor):
        return f"{target}/ is above {floor}/: {', '.join(floors)}"
    return ""


def faults(root: Path) -> list:
    found = []
    edges = {folder: {} for folder in ARROWS}
    for path in _files(root):
        name = str(path.relative_to(root))
        folder = name.split("/", 1)[0]
        for bracket, include in _INCLUDE.findall(path.read_text(errors="replace")):
            for pattern, places in LIBRARIES.items():
                outside = folder not in FREE and not name.startswith(places)
                if outside and re.match(pattern, include):
                    found.append(f"{name}: includes {include}, which belongs to {', '.join(places)}")
            if bracket == "<" or folder in FREE:
                continue
            other = _folder_of(include)
            if other == folder:
                if fault := _climbs(name, include):
                    found.append(f"{name}: includes {include}, but {fault}")
                unit = _unit(path, root)
                target = _unit(root / include, root)
                if unit != target:
                    edges[folder].setdefault(unit, set()).add(target)
            elif other in FREE or other not in ARROWS[folder]:
                allowed = ", ".join(ARROWS[folder]) or "no other folder"
                found.append(f"{name}: includes {include}, but {folder}/ may use {allowed} only")
    for folder, units in edges.items():
        for circle in circles(units):
            found.append(f"{folder}/: {', '.join(sorted(circle))} are in a circle of includes")
    return found


def main() -> int:
    if len(sys.argv) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).parents[2]).resolve()
    lines = faults(root) + check_imports.faults(root)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
