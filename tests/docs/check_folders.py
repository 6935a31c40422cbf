#!/usr/bin/env python3
"""Checks the file tables in the READMEs of the folders.

usage: check_folders.py [ROOT]

Rules, over every folder below the top, except docs/, whose README.md has a table:
- the first column of some row names each file of the folder, or a folder that holds the file. A README further
  down answers for the files below it. x.* stands for x.cpp and x.hpp, and also names x.py and x.json;
- each file and folder that a first column names exists.
Each fault is one line that names the README. Exit codes: 0 none, 1 faults, 2 wrong usage.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

_SKIPPED_TOP = {"build", "build-core", "build-asan", "build-tsan", "docs", "results", "logs"}
_NEED_NO_ROW = {"README.md", "CMakeLists.txt", "__init__.py", "__main__.py"}
_SPAN = re.compile(r"`([^`]+)`")
_NAME = re.compile(r"[\w*./-]+")


def _files(root: Path) -> list[Path]:
    """Files of the tree, without hidden folders and what builds and runs leave."""
    found = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if not hidden and parts[0] not in _SKIPPED_TOP and not parts[0].startswith("build-") and path.is_file():
            found.append(path)
    return found


def _named(readme: Path) -> set[str]:
    """The file and folder names in the first columns of the tables, without the folders in front of a file."""
    names = set()
    for line in readme.read_text().splitlines():
        if line.startswith("| `"):
            spans = _SPAN.findall(re.split(r"(?<!\\)\|", line)[1])
            names |= {span for span in spans if _NAME.fullmatch(span) and re.search(r"[*./]", span)}
    return names


def _pattern(name: str) -> str:
    """What the last part of a path has to match."""
    return name.rstrip("/").split("/")[-1]


def faults(root: Path) -> list[str]:
    files = _files(root)
    homes = {file.parent for file in files if file.name == "README.md" and file.parent != root}
    found = []
    for home in sorted(homes):
        names = _named(home / "README.md")
        if not names:
            continue
        below = [file for file in files if file.is_relative_to(home)]
        shown = (home / "README.md").relative_to(root)
        for file in below:
            nearest = next(parent for parent in file.parents if parent in homes)
            parts = file.relative_to(home).parts
            if nearest != home or file.name in _NEED_NO_ROW:
                continue
            if not any(
                fnmatch(part, _pattern(name))
                for name in names
                for part in (parts[:-1] if name.endswith("/") else parts[-1:])
            ):
                found.append(f"{shown}: no row names {'/'.join(parts)}")
        there = {part for file in below for part in file.relative_to(home).parts}
        for name in sorted(names):
            elsewhere = name.startswith("../")
            if not ((home / name).exists() if elsewhere else any(fnmatch(part, _pattern(name)) for part in there)):
                found.append(f"{shown}: {name} does not exist")
    return found


def main() -> int:
    if len(sys.argv) > 2 or sys.argv[1:2] == ["--help"]:
        print(__doc__, file=sys.stderr)
        return 2
    found = faults(Path(sys.argv[1] if len(sys.argv) == 2 else "."))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
