"""A whole network on this CPU: TVM's virtual machine runs the fastest recorded program of each task."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import dataflow_lower_passes, finalize_passes

from sluice_tools.common.errors import run_error, usage_error
from sluice_tools.opbench import records
from sluice_tools.programs import catalog, cpu, models, networks
from sluice_tools.programs.tvm_setup import target_of

_ROUNDS = 10


@dataclass
class Plan:
    model: str
    batch: int
    records: list[Path]
    threads: int


@dataclass
class Chosen:
    """The fastest program of an operator: the seconds of its record, the program, and its task's buffers."""

    seconds: float
    mod: tvm.IRModule
    buffers: list[dict]


_ADVICE = "; disturbed ones do not count: run sluice opbench measure again on a quiet machine"


def _fastest(files: list[Path], device: str) -> dict[str, tuple[float, int]]:
    """Seconds and index of the fastest good program, by task. Of two records of a program, the later counts."""
    of_device = [one for file in files for one in records.read(file) if one.good and one.device == device]
    latest = {(one.task, one.index): one.cost for one in of_device}
    best: dict[str, tuple[float, int]] = {}
    for (task, index), seconds in latest.items():
        best[task] = min(best.get(task, (seconds, index)), (seconds, index))
    return best


def called(mod: tvm.IRModule) -> Iterator[tvm.ir.GlobalVar]:
    """The program of each call, in the order of execution."""
    call_tir = tvm.ir.Op.get("relax.call_tir")
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and binding.value.op == call_tir:
                yield binding.value.args[0]


def choose(mod: tvm.IRModule, target, best: dict[str, tuple[float, int]]) -> dict[tvm.ir.GlobalVar, Chosen]:
    """The fastest program of each operator of a fused network."""
    chosen: dict[tvm.ir.GlobalVar, Chosen] = {}
    for variable in called(mod):
        if variable in chosen:
            continue
        task = networks.task_of(mod[variable], variable.name_hint, target)
        if task.id not in best:
            raise run_error(f"no good record of task {task.id} ({task.name}){_ADVICE}")
        seconds, index = best[task.id]
        chosen[variable] = Chosen(seconds, task.space.schedule(index).mod, task.buffers())
    return chosen


def scheduled(mod: tvm.IRModule, chosen: dict[tvm.ir.GlobalVar, Chosen]) -> tvm.IRModule:
    """The fused network with these programs."""
    mod = tvm.IRModule(mod.functions)
    for variable, program in chosen.items():
        mod[variable] = program.mod["main"].with_attr("global_symbol", variable.name_hint)
    return mod


def machine(mod: tvm.IRModule, target) -> relax.VirtualMachine:
    # TVM's pipeline without the passes that fuse: the operators are fused already.
    lower = tvm.transform.Sequential([*dataflow_lower_passes(target), *finalize_passes(target)])
    with target:
        return relax.VirtualMachine(relax.build(mod, target, relax_pipeline=lower), tvm.cpu())


def inputs(mod: tvm.IRModule) -> list:
    parameters = [parameter.ty for parameter in mod["main"].params]
    return _tensors([{"shape": [int(n) for n in ty.shape], "dtype": str(ty.dtype)} for ty in parameters])


def _tensors(buffers: list[dict]) -> list:
    random_numbers = numpy.random.default_rng(0)
    return [tvm.runtime.tensor(cpu.values(buffer, random_numbers)) for buffer in buffers]


def _least_ms(timed: Sequence[tuple[Any, list]], min_ms: int) -> list[float]:
    """Of a run of each module, in rounds, so that what else the machine does hits none of them only."""
    timers = [m.time_evaluator("main", tvm.cpu(), number=1, repeat=1, min_repeat_ms=min_ms) for m, _ in timed]
    rounds = [[timer(*arguments).mean * 1e3 for timer, (_, arguments) in zip(timers, timed)] for _ in range(_ROUNDS)]
    return [min(times) for times in zip(*rounds)]


def measure(plan: Plan) -> int:
    target, device = target_of("llvm"), f"cpu@{plan.threads}"
    best = _fastest(plan.records, device)
    if not best:
        raise usage_error(f"no good record of {device} in {', '.join(map(str, plan.records))}{_ADVICE}")
    tvm.get_global_func("runtime.config_threadpool")(1, plan.threads)
    mod = networks.fused(models.load(catalog.source_of(plan.model), plan.model, plan.batch), target)
    chosen, calls = choose(mod, target, best), Counter(called(mod))
    programs = [(tvm.tirx.build(c.mod, target=target), _tensors(c.buffers)) for c in chosen.values()]
    whole = machine(scheduled(mod, chosen), target), inputs(mod)
    network_ms, *each_ms = _least_ms([whole, *programs], 20)
    sums = {
        "records": sum(c.seconds * 1e3 * calls[variable] for variable, c in chosen.items()),
        "the same programs, timed now": sum(ms * calls[variable] for variable, ms in zip(chosen, each_ms)),
    }
    print(f"{plan.model} batch {plan.batch} on {device}: {calls.total()} calls, whole network {network_ms:.3f} ms")
    for name, ms in sums.items():
        print(f"sum of {name}: {ms:.3f} ms ({100 * (ms / network_ms - 1):+.1f} %)")
    return 0
