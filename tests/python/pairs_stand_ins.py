"""Stand-ins for `sluice`, the programs of `sluice bench pairs` and the MPS daemon: they speak the
same lines, take no GPU and no torch."""

import sys
from pathlib import Path

_SLUICE = """\
#!{python}
import json, os, sys, time
state = {state!r}
args = sys.argv[1:]
option = lambda name: args[args.index(name) + 1]
if args[0] == "exec":
    folder = os.path.join(state, option("--session"))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, str(os.getpid())), "w") as file:
        file.write(option("--policy"))
    with open(os.path.join(state, "name." + str(os.getpid())), "w") as file:
        file.write(option("--name") if "--name" in args else "")
    command = args[args.index("--") + 1:]
    if "--target" in args[:args.index("--")]:
        os.environ["SLUICE_TARGET"] = option("--target")
    os.execvp(command[0], command)
if args[0] == "--version":
    print("sluice 9.9")
    sys.exit()
if args[0] == "gpus":
    print('{{"devices": [{{"index": 0, "name": "stand-in", "uuid": "GPU-0"}}]}}')
    sys.exit()
if args[0] == "mps":
    with open(os.path.join(state, "daemons.txt"), "a") as file:
        file.write(str(os.getpid()) + "\\n")
    print("CUDA_MPS_PIPE_DIRECTORY=x\\n", flush=True)
    sys.stdin.read()
    sys.exit()
folder = os.path.join(state, option("--session"))
if args[0] == "set":
    pid = args[1].removeprefix("pid:")
    with open(os.path.join(state, "name." + pid)) as file:
        name = file.read()
    with open(os.path.join(state, "settings.txt"), "a") as file:
        file.write(" ".join([name, *args[2:args.index("--session")]]) + "\\n")
    if "--policy" not in args:
        sys.exit()
    with open(os.path.join(folder, pid), "w") as file:
        file.write(option("--policy"))
    with open(os.path.join(state, "set.txt"), "a") as file:
        file.write(option("--policy") + "\\n")
    print(json.dumps({{"clients": [{{"pid": int(pid), "policy": option("--policy"),
                                    "requested_policy": option("--policy")}}]}}))
if args[0] == "status":
    launches = int(time.monotonic() * 1000)
    entry = {{"entry": "cuLaunchKernel", "launches": launches, "gated": launches // 2, "captured": 0,
             "waited": 7, "held_ns": 0, "bypassed": {{"refused_wait": 0}}}}
    print(json.dumps({{"clients": [
        {{"pid": int(pid), "name": open(os.path.join(state, "name." + pid)).read(), "policy": "device:200us",
         "slice": {{"state": "short"}}, "closing": {{"state": "later", "level": 5}},
         "launches": launches, "bypassed": 0, "max_hold_opened": 0, "longest_ns": 1500, "held_total_ns": 0,
         "unknown_launches": 0, "ungated_graph_ns": 0, "coverage": [entry]}}
        for pid in os.listdir(folder)]}}))
"""

_CRITICAL = """\
import os, sys, time
from sluice_tools.bench.pairs import jobs
from sluice_tools.bench.pairs.protocol import answer, run_program
model = sys.argv[sys.argv.index("--model") + 1]
def obey(commands):
    answer("imported", torch="0")
    print("a line of some library", flush=True)
    sluice, work = jobs.Sluice(), lambda: time.sleep(0.001)
    while (command := commands.next())["do"] != "quit":
        if command["do"] == "load":
            answer("loaded", gpu="stand-in", attached=True,
                   announces="STAND_IN_OLD" not in os.environ)
        elif command["do"] == "calibrate":
            answer("calibrated", latency_ms=jobs.back_to_back(work, sluice, command["jobs"]))
        elif model == os.environ.get("STAND_IN_DIES"):
            sys.exit(3)
        else:
            answer("done", **jobs.serve(work, sluice, command, lambda: answer("measuring")))
sys.exit(run_program(obey))
"""

_BEST_EFFORT = """\
import sys, time
from sluice_tools.bench.pairs.protocol import answer, run_program
def obey(commands):
    answer("imported", torch="0")
    running = False
    while True:
        command = commands.next(wait=not running)
        do = command and command["do"]
        if do == "quit":
            return
        if do == "load":
            answer("loaded", gpu="stand-in")
        elif do == "capture":
            answer("captured")
        elif do == "run":
            running, ends = True, [time.monotonic_ns()]
            answer("running")
        elif do == "idle":
            running = False
            answer("idle", ends_ns=ends)
        if running:
            time.sleep(0.002)
            ends.append(time.monotonic_ns())
sys.exit(run_program(obey))
"""


def _program(path: Path, text: str):
    path.write_text(text)
    path.chmod(0o755)


class StandIns:
    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.sluice = folder / "sluice"
        _program(self.sluice, _SLUICE.format(python=sys.executable, state=str(self.state)))
        _program(self.programs / "critical.py", _CRITICAL)
        _program(self.programs / "best_effort.py", _BEST_EFFORT)
        _program(folder / "nvidia-cuda-mps-control", "")

    def policies_set(self) -> list:
        file = self.state / "set.txt"
        return file.read_text().split() if file.exists() else []

    def settings(self) -> list:
        """Name of the client, and what `sluice set` was asked for it, in order."""
        file = self.state / "settings.txt"
        return file.read_text().splitlines() if file.exists() else []

    def client_pids(self) -> list:
        return [int(file.name) for session in self.state.iterdir() if session.is_dir() for file in session.iterdir()]

    def daemon_pids(self) -> list:
        return [int(pid) for pid in (self.state / "daemons.txt").read_text().split()]
