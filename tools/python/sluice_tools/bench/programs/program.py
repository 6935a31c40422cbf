"""One program of `sluice bench programs`, as a process that obeys commands (bench/common/protocol.py).

Commands: load; run (for a program that serves requests: period_ms, arrivals, seed); idle (for such a program: until_ns,
before which the last request arrives); quit. Run as
`python -m sluice_tools.bench.programs.program vit-graph --device cpu --tiny`. Without --announce-ms it calls nothing of
Sluice.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Callable

from sluice_tools.bench.common.protocol import answer, run_program
from sluice_tools.bench.programs.plan import Program, program_of
from sluice_tools.bench.programs.requests import INPUTS, Server
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.steps import Steps

_WARM_UPS = 3  # rounds of all inputs, or steps


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=program_of, metavar="NAME")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--announce-ms", type=float, default=0.0, help="announces each request so long before")
    return parser.parse_args()


def _serving(commands, request: Callable, announce_ms: float) -> None:
    for index in list(range(INPUTS)) * _WARM_UPS:
        request(index)
    answer("loaded")
    obey_requests(commands, Server(request, announce_ms))


def obey_requests(commands, server: Server) -> None:
    while (command := commands.next())["do"] == "run":
        gc.collect()  # takes long where PyTorch is loaded
        answer("running")
        done = server.serve(command, commands.next)
        if done is None:
            return
        answer("idle", **done)


def _stepping(commands, step: Callable) -> None:
    steps = Steps(step)
    for _ in range(_WARM_UPS):
        steps.one()
    steps.finish()
    answer("loaded")
    running = False
    while True:
        command = commands.next(wait=not running)
        if command and command["do"] == "quit":
            steps.finish()
            return
        if command and command["do"] == "run":
            running = True
            steps.begin()
            answer("running")
        elif command:
            running = False
            answer("idle", ends_ns=steps.finish())
        if running:
            steps.one()


def obey(commands, program: Program, setting: Setting, announce_ms: float) -> None:
    module, function = program.place.split(":")
    make = getattr(importlib.import_module(f"sluice_tools.bench.programs.{module}"), function)
    answer("imported")
    if commands.next()["do"] != "load":
        return
    made = make(setting)
    if program.serves:
        _serving(commands, made, announce_ms)
    else:
        _stepping(commands, made)


def main() -> int:
    options = _options()
    setting = Setting(options.device, options.tiny)
    return run_program(lambda commands: obey(commands, options.program, setting, options.announce_ms))


if __name__ == "__main__":
    sys.exit(main())
