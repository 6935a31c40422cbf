"""A stand-in for every program of `sluice bench programs`: takes no GPU and no packages.

STAND_IN_DIES, STAND_IN_HANGS, STAND_IN_LACKS: the name of a program that ends in the middle of a cell, does
not answer there, or lacks a package. STAND_IN_WRONG: one whose outputs differ from process to process.
STAND_IN_NOTES: a file for a line with the name, the client priority under MPS, the target and --announce-ms.
STAND_IN_GPUS: one for a line with the name and the GPUs that it sees. STAND_IN_TURNS: one for a line with the name, the
width under MPS and the command whenever it is told to run or to be idle.
"""

import os
import sys
import time

from sluice_tools.bench.common.protocol import answer, run_program
from sluice_tools.bench.programs.plan import program_of
from sluice_tools.bench.programs.requests import Server
from sluice_tools.bench.programs.steps import Steps

NAME = sys.argv[1]
ANNOUNCE_MS = float(sys.argv[sys.argv.index("--announce-ms") + 1]) if "--announce-ms" in sys.argv else 0.0


def is_to(what: str) -> bool:
    return os.environ.get(f"STAND_IN_{what}") == NAME


def request(index: int) -> bytes:
    time.sleep(0.001)
    return f"{index} {os.getpid() if is_to('WRONG') else ''}".encode()


def step():
    time.sleep(0.002)
    return lambda: None


def note():
    if file := os.environ.get("STAND_IN_NOTES"):
        values = (NAME, os.environ.get("CUDA_MPS_CLIENT_PRIORITY", "-"), os.environ.get("SLUICE_TARGET", "-"))
        values += (str(ANNOUNCE_MS),)
        with open(file, "a") as notes:
            notes.write(" ".join(values) + "\n")

    if file := os.environ.get("STAND_IN_GPUS"):
        with open(file, "a") as notes:
            notes.write(f"{NAME} {os.environ.get('CUDA_VISIBLE_DEVICES', '-')}\n")


def note_turn(do: str):
    if (file := os.environ.get("STAND_IN_TURNS")) and do in ("run", "idle"):
        with open(file, "a") as notes:
            notes.write(f"{NAME} {os.environ.get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE', 'all')} {do}\n")


def obey(commands):
    note()
    if is_to("LACKS"):
        raise ModuleNotFoundError("No module named 'gone'")
    print("a line of some library", flush=True)
    answer("imported")
    running, steps, server = False, Steps(step), Server(request, ANNOUNCE_MS)
    while (command := commands.next(wait=not running) or {"do": ""})["do"] != "quit":
        do = command["do"]
        note_turn(do)
        if do == "load":
            answer("loaded")
        elif do == "run" and is_to("DIES"):
            print("out of memory", file=sys.stderr)
            sys.exit(3)
        elif do == "run" and is_to("HANGS"):
            time.sleep(600)
        elif do == "run" and program_of(NAME).serves:
            answer("running")
            answer("idle", **(server.serve(command, commands.next) or {}))
        elif do == "run":
            running = True
            steps.begin()
            answer("running")
        elif do == "idle":
            running = False
            answer("idle", ends_ns=steps.finish())
        if running:
            steps.one()


sys.exit(run_program(obey))
