"""The programs of the storm, and the storm itself: see storm.sh.

storm.py SLUICE SECONDS            runs both storms and prints the verdict
storm.py critical LOG              a CUDA graph about every 8 ms; a line per job: due and end, ns
storm.py best-effort PROGRESS      matrix products; writes the time of the last finished batch
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PERIOD_NS = 8_000_000
BEST_EFFORT = 3
BEST_EFFORT_KILLS = 25
CRITICAL_KILLS = 2
CONTROLLER_KILLS = 4
START_S = 60.0


def critical(log: str) -> None:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(16)]
    model = torch.nn.Sequential(*layers).cuda().half().eval()
    image = torch.randn(1, 64, 56, 56, device="cuda", dtype=torch.half)
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(5):
            model(image)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(image)
    with open(log, "a", buffering=1) as out:
        due = time.monotonic_ns() + PERIOD_NS
        while True:
            while (left := due - time.monotonic_ns()) > 0:
                time.sleep(left / 1e9)
            start = time.monotonic_ns()
            graph.replay()
            torch.cuda.synchronize()
            out.write(f"{start} {time.monotonic_ns()}\n")
            due = max(due + PERIOD_NS, time.monotonic_ns())


def best_effort(progress: str) -> None:
    import torch

    a = torch.randn(2048, 2048, device="cuda", dtype=torch.half)
    b = torch.randn(2048, 2048, device="cuda", dtype=torch.half)
    events = [torch.cuda.Event(), torch.cuda.Event()]
    with open(progress, "r+b") as file:
        page = mmap.mmap(file.fileno(), 8)
        for turn in range(sys.maxsize):
            for _ in range(8):
                torch.mm(a, b)
            events[turn % 2].record()
            if turn > 0:
                events[(turn + 1) % 2].synchronize()
                page[:] = struct.pack("q", time.monotonic_ns())


class Storm:
    """One storm: the processes, their kills, and what they left in their files."""

    def __init__(self, sluice: str, name: str, folder: Path) -> None:
        self.sluice = sluice
        self.session = f"storm-{name}-{os.getpid()}"
        self.folder = folder / name
        self.folder.mkdir()
        self.log = self.folder / "jobs"
        self.log.touch()
        self.pages = []
        for index in range(BEST_EFFORT):
            file = self.folder / f"progress{index}"
            file.write_bytes(bytes(8))
            with file.open("r+b") as handle:
                self.pages.append(mmap.mmap(handle.fileno(), 8))
        self.errors = (self.folder / "stderr").open("ab")
        self.recovery_ms: list[float] = []
        self.died: list[str] = []
        self.killed_controllers = 0
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, who: str) -> None:
        arguments = ["critical", str(self.log)]
        if who != "critical":
            arguments = ["best-effort", str(self.folder / f"progress{who}")]
        priority = "1" if who == "critical" else "0"
        command = [self.sluice, "exec", "--session", self.session, "--priority", priority, "--"]
        command += [sys.executable, __file__, *arguments]
        self.running[who] = subprocess.Popen(command, stderr=self.errors)

    def last(self, index: int) -> int:
        return struct.unpack("q", self.pages[index][:])[0]

    def jobs(self) -> list[tuple[int, int]]:
        lines = self.log.read_text().splitlines()
        return [(int(begin), int(end)) for begin, end in (line.split() for line in lines if line.count(" ") == 1)]

    def kill(self, who: str) -> None:
        process = self.running[who]
        if process.poll() is not None:
            self.died.append(f"{who} ended by itself: {process.returncode}")
        if who == "critical":
            self.watch_recovery(process)
        else:
            process.kill()
        process.wait()
        self.start(who)

    def watch_recovery(self, process: subprocess.Popen[bytes]) -> None:
        """Kills the critical process, and waits until a batch of best effort has ended since."""
        process.kill()
        killed = time.monotonic_ns()
        limit = killed + 5_000_000_000
        while time.monotonic_ns() < limit:
            ends = [self.last(i) for i in range(BEST_EFFORT)]
            if max(ends) > killed:
                self.recovery_ms.append((max(ends) - killed) / 1e6)
                return
            time.sleep(0.001)
        self.died.append("best effort did not flow again in 5 s")

    def kill_controller(self) -> None:
        said = subprocess.run(
            [self.sluice, "status", "--session", self.session, "--json"], capture_output=True, check=False
        )
        try:
            pid = json.loads(said.stdout)["controller"]["pid"]
            os.kill(pid, signal.SIGKILL)
            self.killed_controllers += 1
        except (ValueError, KeyError, ProcessLookupError):
            pass  # it is dead, and nobody has started another one

    def wait_until_all_run(self) -> None:
        limit = time.monotonic() + START_S
        while time.monotonic() < limit:
            if self.jobs() and all(self.last(i) for i in range(BEST_EFFORT)):
                return
            time.sleep(0.05)
        raise SystemExit(f"storm.sh: the programs did not start in {START_S:g} s: see {self.folder}/stderr")

    def run(self, seconds: float, with_controller: bool) -> list[float]:
        """Returns the times of the critical jobs in ms. The kills come at the same instants in every storm."""
        for who in ("critical", *map(str, range(BEST_EFFORT))):
            self.start(who)
        self.wait_until_all_run()
        plan = random.Random(7)
        kills = [(plan.uniform(0.02, 0.98), str(plan.randrange(BEST_EFFORT))) for _ in range(BEST_EFFORT_KILLS)]
        kills += [((i + 1) / (CRITICAL_KILLS + 1), "critical") for i in range(CRITICAL_KILLS)]
        kills += [(plan.uniform(0.05, 0.95), "controller") for _ in range(CONTROLLER_KILLS)]
        begin = time.monotonic()
        for share, who in sorted(kills):
            time.sleep(max(0.0, begin + share * seconds - time.monotonic()))
            if who != "controller":
                self.kill(who)
            elif with_controller:
                self.kill_controller()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        return [(end - start) / 1e6 for start, end in self.jobs() if start >= begin * 1e9]

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.errors.close()


def line(name: str, times: list[float], storm: Storm) -> float:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    recovery = ", ".join(f"{ms:.0f}" for ms in storm.recovery_ms)
    print(
        f"{name:<26} {len(times):>6} jobs  p50 {cuts[49]:6.2f} ms  p99 {cuts[98]:6.2f} ms  max {max(times):7.2f} ms  "
        f"best effort flows again after {recovery} ms  {storm.killed_controllers} controllers killed"
    )
    for fault in storm.died:
        print(f"  FAULT: {fault}")
    said = (storm.folder / "stderr").read_text(errors="replace")
    for text in sorted({entry for entry in said.splitlines() if "sluice" in entry and "warning" in entry})[:10]:
        print(f"  said: {text[:160]}")
    return cuts[98]


def main() -> int:
    if sys.argv[1] == "critical":
        critical(sys.argv[2])
    if sys.argv[1] == "best-effort":
        best_effort(sys.argv[2])
    sluice, seconds = sys.argv[1], float(sys.argv[2])
    p99 = []
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, kills in (("no controller kills", False), ("controller kills", True)):
            storm = Storm(sluice, name.split()[0], Path(folder))
            try:
                times = storm.run(seconds, kills)
            finally:
                storm.end()
            p99.append(line(name, times, storm))
            faults += len(storm.died)
    print(f"verdict: p99 with controller kills is {p99[1] / p99[0]:.2f} of that without; {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
