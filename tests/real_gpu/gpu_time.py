"""Holds the estimate of GPU time (docs/reference/top.md) against traces, and shows what it costs, in two minutes.

Runs each program under `sluice exec`: alternately with and without the estimate, for its speed and its outputs, and
once with a trace. Of that run the estimate is read from `sluice status` and compared with the kernels of the trace
until then. Exits 1 if an estimate is more than 15 % off. Needs an NVIDIA GPU, a finished ./x build, and torch; JAX if
it is there.

    python3 tests/real_gpu/gpu_time.py [ROUNDS]
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from trace_counts import EXEC, HEADER, RECORD

HERE = Path(__file__).resolve().parent
SLUICE = str(HERE.parent.parent / "build/bin/sluice")
WORST = 0.15
PROGRAMS = {
    "inference": [str(HERE / "inference_loop.py"), "4"],
    "training": [str(HERE / "training_loop.py"), "6"],
    "jax": [str(HERE / "jax_loop.py"), "6"],
}


def start(name: str, estimate: bool, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        [SLUICE, "exec", "--priority", "0", "--gpu", "real", *options, "--", sys.executable, *PROGRAMS[name]],
        env=os.environ | {"SLUICE_GPU_TIME": "1" if estimate else "0"},
        stdout=subprocess.PIPE,
        text=True,
    )


def speeds(name: str, rounds: int) -> None:
    for turn in range(2 * rounds):
        output = start(name, turn % 2 == 0).communicate()[0]
        label = "estimated" if turn % 2 == 0 else "not estimated"
        print(f"{name}, {label}: " + "; ".join(line for line in output.splitlines() if ":" in line or "steps" in line))


def estimates(process: subprocess.Popen) -> list[tuple[int, int]]:
    """The GPU times that status shows for the process, and CLOCK_MONOTONIC then; both ns."""
    seen = []
    while process.poll() is None:
        time.sleep(0.1)
        status = subprocess.run([SLUICE, "status", "--json"], capture_output=True, text=True, check=False)
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        clients = json.loads(status.stdout or "{}").get("clients", [])
        for client in clients:
            if client["pid"] == process.pid and client["gpu_ns"]:
                seen.append((client["gpu_ns"], now))
    return seen


def traced(folder: str, until_ns: int) -> tuple[int, int]:
    """Of the kernels and graphs that ended by then: the sum of their times, and the time with any of them; both ns."""
    parts = []
    for file in Path(folder).glob("*.sltrace"):
        count = (file.stat().st_size - HEADER) // RECORD.itemsize
        records = np.memmap(file, RECORD, "r", HEADER, count)
        parts.append(records[(records["kind"] == EXEC) & (records["end"] <= until_ns)])
    runs = np.sort(np.concatenate(parts), order="begin")
    ends = np.maximum.accumulate(runs["end"])
    begins = np.maximum(runs["begin"][1:], ends[:-1])
    busy = runs["end"][:1].sum() - runs["begin"][:1].sum() + np.maximum(runs["end"][1:] - begins, 0).sum()
    return int((runs["end"] - runs["begin"]).sum()), int(busy)


def compare(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        process = start(name, True, "--trace", folder)
        seen = estimates(process)
        rows = [(estimate, *traced(folder, when)) for estimate, when in seen[:: max(1, len(seen) // 5)]]
        estimate, kernels, busy = seen[-1][0], *traced(folder, seen[-1][1])
    print(f"{name}, estimate and busy s as it ran: " + ", ".join(f"{a / 1e9:.3f} {c / 1e9:.3f}" for a, _, c in rows))
    off = estimate / busy - 1
    print(
        f"{name}: estimate {estimate / 1e9:.3f} s, busy {busy / 1e9:.3f} s ({off:+.1%}), kernels {kernels / 1e9:.3f} s"
    )
    return abs(off) <= WORST


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    good = True
    for name in PROGRAMS:
        module = "jax" if name == "jax" else "torch"
        if importlib.util.find_spec(module) is None:
            print(f"{name}: skipped, no {module}")
            continue
        speeds(name, rounds)
        good = compare(name) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
