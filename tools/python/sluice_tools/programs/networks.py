"""From an imported network to its tasks: fused operators, how often and in which order they run."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import transform
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.target import Target

from sluice_tools.programs.lowered import stores
from sluice_tools.programs.space import Space


@dataclass
class Task:
    id: str
    name: str
    mod: tvm.IRModule
    target: Target
    _space: Space | None = None

    @property
    def space(self) -> Space:
        if self._space is None:
            self._space = Space(self.mod, self.target)
        return self._space

    @property
    def function(self):
        return self.mod["main"]

    def buffers(self) -> list[dict]:
        """In the order of the function's parameters. Those that the function writes are outputs."""
        written = [store.buffer for store in stores(self.function)]
        return [
            {
                "shape": [int(extent) for extent in buffer.shape],
                "dtype": str(buffer.dtype),
                "output": any(buffer.same_as(other) for other in written),
            }
            for buffer in self.function.params
        ]

    def line(self) -> dict:
        buffers = self.buffers()
        shapes = [[*buffer["shape"], buffer["dtype"]] for buffer in buffers]
        return {
            "kind": "task",
            "task": self.id,
            "name": self.name,
            "workload_key": json.dumps([self.id, *shapes], separators=(",", ":")),
            "flop": int(estimate_tir_flops(self.mod)),
            "buffers": buffers,
            "sketches": self.space.sketches,
        }


def fused(mod: tvm.IRModule, target) -> tvm.IRModule:
    passes = [
        transform.FoldBatchnormToConv2D(), transform.DecomposeOpsForInference(), transform.CanonicalizeBindings(),
        transform.FoldConstant(), transform.LegalizeOps(), transform.RewriteDataflowReshape(),
        transform.AnnotateTIROpPattern(), transform.FoldConstant(), transform.FuseOps(), transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ]  # fmt: skip
    with target, tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(passes)(mod)


def extract(name: str, batch: int, mod: tvm.IRModule, target) -> tuple[dict, list[Task]]:
    """The network's line, and its distinct tasks in the order of their first calls."""
    mod = fused(mod, target)
    tasks: dict[str, Task] = {}
    calls: list[dict] = []
    made_by: dict = {}  # variable -> calls that it depends on directly
    call_tir = tvm.ir.Op.get("relax.call_tir")
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            sources = sorted({call for used in _variables(value) for call in made_by.get(used, [])})
            if isinstance(value, relax.Call) and value.op == call_tir:
                task = task_of(mod[value.args[0]], value.args[0].name_hint, target)
                tasks.setdefault(task.id, task)
                calls.append({"task": task.id, "after": sources})
                sources = [len(calls) - 1]
            made_by[binding.var] = sources
    return {"kind": "network", "name": name, "batch": batch, "calls": calls}, list(tasks.values())


def _variables(expr) -> list:
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.Call):
        return [v for argument in expr.args for v in _variables(argument)]
    if isinstance(expr, relax.Tuple):
        return [v for part in expr.fields for v in _variables(part)]
    if isinstance(expr, relax.TupleGetItem):
        return _variables(expr.tuple_value)
    return []


def task_of(function, name: str, target) -> Task:
    for attribute in list(function.attrs.keys()):
        function = function.without_attr(attribute)
    function = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    digest = hashlib.sha256(f"{tvm_ffi.structural_hash(function)} {target}".encode())
    return Task(digest.hexdigest()[:16], name, tvm.IRModule({"main": function}), target)


def save(tasks: list[Task], file: str) -> None:
    """For load(). A network has no two tasks of one name."""
    Path(file).write_text(tvm.ir.save_json({task.name: task.function for task in tasks}))


def load(file: str, target) -> list[Task]:
    """The saved tasks, without the network. Their ids are computed anew, so a change in the file makes another task."""
    functions = tvm.ir.load_json(Path(file).read_text())
    return [task_of(function, str(name), target) for name, function in functions.items()]
