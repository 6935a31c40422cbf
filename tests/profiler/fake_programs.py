#!/usr/bin/env python3
"""Stands in for `sluice programs serve`, as $SLUICE_TVM_PYTHON: a network of two tasks, no TVM.

Every fifth program is refused, every seventh computes something wrong, and the program with index 41 is the fastest.
A second thread halves the time, more do nothing. Programs 43 to 46 end the server, are too slow, vary the first time
they are timed, and always vary. For GPUs, a program has a kernel more for each number of its index above 1, and the
one with index 3 is not C; TVM's own schedule has two kernels. The tasks of the network `large` have 8,400 programs,
and those of the others 84. The second task of `refused` refuses all programs, and the tasks of `once` cannot be
loaded when a server has ended. In the second task of `fatal`, programs 7, 9 and all from 60 end the server when they
are made; each that is to be made adds a line to the file `asked`. TVM's own schedule ends the server for the second
task of `fatal_default`, and for both tasks of `fatal_defaults`. `empty` has no task; `slow` takes 1.5 s. `referenced`
has inputs and expected outputs of zeros, `half` a part of them, the others have none. Each server that imports
`counted`, or loads its tasks, adds a line to the file `servers`. A file of saved tasks has the request that imported
them. Its arguments are ignored.
"""

import json
import os
import sys
import time

networks: set[str] = set()
imported: set[str] = set()
timed: set[tuple[int, int]] = set()


def task(name: str, choices: int) -> dict:
    buffers = [
        {"shape": [16, 16], "dtype": "float32", "output": False},
        {"shape": [16, 16], "dtype": "float32", "output": True},
    ]
    knobs = [
        {"name": "tile_0", "type": "sp", "extent": 64, "parts": 2, "max_innermost": 64},
        {"name": "choice_1", "type": "ot", "values": list(range(choices))},
    ]
    return {
        "kind": "task",
        "task": name * 16,
        "name": f"fused_{name}",
        "workload_key": "[]",
        "flop": 512,
        "buffers": buffers,
        "sketches": [{"knobs": knobs}],
    }


def program(task_id: str, index: int, want: list[str], kernels: int | None = None) -> dict:
    if index % 5 == 0 or task_id[0] == "r":
        return {"error": "no valid schedule"}
    made = {"kind": "program", "id": f"{task_id[:8]}{index:08}", "task": task_id, "sketch": 0, "index": index}
    made["entity"] = []
    if "features" in want:
        made |= {"features": [[float(index)] * 164], "position": [2], "nodes": 3}
    if "source" in want or "kernels" in want:
        kernel = {"name": "add", "grid": [8, 1, 1], "block": [128, 1, 1], "shared": 0, "args": [0, 1]}
        made |= {"kernels": [kernel] * (kernels or index), "extra": []}
    if "source" in want:
        made["source"] = (
            "int add( {" if index == 3 else 'extern "C" __global__ void add(float* a, float* b) {\n  b[0] = a[0];\n}\n'
        )
    return made


def apply(request: dict) -> dict:
    return {"programs": [program(request["task"], index, request["want"]) for index in request["indices"]]}


def know(network: dict, how: str) -> str:
    """Returns the letter of the network's second task."""
    other = {"refused": "r", "fatal": "f", "fatal_default": "d"}.get(network["name"], "b")
    networks.add(network["name"])
    imported.update("a" + other)
    if network["name"] == "counted":
        with open("servers", "a") as servers:
            print(how, file=servers)
    return other


def answer(request: dict) -> dict:
    match request["do"]:
        case "hello":
            return {"version": 1, "tvm": "0.27.0", "ffi": "0", "features": 164}
        case "import" if "tasks" in request:
            with open(request["tasks"]) as saved:
                network = json.load(saved)
            if network["name"] == "once" and os.path.exists("ended"):
                raise ValueError("once: a second time")
            know(network, "loads")
            return {}
        case "import" if request["name"] == "broken":
            raise ValueError("broken: not a network")
        case "import":
            if request["name"] == "slow":
                time.sleep(1.5)
            other = know(request, "imports")
            with open(request["save"], "w") as saved:
                json.dump(request, saved)
            calls = [{"task": "a" * 16, "after": []}, {"task": other * 16, "after": [0]}]
            calls.append({"task": "a" * 16, "after": [1]})
            network = {"kind": "network", "name": request["name"], "batch": request["batch"], "calls": calls}
            if request["name"] == "empty":
                return {"network": network | {"calls": []}, "tasks": []}
            choices = 1200 if request["name"] == "large" else 12
            return {"network": network, "tasks": [task("a", choices), task(other, choices)]}
        case "apply" | "default" | "time" if request["task"][0] not in imported:
            raise ValueError("of no network that was imported")
        case "apply" if request["task"][0] == "f":
            with open("asked", "a") as asked:
                print(*request["indices"], sep="\n", file=asked)
            if any(index in (7, 9) or index >= 60 for index in request["indices"]):
                os._exit(4)
            return apply(request)
        case "apply" if any(index >= 84 for index in request["indices"]) and "large" not in networks:
            return {"programs": [{"error": "past the last program"}] * len(request["indices"])}
        case "reference" if "half" in networks:
            os.makedirs(request["folder"])
            with open(f"{request['folder']}/0.bin", "wb") as file:
                file.write(bytes(10))
            raise ValueError("the disk is full")
        case "reference" if "referenced" in networks:
            os.makedirs(request["folder"])
            for number in (0, 1):
                with open(f"{request['folder']}/{number}.bin", "wb") as file:
                    file.write(bytes(4 * 16 * 16))
            return {}
        case "reference":
            raise ValueError("no reference")
        case "apply":
            return apply(request)
        case "default" if request["task"][0] == "d" or "fatal_defaults" in networks:
            os._exit(5)
        case "default":
            return {"program": program(request["task"], 84, ["source"], kernels=2)}
        case "time" if request["index"] == 43:
            if "once" in networks:
                open("ended", "w").close()
            os._exit(3)
        case "time" if request["index"] == 44:
            return {"seconds": [], "correct": True}
        case "time" if request["index"] in (45, 46):
            key = (request["index"], request["threads"])
            varies = key not in timed or request["index"] == 46
            timed.add(key)
            return {"seconds": [9e-3] * 4 + [18e-3 if varies else 9e-3], "correct": True}
        case "time":
            seconds = 1e-3 * (1 + abs(request["index"] - 41)) / min(request["threads"], 2)
            return {"seconds": [seconds] * 5, "correct": request["index"] % 7 != 0}
    raise ValueError(f"unknown request {request['do']}")


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"ok": True, **answer(request)}
        except ValueError as error:
            reply = {"ok": False, "error": str(error)}
        print(json.dumps({"id": request["id"], **reply}), flush=True)


main()
