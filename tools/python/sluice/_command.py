"""The command `sluice` of a wheel: becomes the program, so the pid stays."""

import os
import sys
from pathlib import Path


def main() -> int:
    program = Path(__file__).resolve().parent / "_native" / "bin" / "sluice"
    if not program.exists():
        print(f"sluice: {program} is missing: install a wheel that `./x package wheel` made", file=sys.stderr)
        return 1
    # Commands in Python run with the packages that were installed next to this wheel.
    os.environ.setdefault("SLUICE_PYTHON", sys.executable)
    os.execv(program, ["sluice", *sys.argv[1:]])
