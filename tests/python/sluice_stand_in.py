"""Stand-ins for `sluice` and the MPS daemon, which take no GPU."""

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
    name = args[1]
    if name.startswith("pid:"):
        with open(os.path.join(state, "name." + name.removeprefix("pid:"))) as file:
            name = file.read()
    with open(os.path.join(state, "settings.txt"), "a") as file:
        file.write(" ".join([name, *args[2:args.index("--session")]]) + "\\n")
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


def _program(path: Path, text: str):
    path.write_text(text)
    path.chmod(0o755)


class StandIns:
    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        self.sluice = folder / "sluice"
        _program(self.sluice, _SLUICE.format(python=sys.executable, state=str(self.state)))
        _program(folder / "nvidia-cuda-mps-control", "")

    def settings(self) -> list:
        """Name of the client, and what `sluice set` was asked for it, in order."""
        file = self.state / "settings.txt"
        return file.read_text().splitlines() if file.exists() else []

    def client_pids(self) -> list:
        return [int(file.name) for session in self.state.iterdir() if session.is_dir() for file in session.iterdir()]

    def daemon_pids(self) -> list:
        return [int(pid) for pid in (self.state / "daemons.txt").read_text().split()]
