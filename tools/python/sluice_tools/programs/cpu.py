"""Running programs on this CPU: times of llvm programs, and reference results."""

import os
import time as clock
from pathlib import Path
from typing import Any

import numpy
import tvm
from tvm.target import Target

from sluice_tools.common.errors import usage_error
from sluice_tools.programs.networks import Task

# TVM reads these once, when its threads start: as many as `time` may ask for, placed by the system.
os.environ |= {"TVM_NUM_THREADS": str(os.cpu_count()), "TVM_BIND_THREADS": "0"}
LONGEST_S = 1.0
_TOLERANCE = 1e-3  # relative to the largest magnitude of the expected output


def values(buffer: dict, random_numbers: numpy.random.Generator) -> numpy.ndarray:
    if buffer["dtype"].startswith("float"):
        return random_numbers.uniform(-1, 1, buffer["shape"]).astype(buffer["dtype"])
    # Integers are positions in a table (embeddings), of which every table has two.
    return random_numbers.integers(0, 2, buffer["shape"]).astype(buffer["dtype"])


def reference(task: Task, seed: int) -> list[numpy.ndarray]:
    """The task's buffers after a run of its unscheduled program: inputs from `seed`, and the expected outputs."""
    random_numbers = numpy.random.default_rng(seed)
    arrays = [numpy.zeros(b["shape"], b["dtype"]) if b["output"] else values(b, random_numbers) for b in task.buffers()]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.tirx.build(task.mod, target=Target({"kind": "llvm"}))["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def write_reference(task: Task, seed: int, folder: str) -> None:
    """Raises OSError with the name of the file."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, array in enumerate(reference(task, seed)):
        file = Path(folder) / f"{number}.bin"
        try:
            file.write_bytes(numpy.ascontiguousarray(array).tobytes())
        except OSError as error:  # that of a write has no name
            raise OSError(error.errno, error.strerror, str(file)) from None


class Timer:
    """Times programs. Keeps the data of the last task and the last program, so that timing it again is cheap."""

    def __init__(self):
        self._task, self._expected = "", []
        self._index, self._tensors = -1, []
        self._program: Any = None

    def time(self, task: Task, index: int, threads: int, repeats: int, min_ms: float) -> tuple[list[float], bool]:
        """Seconds of a run in each repeat, and whether the outputs are the expected ones.

        No seconds: a run took more than LONGEST_S.
        """
        if not 1 <= threads <= (os.cpu_count() or 1):
            raise usage_error(f"threads {threads} is not from 1 to {os.cpu_count()}, the processors here")
        tvm.get_global_func("runtime.config_threadpool")(1, threads)
        self._prepare(task, index)
        begin = clock.perf_counter()
        self._program["main"](*self._tensors)
        if clock.perf_counter() - begin > LONGEST_S:
            return [], self._correct(task)
        timer = self._program.time_evaluator("main", tvm.cpu(), number=1, repeat=repeats, min_repeat_ms=int(min_ms))
        return list(timer(*self._tensors).results), self._correct(task)

    def _prepare(self, task: Task, index: int) -> None:
        if self._task != task.id:
            self._expected, self._task, self._index = reference(task, 0), task.id, -1
        if self._index != index:
            self._program = tvm.tirx.build(task.space.schedule(index).mod, target=task.target)
            self._index = index
        self._tensors = [
            tvm.runtime.tensor(numpy.zeros_like(array) if buffer["output"] else array)
            for buffer, array in zip(task.buffers(), self._expected)
        ]

    def _correct(self, task: Task) -> bool:
        results = zip(self._tensors, self._expected, task.buffers())
        return all(_close(tensor.numpy(), expected) for tensor, expected, b in results if b["output"])


def _close(found: numpy.ndarray, expected: numpy.ndarray) -> bool:
    if not numpy.isfinite(found).all():
        return bool(numpy.array_equal(numpy.isnan(found), numpy.isnan(expected)))
    return bool(
        numpy.abs(found - expected).max(initial=0) <= _TOLERANCE * max(numpy.abs(expected).max(initial=0), 1e-6)
    )
