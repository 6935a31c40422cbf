"""What the predictor and the launcher need of a scheduled program: features, positions, launch dimensions."""

from dataclasses import dataclass, field

import tvm
from tvm import tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir import transform as s_tir
from tvm.tirx import transform as tir
from tvm_ffi import WalkResult, structural_map, structural_walk

from sluice_tools.programs.tvm_setup import last_line

FEATURES = 164
_EXTRACTOR = ms.feature_extractor.PerStoreFeature()
# The passes that PerStoreFeature runs after `_simplified`.
_PASSES = tvm.transform.Sequential([
    s_tir.LowerCrossThreadReduction(), s_tir.LowerInitBlock(), s_tir.PlanAndUpdateBufferAllocationLocation(),
    s_tir.ConvertBlocksToOpaque(), s_tir.CompactBufferAllocation(), tir.StmtSimplify(), s_tir.LowerAutoCopy(),
    s_tir.UnifyThreadBinding(), s_tir.LowerMatchBuffer(), tir.StmtSimplify(),
])  # fmt: skip


class Unusable(Exception):
    """A valid schedule whose program we cannot describe."""


@dataclass
class Walk:
    """One pre-order walk. `nodes` counts loops and stores; `leaves` has (buffer, position) of the rows of features."""

    nodes: int = 0
    leaves: list = field(default_factory=list)
    nests: list[dict[str, int]] = field(default_factory=list)  # per kernel: thread tag -> extent


def features(context, schedule) -> list[list[float]]:
    """(leaves, 164): a row for each stored buffer, in the order of their first stores. Raises Unusable."""
    try:
        rows = _EXTRACTOR.extract_from(context, [ms.MeasureCandidate(schedule, [])])[0].numpy()
    except Exception as error:
        raise Unusable(f"TVM has no features of it: {last_line(error)}") from None
    return [[_short(value) for value in row] for row in rows.tolist()]


def _short(value: float) -> float:
    rounded = round(value, 5)
    return int(rounded) if rounded == int(rounded) else rounded


def stores(function) -> list:
    found: list = []
    structural_walk(function.body, (tirx.BufferStore, lambda store: found.append(store)), order="pre")
    return found


def _simplified(function):
    """What PerStoreFeature does first and TVM does not export: drops loops of length 1, and selects without loads."""
    dropped = []

    def loop(stmt):
        while isinstance(stmt, tirx.For) and _is_unit(stmt):
            dropped.append((stmt.loop_var, stmt.min))
            stmt = stmt.body
        return stmt

    def variable(var):
        return next((zero for other, zero in dropped if var.same_as(other)), var)

    def select(expr):
        loads: list = []
        structural_walk(expr, (tvm.ir.expr.TensorLoad, lambda load: loads.append(load)))
        return expr if loads else tirx.const(1, str(expr.ty.dtype))

    return structural_map(function, ((tirx.For, loop), (tirx.Var, variable), (tirx.Select, select)), order="pre")


def _is_unit(loop) -> bool:
    return int(loop.min) == 0 and int(loop.extent) == 1 and loop.kind == tirx.ForKind.SERIAL and not loop.annotations


def lower(schedule):
    """The program that PerStoreFeature walks. Raises Unusable."""
    try:
        return _PASSES(tvm.IRModule({"main": _simplified(schedule.mod["main"])}))["main"]
    except Exception as error:  # TVM raises errors of many classes here
        raise Unusable(f"TVM cannot lower it: {last_line(error)}") from None


def walk(function) -> Walk:
    result = Walk()

    def loop(_):
        result.nodes += 1

    def store(stmt):
        constant = isinstance(stmt.value, tirx.IntImm | tirx.FloatImm)
        if not constant and not any(stmt.buffer.same_as(buffer) for buffer, _ in result.leaves):
            result.leaves.append((stmt.buffer, result.nodes))
        result.nodes += 1

    def kernel(stmt):
        if stmt.thread_binding is None:
            return WalkResult.ADVANCE
        result.nests.append(_threads(stmt))
        return WalkResult.SKIP

    structural_walk(function.body, ((tirx.For, loop), (tirx.BufferStore, store)), order="pre")
    structural_walk(function.body, (tirx.For, kernel), order="pre")
    return result


def _threads(outermost) -> dict[str, int]:
    """The extents of a kernel's threads and blocks, by TVM's names such as threadIdx.x."""
    extents: dict[str, int] = {}

    def loop(stmt):
        if stmt.thread_binding is not None:
            tag, extent = str(stmt.thread_binding.thread_tag), int(stmt.extent)
            if extents.setdefault(tag, extent) != extent and not tag.startswith("vthread"):
                raise Unusable(f"{tag} has two extents in one kernel: {extents[tag]} and {extent}")

    structural_walk(outermost, (tirx.For, loop), order="pre")
    return extents
