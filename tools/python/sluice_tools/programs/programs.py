"""The line of one program of a task."""

import hashlib
import random
from collections.abc import Collection

from sluice_tools.programs import knobs
from sluice_tools.programs.lowered import Unusable, Walk, features, lower, walk
from sluice_tools.programs.networks import Task
from sluice_tools.programs.space import Refused
from sluice_tools.programs.tvm_setup import last_line

_TRIES = 60  # per wanted program: the GPU check refuses nine of ten random schedules of a convolution


def program_id(task: str, index: int) -> str:
    return hashlib.sha256(f"{task} {index}".encode()).hexdigest()[:16]


def describe(task: Task, index: int, want: set[str]) -> dict:
    """Raises Refused, Unusable or IndexError.

    `want` may have "features", and for a GPU "kernels", the launches, and "source", CUDA C and the launches: these two
    take most of the time, because TVM compiles the program for them. "registers" refuses programs that are likely to
    spill them.
    """
    schedule = task.space.schedule(index)
    sketch, entity = knobs.entity_of(task.space.sketches, index)
    line: dict = {"kind": "program", "id": program_id(task.id, index), "task": task.id}
    line |= {"sketch": sketch, "index": index, "entity": entity}
    walked = walk(lower(schedule))
    if task.target.kind.name == "cuda" and want & {"kernels", "source"}:
        line |= _launches(task, schedule, walked, want)
    if "features" in want:
        line |= _features(task, schedule, walked)
    return line


def _features(task: Task, schedule, walked: Walk) -> dict:
    rows, positions = features(task.space.context, schedule), [position for _, position in walked.leaves]
    if len(rows) != len(positions):
        raise Unusable(f"{len(rows)} rows of features, {len(positions)} stored buffers")
    return {"features": rows, "position": positions, "nodes": walked.nodes}


def describe_default(task: Task) -> dict:
    """The program of TVM's own schedule for a GPU (dlight), whole. Its index is the size of the space; no decisions.

    Raises Unusable.
    """
    from tvm import IRModule
    from tvm.s_tir import Schedule, dlight

    mod = IRModule({"main": task.function})  # a module of its own: dlight changes it
    rules = [dlight.gpu.Matmul(), dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.GeneralReduction()]
    try:
        with task.target:
            mod = dlight.ApplyDefaultSchedule(*rules, dlight.gpu.Fallback())(mod)
    except Exception as error:
        raise Unusable(f"TVM has no schedule for it: {last_line(error)}") from None
    schedule, index = Schedule(mod), task.space.size
    line: dict = {"kind": "program", "id": program_id(task.id, index), "task": task.id}
    line |= {"sketch": 0, "index": index, "entity": []}
    walked = walk(lower(schedule))
    return line | _launches(task, schedule, walked, {"source"}) | _features(task, schedule, walked)


def _launches(task: Task, schedule, walked: Walk, want: Collection[str]) -> dict:
    from sluice_tools.programs import cuda

    source = cuda.build(schedule, task.target)
    names = [str(buffer.name) for buffer in task.function.params]
    found: dict = {}
    found["kernels"], found["extra"] = cuda.kernels(source, walked, names, _scratch(schedule))
    if "registers" in want and cuda.likely_to_spill(found["kernels"]):
        raise Unusable("likely to spill registers")
    if "source" in want:
        found["source"] = source
    return found


def _scratch(schedule) -> dict[str, int]:
    """Bytes of each intermediate buffer in global memory."""
    found = {}
    for buffer in schedule.mod["main"].body.block.alloc_buffers:
        if buffer.scope() == "global":
            size = int(buffer.dtype.itemsize)
            for extent in buffer.shape:
                size *= int(extent)
            found[str(buffer.name)] = size
    return found


def sample(
    task: Task, count: int, seed: int, want: set[str], known: Collection[int] = (), parents: Collection[int] = ()
) -> tuple[list[dict], dict]:
    """Up to `count` random programs that are not in `known`, and how many were left out, by reason. With `parents`,
    each is a random one of these with some decisions changed."""
    random_numbers = random.Random(f"{task.id} {seed}")
    drawn = list(parents)
    lines, tried, left_out = [], set(known), {}
    for _ in range(_TRIES * count):
        if len(lines) == count or len(tried) - len(known) >= task.space.size:
            break
        if drawn:
            index = knobs.changed(task.space.sketches, random_numbers.choice(drawn), random_numbers)
        else:
            index = task.space.sample(random_numbers)
        if index in tried:
            continue
        tried.add(index)
        try:
            lines.append(describe(task, index, want))
        except (Refused, Unusable) as error:
            reason = str(error).partition(":")[0]
            left_out[reason] = left_out.get(reason, 0) + 1
    return lines, left_out
