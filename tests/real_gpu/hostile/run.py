"""See run.sh. One line a program; details in OUT/PROGRAM/."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ["SLUICE_ROOT"])
SLUICE = os.environ.get("SLUICE", str(ROOT / "build/bin/sluice"))
SPIN = str(ROOT / "build/libexec/sluice/sluice-example-spin")
SIM = os.environ.get("HOSTILE_GPU") == "sim"
PYTHON = os.environ.get("PYTHON", sys.executable)
NEIGHBOUR = ["--kernels", "20", "--kernel-us", "100", "--period-ms", "6"]


@dataclasses.dataclass
class Program:
    name: str
    args: list[str] = dataclasses.field(default_factory=list)
    kind: str = "cpp"
    gpus: int = 1
    wall: float = 3.0  # without Sluice, alone; a guess for the schedule
    limit: float = 25.0  # at most, in mode a
    compare: bool = True  # the sums of all modes
    known: str = ""
    modes: str = "abdc"


def cpp(name, wall=3.0, sim=None, **more):
    p = Program(name, [], "cpp", 1, wall, **more)
    if SIM:
        p.args = sim if sim is not None else []
    return p


def py(name, wall=12.0, **more):
    return Program(name, [], "py", more.pop("gpus", 1), wall, limit=90, **more)


# In the order of what is most worth knowing. `sim`: arguments on the simulated GPU, where it can run.
SIMULATED = {
    "tiny_driver": ["2000"],
    "pushpop": ["2000"],
    "waitvalue": ["100"],
    "modules": ["5"],
    "alarms": ["1000"],
    "onecpu": ["1000"],
    "syncloop": ["500"],
    "threads100": ["4"],
    "threadchurn": ["30"],
    "fullqueue": ["2"],
    "waitvalue_host": ["3"],
    "shim": ["1000"],
    "dlopen": [],
    "inversion_pipe": [],
    "closefds": [],
}
PROGRAMS = [
    py("torch_compile", 40),
    cpp("fullqueue", limit=60),
    cpp("spingraph"),
    cpp("meet8"),
    cpp("meet24on8"),
    cpp("meet32"),
    cpp("persistent"),
    cpp("capture2"),
    cpp("streams100"),
    cpp("threads100"),
    cpp("eventpoll"),
    cpp("pushpop"),
    cpp("reset", 5),
    py("jax_loops"),
    py("torch_loader", 15, modes="abc"),
    cpp("graph_update"),
    cpp("graph_while"),
    cpp("graph_device"),
    cpp("graph_events"),
    cpp("graph_big"),
    cpp("graph_many"),
    cpp("graph_memory"),
    cpp("cdp"),
    cpp("pdl"),
    cpp("coop"),
    cpp("attributes"),
    cpp("green", 4),
    cpp("contexts", 5),
    cpp("primary", 5),
    py("cupy_mix"),
    py("triton_mix"),
    py("cuda_core"),
    cpp("waitvalue"),
    cpp("waitvalue_host"),
    cpp("hostfunc"),
    cpp("legacymix"),
    cpp("streamchurn"),
    cpp("threadchurn"),
    cpp("ipc"),
    cpp("mapped_flags", 5, compare=False),
    cpp("fork_after"),
    cpp("fork_before", 5, modes="abc"),
    cpp("endings", 12, limit=60, modes="abc"),
    py("torch_profiler", 15, modes="abc"),
    py("torch_allocs"),
    py("blocking"),
    py("generate", 15),
    cpp("syncloop"),
    cpp("tiny"),
    cpp("tiny_driver"),
    cpp("onecpu"),
    cpp("alarms"),
    cpp("closefds"),
    cpp("smallstack"),
    cpp("dlopen"),
    cpp("shim", known="exec puts the interposer in front of other preloads, and it calls the driver itself"),
    cpp("modules"),
    cpp("pool"),
    cpp("vmm"),
    cpp("pinned", 6),
    cpp("managed", 4),
    cpp("longkernel", 4),
    cpp("eight", 6, modes="abc"),
    cpp("cleanenv", modes="ab"),
    cpp("inversion_pipe", 4),
    cpp("inversion_gpu", modes="ab", known="a cycle; max_hold of 10 s ends each hold"),
    py("torch_spawn8", 25, modes="abc"),
    py("gp_and_gcn", 15, modes="abc"),
    py("numpyro_nuts", 25, modes="abc"),
    py("torch_ddp", 20, gpus=2, known="docs: give the whole group one priority, none next to critical jobs"),
    py("jax_pmap", 20, gpus=2),
    dataclasses.replace(py("torch_ddp", 20, gpus=4), name="torch_ddp4"),
]


@dataclasses.dataclass
class Result:
    rc: int
    wall: float
    hung: bool
    sum: str
    rate: float
    note: str
    errors: list[str]
    said: list[str]  # lines of Sluice
    fell: str = ""

    @property
    def fine(self):
        return self.rc == 0 and not self.hung and self.sum != ""


class Lane:
    """Runs programs one after the other on its GPUs, in a session of its own."""

    def __init__(self, gpus: list[int], options):
        self.gpus, self.options = gpus, options
        name = "-".join(map(str, gpus))
        self.env = dict(os.environ, SLUICE_SESSION=f"hostile-{os.getpid()}-{name}", PYTHONPATH=str(HERE / "py"))
        self.env["TORCHINDUCTOR_CACHE_DIR"] = f"/tmp/hostile-inductor-{name}"
        if not SIM:
            self.env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        else:
            self.env["SLUICE_HOSTILE_SIM"] = "1"
        self.neighbour = None
        self.neighbour_out = None

    def command(self, program: Program, mode: str) -> list[str]:
        own = [str(Path(self.options.bin) / "hostile"), program.name, *program.args]
        if program.kind == "py":
            own = [
                PYTHON,
                str(
                    HERE
                    / "py"
                    / f"{program.name.removesuffix('4') if program.name == 'torch_ddp4' else program.name}.py"
                ),
            ]
        return self.wrap(own, {"b": 1, "c": 0}.get(mode), program.name)

    def wrap(self, own: list[str], priority: int | None, name: str) -> list[str]:
        gpu = ["--gpu", "sim"] if SIM else []
        if priority is None:
            return [SLUICE, "exec", *gpu, "--no-intercept", "--", *own] if SIM else own
        return [SLUICE, "exec", *gpu, "--priority", str(priority), "--name", name, "--", *own]

    def run(self, program: Program, mode: str, limit: float) -> Result:
        folder = Path(self.options.out) / program.name
        folder.mkdir(parents=True, exist_ok=True)
        env = dict(self.env)
        if program.name == "shim":
            env["LD_PRELOAD"] = str(Path(self.options.bin) / "libshim.so")
        begin = time.monotonic()
        with open(folder / f"{mode}.out", "w") as out, open(folder / f"{mode}.err", "a") as err:
            process = subprocess.Popen(
                self.command(program, mode),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=env,
                start_new_session=True,
                cwd="/tmp",
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
        errors = (folder / f"{mode}.err").read_text(errors="replace").splitlines()
        found = re.findall(r"^sum=(\w+) rate=([\d.einf+-]+) ?(.*)$", text, re.M)
        value, rate, note = found[-1] if found else ("", "0", "")
        said = [line for line in errors if line.startswith("sluice[")]
        errors = [line for line in errors if not line.startswith("sluice[")]
        return Result(process.returncode, wall, hung, value, float(rate), note, errors, said)

    def look_at(self, pid: int) -> str:
        """What a hang looks like: status, and where the threads of the whole group are."""
        said = []
        try:
            said.append(
                subprocess.run([SLUICE, "status"], env=self.env, capture_output=True, text=True, timeout=5).stdout
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            said.append(f"no status: {error}")
        group = subprocess.run(
            ["ps", "-o", "pid=", "--forest", "-g", str(pid)], capture_output=True, text=True
        ).stdout.split()
        for member in group[:4]:
            process = Path(f"/proc/{member}")
            said.append(f"== pid {member}: {(process / 'cmdline').read_bytes()[:300] if process.exists() else '?'}")
            if shutil.which("gdb"):
                try:
                    shown = subprocess.run(
                        ["gdb", "-p", member, "-batch", "-ex", "thread apply all bt 14"],
                        capture_output=True,
                        text=True,
                        timeout=20,
                    )
                    said.append(shown.stdout[-12000:])
                    continue
                except subprocess.TimeoutExpired:
                    said.append("gdb hung")
            for task in sorted((process / "task").glob("*"))[:40]:
                with contextlib.suppress(OSError):
                    said.append(
                        " ".join([task.name, *((task / of).read_text() for of in ("comm", "wchan", "syscall"))])
                    )
        return "\n".join(said)

    def start_neighbour(self, under: bool) -> None:
        env = dict(self.env)
        if not SIM:
            env["CUDA_VISIBLE_DEVICES"] = str(self.gpus[0])
        own = self.wrap([SPIN, *NEIGHBOUR], 1 if under else None, "neighbour")
        name = f"neighbour-{self.env['SLUICE_SESSION'].rsplit('-', 1)[-1]}.txt"
        self.neighbour_out = (Path(self.options.out) / name).open("a+")
        self.neighbour = subprocess.Popen(
            own, stdout=self.neighbour_out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        time.sleep(1.5)

    def stop_neighbour(self) -> str:
        """The last line of the neighbour: its latency."""
        if self.neighbour is None:
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

    def judge(self, program: Program) -> dict:
        r: dict[str, Result] = {}
        r["a"] = self.run(program, "a", program.limit)
        if not r["a"].fine:
            return verdict(program, r, "MINE", why(r["a"]))
        r["b"] = self.run(program, "b", max(3 * r["a"].wall, r["a"].wall + 10))
        slow = r["b"].fine and r["b"].rate < 0.95 * r["a"].rate
        differs = program.compare and r["b"].fine and r["b"].sum != r["a"].sum
        if (slow or differs) and time.monotonic() + 2 * r["a"].wall < self.options.deadline:
            again_a = self.run(program, "a", program.limit)
            if differs and again_a.fine and again_a.sum != r["a"].sum:
                return verdict(program, r, "MINE", "the sum differs without Sluice, too")
            again_b = self.run(program, "b", max(3 * r["a"].wall, r["a"].wall + 10))
            if again_a.fine and again_a.rate > r["a"].rate:
                r["a"] = again_a
            if again_b.fine and again_b.rate > r["b"].rate:
                r["b"] = again_b
        neighbours = {}
        for mode, under in (("d", False), ("c", True)):
            if mode not in program.modes or time.monotonic() + 2 * r["a"].wall > self.options.deadline:
                continue
            self.start_neighbour(under)
            base = r["d"].wall if "d" in r and r["d"].fine else r["a"].wall
            r[mode] = self.run(
                program, mode, max(5 * r["a"].wall, r["a"].wall + 15) if mode == "d" else max(4 * base, base + 20)
            )
            neighbours[mode] = self.stop_neighbour()
        return verdict(program, r, "", "", neighbours)


def why(result: Result) -> str:
    what = "hangs" if result.hung else f"exit {result.rc}" if result.rc >= 0 else f"signal {-result.rc}"
    return f"{what}: {' | '.join(result.errors[-4:])[:500]}"


def verdict(program: Program, r: dict[str, Result], word: str, reason: str, neighbours: dict | None = None) -> dict:
    reasons = [reason] if reason else []
    words = [word] if word else []
    for mode in ("b", "c"):
        if word or mode not in r:
            continue
        if mode == "c" and "d" in r and not r["d"].fine:
            reasons.append(f"d (without Sluice, next to the neighbour) fails, too: {why(r['d'])}")
            continue
        if r[mode].hung:
            words.append("HANG")
            reasons.append(
                f"{mode} hangs ({r[mode].wall:.0f} s; {'/'.join(f'{m} {r[m].wall:.1f} s' for m in r if m not in 'bc')})"
            )
        elif not r[mode].fine:
            words.append("CRASH")
            reasons.append(f"{mode}: {why(r[mode])}")
        elif program.compare and r[mode].sum != r["a"].sum:
            words.append("DIFFERS")
            reasons.append(f"{mode}: {r[mode].sum} {r[mode].note} instead of {r['a'].sum} {r['a'].note}")
    if not word and "b" in r and r["b"].fine:
        if r["b"].rate < 0.95 * r["a"].rate:
            words.append("SLOW")
            reasons.append(f"b has {r['b'].rate / r['a'].rate:.2f} of a's rate")
        if r["b"].wall > 1.3 * r["a"].wall + 2:
            words.append("SLOW")
            reasons.append(f"b takes {r['b'].wall:.1f} s from start to end, a {r['a'].wall:.1f} s")
    if not word and "c" in r and "d" in r and r["c"].fine and r["d"].fine and r["c"].rate < 0.5 * r["d"].rate:
        words.append("SLOW")
        reasons.append(f"c has {r['c'].rate / r['d'].rate:.2f} of d's rate")
    for mode, said in (neighbours or {}).items():
        if said.startswith("THE NEIGHBOUR"):
            words.append("NEIGHBOUR")
            reasons.append(f"{mode}: {said}")
    said = sorted({re.sub(r"^sluice\[\d+\]: ", "", line) for m in ("b", "c") if m in r for line in r[m].said})
    return {
        "program": program.name,
        "words": sorted(set(words)) or ["PASS"],
        "reasons": reasons,
        "known": program.known,
        "said": said,
        "neighbours": neighbours or {},
        "runs": {
            m: {"rate": x.rate, "wall": round(x.wall, 2), "rc": x.rc, "sum": x.sum, "note": x.note}
            for m, x in r.items()
        },
    }


def show(line: dict, seconds: float) -> str:
    rates = " ".join(f"{m}={x['rate']:.5g}" for m, x in line["runs"].items())
    runs = line["runs"]
    ratios = ""
    if "b" in runs and runs["a"]["rate"]:
        ratios += f" b/a={runs['b']['rate'] / runs['a']['rate']:.2f}"
    if "c" in runs and "d" in runs and runs["d"]["rate"]:
        ratios += f" c/d={runs['c']['rate'] / runs['d']['rate']:.2f}"
    notes = " ".join(sorted({x["note"] for x in runs.values() if x["note"]}))
    text = f"{'+'.join(line['words']):8} {line['program']:16} {rates}{ratios} [{seconds:.0f} s] {notes}"
    for reason in line["reasons"]:
        text += f"\n           {reason}"
    if line["known"] and line["words"] != ["PASS"]:
        text += f"\n           known: {line['known']}"
    for said in line["said"][:4]:
        text += f"\n           said: {said[:200]}"
    for mode, said in line["neighbours"].items():
        p = re.search(r"p50 \S+ ms, p99 \S+ ms", said)
        text += f"\n           neighbour in {mode}: {p.group(0)}" if p and line["words"] != ["PASS"] else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="0: all")
    parser.add_argument("which", nargs="*", default=["all"])
    options = parser.parse_args()
    begin = time.monotonic()
    options.deadline = begin + options.seconds
    gpus = options.gpus
    if gpus == 0:
        gpus = (
            1 if SIM else len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
        )
    names = {p.name for p in PROGRAMS}
    unknown = [w for w in options.which if w not in names | {"all", "cpp", "py", "multi"}]
    if unknown:
        sys.exit(f"no such program or set: {unknown}")
    wanted = [
        p
        for p in PROGRAMS
        if "all" in options.which
        or p.name in options.which
        or ("multi" in options.which and p.gpus > 1)
        or (p.kind in options.which and p.gpus == 1)
    ]
    if SIM:
        wanted = [p for p in wanted if p.name in SIMULATED]
        for p in wanted:
            p.args = SIMULATED[p.name]
    lock = threading.Lock()
    results = []

    def work(lane: Lane, queue: list[Program]) -> None:
        while True:
            with lock:
                # One whose runs do not fit any more makes room for a shorter one.
                fits = [p for p in queue if time.monotonic() + 2.5 * p.wall < options.deadline]
                if not fits:
                    return
                program = fits[0]
                queue.remove(program)
            start = time.monotonic()
            try:
                line = lane.judge(program)
            except Exception as error:
                line = {
                    "program": program.name,
                    "words": ["MINE"],
                    "reasons": [f"run.py: {error!r}"],
                    "known": "",
                    "said": [],
                    "neighbours": {},
                    "runs": {},
                }
                lane.stop_neighbour()
            with lock:
                results.append(line)
                print(show(line, time.monotonic() - start), flush=True)
                with open(Path(options.out) / "results.jsonl", "a") as file:
                    file.write(json.dumps(line) + "\n")

    def phase(lanes: list[list[int]], queue: list[Program]) -> None:
        threads = [threading.Thread(target=work, args=(Lane(lane, options), queue)) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    one = [p for p in wanted if p.gpus == 1]
    two = [p for p in wanted if p.gpus == 2 and p.gpus <= gpus]
    more = [p for p in wanted if p.gpus > 2 and p.gpus <= gpus]
    if two:
        phase([[i, i + 1] for i in range(0, gpus - 1, 2)], two)
    if more:
        phase([list(range(4))], more)
    phase([[i] for i in range(gpus)], one)
    missing = sorted(names_of(wanted) - {line["program"] for line in results})
    counts: dict[str, int] = {}
    for line in results:
        counts["+".join(line["words"])] = counts.get("+".join(line["words"]), 0) + 1
    print(f"== {counts}; {time.monotonic() - begin:.0f} s on {gpus} GPUs; not run: {' '.join(missing) or 'none'}")


def names_of(programs: list[Program]) -> set[str]:
    return {p.name for p in programs}


if __name__ == "__main__":
    main()
