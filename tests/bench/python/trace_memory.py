"""Measures the time and the memory of the commands that read a trace of the given size:
trace_memory.py [GIGABYTES]. Works in TMPDIR, else /var/tmp, and removes all its files."""

import os
import sys
import tempfile
from pathlib import Path

from long_run import write_run
from parse_speed import TABLE, measure

COMMANDS = {
    "sluice parse RUN": ["parse", "run", "--out", "parsed"],
    "sluice trace RUN --csv FILE": ["trace", "run", "--csv", "run.csv"],
    "sluice trace RUN -o FILE.json": ["trace", "run", "-o", "run.json"],
    "sluice trace RUN -o FILE.perfetto-trace": ["trace", "run", "-o", "run.perfetto-trace"],
    "sluice report RUN": ["report", "run", "-o", "run.html"],
}


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e9)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        folder = Path(scratch)
        kernels = write_run(folder / "run", size)
        written = sum(path.stat().st_size for path in folder.glob("run/trace/*"))
        print(f"{kernels} kernels, {written / 1e9:.2f} GB of trace\n\n{TABLE}", flush=True)
        for name, (command, *args) in COMMANDS.items():
            measure(name, [sys.executable, "-m", f"sluice_tools.{command}", *args], folder, 1)
            for path in folder.glob("run.*"):
                path.unlink()


if __name__ == "__main__":
    main()
