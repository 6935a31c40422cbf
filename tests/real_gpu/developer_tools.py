#!/usr/bin/env python3
"""NVIDIA's developer tools and a checkpoint of a process, with programs under Sluice on a real GPU.

usage: developer_tools.py [ROOT]        ROOT has a finished ./x build; about two minutes

Prints a line for each case: pass, FAIL, or skipped where the machine lacks the tool. Each tool runs inside `sluice
exec` (sluice exec -- TOOL PROGRAM) and around it (TOOL sluice exec -- PROGRAM). It must end as without Sluice, and have
seen the program's kernels. A checkpoint (cuCheckpointProcess* of the driver) takes a best-effort client off the GPU,
next to a critical one, and back: its launches must go on.
Exit codes: 0 nothing failed, 1 a case failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 120
_CUDA_BIN = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/nsight-compute")


class Machine:
    def __init__(self, root: Path):
        self.sluice = str(root / "build/bin/sluice")
        self.spin = str(root / "build/libexec/sluice/sluice-example-spin")
        self.failed = False
        self.environment = {**os.environ, "SLUICE_SESSION": f"tools-{os.getpid()}"}

    def report(self, case: str, verdict: str, detail: str = "") -> None:
        self.failed = self.failed or verdict == "FAIL"
        print(f"{case:<44} {verdict:<8} {detail}", flush=True)

    def exec(self, priority: int, *program: str) -> list[str]:
        return [self.sluice, "exec", "--priority", str(priority), "--", *program]

    def run(self, command: list[str]) -> tuple[int, str]:
        """The exit code and all output; 124 after LIMIT_S."""
        try:
            done = subprocess.run(
                command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            return 124, (error.output or b"").decode(errors="replace")
        return done.returncode, done.stdout.decode(errors="replace")

    def clients(self) -> dict[int, dict]:
        code, text = self.run([self.sluice, "status", "--json"])
        return {client["pid"]: client for client in json.loads(text)["clients"]} if code == 0 else {}


def find(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path=os.pathsep.join(_CUDA_BIN))


def tool_cases(machine: Machine) -> None:
    program = [machine.spin, "--kernels", "20", "--jobs", "3"]
    tools = {
        "compute-sanitizer": (["--tool", "memcheck"], ["--target-processes", "all"], "ERROR SUMMARY: 0 errors"),
        "ncu": (["--launch-count", "3"], ["--target-processes", "all"], "spin"),
        "cuda-gdb": (["-batch", "-ex", "run", "--args"], ["-ex", "set follow-fork-mode child"], "exited normally"),
        "nsys": (["profile", "--stats=false", "-o", "/dev/null", "-f", "true"], [], ""),
    }
    for tool, (options, around, expected) in tools.items():
        path = find(tool)
        if path is None:
            machine.report(tool, "skipped", "not on this machine")
            continue
        alone, said_alone = machine.run([path, *options, *program])
        commands = {
            "inside sluice exec": machine.exec(0, path, *options, *program),
            "around sluice exec": [path, *around, *options, *machine.exec(0, *program)],
        }
        for where, command in commands.items():
            code, said = machine.run(command)
            works = code == alone and (expected in said or expected not in said_alone)
            verdict = "pass" if works else "FAIL"
            last = (said.strip().splitlines() or [""])[-1]
            machine.report(f"{tool} {where}", verdict, f"rc {code} (without Sluice {alone}); {last[:90]}")


def checkpoint_case(machine: Machine) -> None:
    case = "checkpoint and restore of a best-effort client"
    try:
        from cuda.bindings import driver
    except ImportError:
        machine.report(case, "skipped", "no cuda.bindings")
        return
    (error,) = driver.cuInit(0)
    if error != driver.CUresult.CUDA_SUCCESS or not hasattr(driver, "cuCheckpointProcessLock"):
        machine.report(case, "skipped", f"the driver has no checkpoints ({error})")
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open(Path(folder) / "log", "w+"))
        spin = [machine.spin, "--kernels", "20", "--kernel-us", "500", "--seconds", "60"]
        low = subprocess.Popen(machine.exec(0, *spin), env=machine.environment, stdout=log, stderr=log)
        high = subprocess.Popen(
            machine.exec(9, machine.spin, "--kernels", "5", "--period-ms", "20", "--seconds", "60"),
            env=machine.environment, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            time.sleep(8)
            steps(machine, case, driver, low)
        finally:
            for each in (low, high):
                each.terminate()
            for each in (low, high):
                try:
                    each.wait(10)
                except subprocess.TimeoutExpired:
                    each.kill()
            log.seek(0)
            for line in log.read().splitlines():
                if "sluice[" in line:
                    print("   ", line)


def steps(machine: Machine, case: str, driver, low: subprocess.Popen) -> None:
    pid = low.pid
    before = machine.clients().get(pid)
    if before is None:
        machine.report(case, "FAIL", "the program is no client")
        return
    answers = {}
    for step in ("Lock", "Checkpoint", "Restore", "Unlock"):
        call = getattr(driver, f"cuCheckpointProcess{step}")
        begin = time.monotonic()
        (error,) = call(pid, None)
        answers[step] = f"{error.name} {(time.monotonic() - begin) * 1e3:.0f} ms"
        if error != driver.CUresult.CUDA_SUCCESS and step in ("Lock", "Checkpoint"):
            if step == "Checkpoint":
                driver.cuCheckpointProcessUnlock(pid, None)
            break
    time.sleep(3)
    first = machine.clients().get(pid, {})
    time.sleep(2)
    after = machine.clients().get(pid, {})
    goes_on = low.poll() is None and after.get("launches", 0) > first.get("launches", 0)
    detail = (
        f"{answers}; launches {first.get('launches')} -> {after.get('launches')}, held {after.get('held_total_ns')}"
    )
    machine.report(case, "pass" if goes_on else "FAIL", detail)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) == 2 else Path(__file__).parents[2]).resolve()
    machine = Machine(root)
    tool_cases(machine)
    checkpoint_case(machine)
    return 1 if machine.failed else 0


if __name__ == "__main__":
    sys.exit(main())
