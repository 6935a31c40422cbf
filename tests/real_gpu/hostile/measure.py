"""Runs one program in its modes and keeps what came out: see README.md for the modes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cases import Program

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ["SLUICE_ROOT"])
SLUICE = os.environ.get("SLUICE", str(ROOT / "build/bin/sluice"))
SPIN = str(ROOT / "build/libexec/sluice/sluice-example-spin")
SIM = os.environ.get("HOSTILE_GPU") == "sim"
PYTHON = os.environ.get("PYTHON", sys.executable)
# Below these parts of the rate without Sluice, a program counts as slow: alone, and next to the neighbour.
SLOW_ALONE, SLOW_NEXT_TO = 0.9, 0.75
REPEATS = 2  # of both, where one is slow
NEIGHBOUR = ["--kernels", "20", "--kernel-us", "100", "--period-ms", "6"]


@dataclasses.dataclass
class Result:
    rc: int
    wall: float  # s, from start to end
    hung: bool
    sum: str
    rate: float
    note: str
    errors: list[str]
    said: list[str]  # lines of Sluice

    @property
    def fine(self) -> bool:
        return self.rc == 0 and not self.hung and self.sum != ""

    @property
    def why(self) -> str:
        what = "hangs" if self.hung else f"exit {self.rc}" if self.rc >= 0 else f"signal {-self.rc}"
        return f"{what}: {' | '.join(self.errors[-4:])[:500]}"


@dataclasses.dataclass
class Measured:
    runs: dict[str, Result]  # by mode
    neighbours: dict[str, str] = dataclasses.field(default_factory=dict)  # the last line of each, by mode
    mine: str = ""  # what is wrong without Sluice, too


def stacks(member: str) -> str:
    """Where the threads of a process are: by gdb, else by the kernel."""
    process = Path(f"/proc/{member}")
    head = f"== pid {member}: {(process / 'cmdline').read_bytes()[:300] if process.exists() else '?'}\n"
    if shutil.which("gdb"):
        gdb = ["gdb", "-p", member, "-batch", "-ex", "thread apply all bt 14"]
        try:
            return head + subprocess.run(gdb, capture_output=True, text=True, timeout=20).stdout[-12000:]
        except subprocess.TimeoutExpired:
            head += "gdb hung\n"
    for task in sorted((process / "task").glob("*"))[:40]:
        with contextlib.suppress(OSError):
            head += " ".join([task.name, *((task / of).read_text() for of in ("comm", "wchan", "syscall"))]) + "\n"
    return head


class Lane:
    """Runs programs one after the other on its GPUs, in a session of its own."""

    def __init__(self, gpus: list[int], number: int, options):
        self.gpus, self.options, self.out = gpus, options, Path(options.out)
        self.name = "-".join(map(str, [number, *gpus]))
        self.env = dict(os.environ, SLUICE_SESSION=f"hostile-{os.getpid()}-{self.name}", PYTHONPATH=str(HERE / "py"))
        self.env["TORCHINDUCTOR_CACHE_DIR"] = f"/tmp/hostile-inductor-{self.name}"
        if SIM:
            self.env["SLUICE_HOSTILE_SIM"] = "1"
        else:
            self.env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        self.repeats = REPEATS if options.lanes == 1 else 0
        self.neighbour = None
        self.neighbour_out = None

    def command(self, program: Program, mode: str) -> list[str]:
        if program.kind == "py":
            own = [PYTHON, str(HERE / "py" / f"{program.script or program.name}.py")]
        else:
            own = [str(Path(self.options.bin) / "hostile"), program.name, *(program.sim or [] if SIM else [])]
        return self.wrap(own, {"b": 1, "c": 0}.get(mode), program.name)

    def wrap(self, own: list[str], priority: int | None, name: str) -> list[str]:
        gpu = ["--gpu", "sim"] if SIM else []
        if priority is None:
            return [SLUICE, "exec", *gpu, "--no-intercept", "--", *own] if SIM else own
        more = [*gpu, *shlex.split(self.options.exec)]
        return [SLUICE, "exec", *more, "--priority", str(priority), "--name", name, "--", *own]

    def run(self, program: Program, mode: str, limit: float) -> Result:
        folder = self.out / program.name
        folder.mkdir(parents=True, exist_ok=True)
        env = dict(self.env)
        if program.name == "shim":
            env["LD_PRELOAD"] = str(Path(self.options.bin) / "libshim.so")
        begin = time.monotonic()
        with open(folder / f"{mode}.out", "w") as out, open(folder / f"{mode}.err", "a") as err:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            process = subprocess.Popen(
                self.command(program, mode), **pipes, env=env, cwd="/tmp", start_new_session=True
            )
            hung = False
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                hung = True
                (folder / f"{mode}.hang").write_text(self.look_at(process.pid))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wall = time.monotonic() - begin
        text = (folder / f"{mode}.out").read_text(errors="replace")
        lines = (folder / f"{mode}.err").read_text(errors="replace").splitlines()
        found = re.findall(r"^sum=(\w+) rate=([\d.einf+-]+) ?(.*)$", text, re.M)
        value, rate, note = found[-1] if found else ("", "0", "")
        said = [line for line in lines if line.startswith("sluice[")]
        errors = [line for line in lines if not line.startswith("sluice[")]
        return Result(process.returncode, wall, hung, value, float(rate), note, errors, said)

    def look_at(self, pid: int) -> str:
        """What a hang looks like: status, and where the threads of the whole group are."""
        try:
            status = subprocess.run([SLUICE, "status"], env=self.env, capture_output=True, text=True, timeout=5).stdout
        except (subprocess.TimeoutExpired, OSError) as error:
            status = f"no status: {error}"
        group = subprocess.run(["ps", "-o", "pid=", "--forest", "-g", str(pid)], capture_output=True, text=True)
        return "\n".join([status, *map(stacks, group.stdout.split()[:4])])

    def start_neighbour(self, under: bool) -> None:
        env = dict(self.env)
        if not SIM:
            env["CUDA_VISIBLE_DEVICES"] = str(self.gpus[0])
        own = self.wrap([SPIN, *NEIGHBOUR], 1 if under else None, "neighbour")
        self.neighbour_out = (self.out / f"neighbour-{self.name}.txt").open("a+")
        self.neighbour = subprocess.Popen(
            own, stdout=self.neighbour_out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        time.sleep(1.5)

    def stop_neighbour(self) -> str:
        """The last line of the neighbour: its latency."""
        if self.neighbour is None or self.neighbour_out is None:
            return ""
        early = self.neighbour.poll()
        if early is None:
            os.killpg(self.neighbour.pid, signal.SIGTERM)
        try:
            self.neighbour.wait(8)
            said = "" if early is None else f"THE NEIGHBOUR ENDED WITH {early}: "
        except subprocess.TimeoutExpired:
            said = "THE NEIGHBOUR DID NOT END: "
            os.killpg(self.neighbour.pid, signal.SIGKILL)
            self.neighbour.wait()
        self.neighbour_out.seek(0)
        lines = self.neighbour_out.read().splitlines()
        self.neighbour_out.close()
        self.neighbour = None
        return said + (lines[-1] if lines else "")

    def time_for(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.options.deadline

    def measure(self, program: Program) -> Measured:
        a = self.run(program, "a", program.limit)
        r = {"a": a}
        if not a.fine:
            return Measured(r, mine=a.why)
        b = r["b"] = self.run(program, "b", self.limit(r, "b"))
        if program.compare and b.fine and b.sum != a.sum and self.time_for(2 * a.wall):
            again_a = self.run(program, "a", program.limit)
            if again_a.fine and again_a.sum != a.sum:
                return Measured(r, mine="the sum differs without Sluice, too")
        self.repeat_slow(program, r)
        measured = Measured(r)
        if "c" not in program.modes or "c" not in self.options.modes:
            return measured
        order = [mode for mode in "dc" if mode in program.modes and mode in self.options.modes]
        for mode in order:
            if self.time_for(2 * a.wall):
                self.next_to_neighbour(program, measured, mode)
        for _ in range(self.repeats):
            c, d = r.get("c"), r.get("d")
            if not (c and d and c.fine and d.fine and c.rate < SLOW_NEXT_TO * d.rate and self.time_for(4 * a.wall)):
                break
            for mode in order:
                self.next_to_neighbour(program, measured, mode)
        return measured

    def limit(self, r: dict[str, Result], mode: str) -> float:
        a = r["a"]
        base = r["d"].wall if mode == "c" and "d" in r and r["d"].fine else a.wall
        return {"b": max(3 * a.wall, a.wall + 10), "d": max(5 * a.wall, a.wall + 15), "c": max(4 * base, base + 20)}[
            mode
        ]

    def repeat_slow(self, program: Program, r: dict[str, Result]) -> None:
        """Both again, in turns: whatever else the host does makes a run slower, never faster."""
        for _ in range(self.repeats):
            slow = r["b"].fine and r["b"].rate < SLOW_ALONE * r["a"].rate
            if not slow or not self.time_for(2 * r["a"].wall):
                return
            keep_best(r, "a", self.run(program, "a", program.limit))
            keep_best(r, "b", self.run(program, "b", self.limit(r, "b")))

    def next_to_neighbour(self, program: Program, measured: Measured, mode: str) -> None:
        self.start_neighbour(mode == "c")
        keep_best(measured.runs, mode, self.run(program, mode, self.limit(measured.runs, mode)))
        said = self.stop_neighbour()
        if not measured.neighbours.get(mode, "").startswith("THE NEIGHBOUR"):
            measured.neighbours[mode] = said


def keep_best(r: dict[str, Result], mode: str, again: Result) -> None:
    """A failure under Sluice stays; of two good runs the faster one does."""
    known = r.get(mode)
    fails_under = mode in "bc" and not again.fine
    if known is None or (known.fine and (fails_under or (again.fine and again.rate > known.rate))):
        r[mode] = again
