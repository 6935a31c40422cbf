#!/usr/bin/env python3
"""How large is a clone's working tree? Names what makes it too large.

    check_size.py TREE [--largest N]

Exit code 0 if it is small enough, 1 with a line for each fault, 77 if TREE is no checkout. Bytes are those of the
tracked files, as `git ls-files -z | xargs -0 du -cb` counts them.
"""

import argparse
import subprocess
import sys
from pathlib import Path

MOST = 15 << 20
MOST_OF_A_FILE = 1_000_000
# Larger files, and why the tree has them.
LARGE = {"predictor/trained/predictor.cbor": "packages have it, and making it takes all packs, which need TVM"}
_SKIPPED = 77


def tracked(root: Path) -> list[str] | None:
    """The names of the tracked files; nothing if `root` is no checkout."""
    found = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, check=False)
    if found.returncode or not (root / ".git").exists():
        return None
    return [name for name in found.stdout.decode(errors="surrogateescape").split("\0") if name]


def sizes(root: Path, names: list[str]) -> dict[str, int]:
    """Bytes by name. A file that was removed and is still tracked has none."""
    paths = {name: root / name for name in names}
    return {name: path.lstat().st_size for name, path in paths.items() if path.is_symlink() or path.is_file()}


def faults(found: dict[str, int], large: dict[str, str]) -> list[str]:
    said = []
    for name, size in sorted(found.items()):
        if size > MOST_OF_A_FILE and name not in large:
            said.append(
                f"{name} has {size} bytes, more than {MOST_OF_A_FILE}: let a command make it again, or compress it, or "
                "name it in tests/layout/check_size.py, with a reason"
            )
    for name in sorted(large):
        if found.get(name, 0) <= MOST_OF_A_FILE:
            said.append(f"{name} is named in tests/layout/check_size.py, and is not larger than {MOST_OF_A_FILE} bytes")
    if (total := sum(found.values())) > MOST:
        largest = sorted(found, key=lambda name: -found[name])[:5]
        said.append(f"the tracked files have {total} bytes, more than {MOST}; the largest are {', '.join(largest)}")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--largest", type=int, default=0, metavar="N", help="also list the N largest files")
    options = parser.parse_args()
    names = tracked(options.tree)
    if names is None:
        print(f"{options.tree} is no checkout of git: its size is not checked")
        return _SKIPPED
    found = sizes(options.tree, names)
    for name in sorted(found, key=lambda name: -found[name])[: options.largest]:
        print(f"{found[name]:>9} {name}")
    said = faults(found, LARGE)
    print(*said, sep="\n", end="\n" if said else "")
    print(f"{sum(found.values())} bytes in {len(found)} files, of at most {MOST}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
