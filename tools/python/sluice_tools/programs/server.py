"""The program server: one JSON request a line on standard input, one answer a line on standard output."""

import json
import os
import sys
from collections.abc import Callable

from sluice_tools.common.errors import CommandError, first_line
from sluice_tools.programs import tvm_setup


class BadRequest(Exception):
    """The request itself is wrong; its text is the answer's error."""


class Server:
    def __init__(self):
        self._tasks: dict = {}
        self._timer = None
        self._actions: dict[str, Callable[[dict], dict]] = {
            "hello": self._hello, "import": self._import, "sample": self._sample, "apply": self._apply,
            "default": self._default, "time": self._time, "reference": self._reference,
        }  # fmt: skip

    def answer(self, line: str) -> dict:
        """Never raises: each line has one answer."""
        number = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise BadRequest("a request is a JSON object")
            number = request.get("id")
            action = self._actions.get(str(request.get("do")))
            if action is None:
                raise BadRequest(f'"do" is {request.get("do")!r}, not one of {", ".join(self._actions)}')
            return {"id": number, "ok": True, **action(request)}
        except (CommandError, BadRequest) as error:
            return {"id": number, "ok": False, "error": str(error)}
        except KeyError as error:
            return {"id": number, "ok": False, "error": f"the request has no {error}"}
        except Exception as error:  # TVM raises errors of many classes
            return {"id": number, "ok": False, "error": first_line(error)}

    def _task(self, request: dict):
        task = self._tasks.get(request["task"])
        if task is None:
            raise BadRequest(f"task '{request['task']}' is of no network that was imported")
        return task

    def _hello(self, _: dict) -> dict:
        tvm_setup.check_versions()  # if TVM is missing, the command that asks says so in its own line
        from sluice_tools.programs.lowered import FEATURES

        return {"version": 1, "tvm": tvm_setup.TVM_VERSION, "ffi": tvm_setup.FFI_VERSION, "features": FEATURES}

    def _import(self, request: dict) -> dict:
        from sluice_tools.programs import catalog

        if "tasks" not in request:
            catalog.check(request["name"], request.get("source"))
        tvm_setup.load()
        from sluice_tools.programs import models, networks

        target = tvm_setup.target_of(request["target"])
        if "tasks" in request:
            self._tasks |= {task.id: task for task in networks.load(request["tasks"], target)}
            return {}
        name, batch = request["name"], int(request.get("batch", 1))
        mod = models.load(request.get("source") or catalog.source_of(name), name, batch)
        network, tasks = networks.extract(name, batch, mod, target)
        self._tasks |= {task.id: task for task in tasks}
        if "save" in request:
            networks.save(tasks, request["save"])
        return {"network": network, "tasks": [task.line() for task in tasks]}

    def _sample(self, request: dict) -> dict:
        task, want = self._task(request), set(request.get("want", ["source", "features"]))
        from sluice_tools.programs import programs

        lines, left_out = programs.sample(task, int(request["count"]), int(request["seed"]), want)
        return {"programs": lines, "left_out": left_out}

    def _apply(self, request: dict) -> dict:
        task, lines = self._task(request), []
        from sluice_tools.programs import programs
        from sluice_tools.programs.lowered import Unusable
        from sluice_tools.programs.space import Refused

        for index in request["indices"]:
            try:
                lines.append(programs.describe(task, index, set(request.get("want", ()))))
            except (Refused, Unusable, IndexError) as error:
                lines.append({"error": str(error)})
        return {"programs": lines}

    def _default(self, request: dict) -> dict:
        task = self._task(request)
        from sluice_tools.programs import programs
        from sluice_tools.programs.lowered import Unusable

        if task.target.kind.name != "cuda":
            raise BadRequest("TVM has schedules of its own for target cuda only")
        try:
            return {"program": programs.describe_default(task)}
        except Unusable as error:
            return {"program": {"error": str(error)}}

    def _time(self, request: dict) -> dict:
        task = self._task(request)
        from sluice_tools.programs import cpu

        if task.target.kind.name != "llvm":
            raise BadRequest("only programs of target llvm can be timed here")
        self._timer = self._timer or cpu.Timer()
        index, threads, repeats = int(request["index"]), int(request.get("threads", 1)), int(request.get("repeats", 5))
        seconds, correct = self._timer.time(task, index, threads, repeats, request.get("min_ms", 2))
        return {"seconds": seconds, "correct": correct}

    def _reference(self, request: dict) -> dict:
        task = self._task(request)
        from sluice_tools.programs import cpu

        cpu.write_reference(task, int(request["seed"]), request["folder"])
        return {}


def serve() -> int:
    # Libraries and their children may write to descriptor 1. Only answers may reach the client.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    server = Server()
    for line in sys.stdin:
        if line.strip():
            answers.write(json.dumps(server.answer(line), separators=(",", ":")) + "\n")
    return 0
