"""One run of an imported model on example inputs: what it returns, as the server sees it."""

from collections.abc import Callable
from dataclasses import replace

import torch

from sluice_tools.common.errors import CommandError, run_error, usage_error
from sluice_tools.models.compare import require_close
from sluice_tools.models.example import NAMES, Example
from sluice_tools.models.tensor_specs import ANY, TensorSpec, require_different, shape_text

Outputs = list[tuple[str, torch.Tensor]]


def run(model: Callable, tensors: list[torch.Tensor]) -> Outputs:
    """The outputs by name."""
    try:
        torch.manual_seed(0)  # Two models that draw numbers draw the same.
        with torch.no_grad():
            found = _flat(model(*tensors), "")
    except Exception as error:
        shapes = ", ".join(shape_text(list(tensor.shape)) or "one number" for tensor in tensors)
        zeros = "" if any(tensor.any() for tensor in tensors) else " that are zero, with which the server fills batches"
        raise run_error(f"it fails on inputs of {shapes}{zeros}: {last_line(error)}") from error
    names = [name for name, _ in found]
    return [
        (name if name and names.count(name) == 1 else f"OUTPUT__{i}", tensor) for i, (name, tensor) in enumerate(found)
    ]


def last_line(error: BaseException) -> str:
    """TorchScript says at the end what was wrong, and before that where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _flat(output, key: str) -> Outputs:
    if isinstance(output, torch.Tensor):
        return [(key, output)]
    if isinstance(output, dict):
        return [entry for name, value in output.items() for entry in _flat(value, str(name))]
    if isinstance(output, (list, tuple)):
        return [entry for value in output for entry in _flat(value, key)]
    return []


def require_same(script: Callable, module: Callable, example: Example, batches: tuple[int, ...]) -> None:
    """What a trace has fixed shows at another size, or with a mask that masks something."""
    tried = [example.given] if example.given else []
    for batch in batches:
        for side in example.sides:
            tried.append(example.ones(batch, side))
            mixed = example.mixed(batch, side)
            if _takes(module, mixed):
                tried.append(mixed)
    tried += [tensors for tensors in example.permuted(batches[-1]) if _takes(module, tensors)]
    for tensors in tried:
        found, wanted = run(script, tensors), run(module, tensors)
        if [(name, tensor.dtype) for name, tensor in found] != [(name, tensor.dtype) for name, tensor in wanted]:
            raise run_error("its outputs have other names or types than the model's")
        for (_, one), (_, other) in zip(found, wanted):
            require_close(one, other, other.dtype)


def _takes(module: Callable, tensors: list[torch.Tensor]) -> bool:
    try:
        run(module, tensors)
    except CommandError:
        return False
    return True


def outputs_of(model: Callable, example: Example, batches: tuple[int, ...]) -> list[TensorSpec]:
    """Runs the model on all that the server may try first, and describes what it returns."""
    if example.given:
        _describe(run(model, example.given), example.given[0].shape[0] if example.batched else None)
    found = None
    for batch in batches:
        for tensors in [example.ones(batch, side) for side in example.sides] + [example.zeros(batch)]:
            outputs = _describe(run(model, tensors), batch if example.batched else None)
            found = outputs if found is None else _joined(found, outputs)
    assert found
    return found


def _describe(outputs: Outputs, batch: int | None) -> list[TensorSpec]:
    if not outputs:
        raise run_error("it returns no tensor")
    specs = []
    for name, tensor in outputs:
        if tensor.dtype not in NAMES:
            raise run_error(f"its output {name} is {tensor.dtype}, which cannot be served")
        shape = list(tensor.shape)
        if batch is not None:
            if not shape or shape[0] != batch:
                raise run_error(
                    f"its output {name} has the shape {shape_text(shape) or 'of one number'} for a batch of {batch}: "
                    "the first dimension must be the batch; --no-batch is for models without one"
                )
            shape = shape[1:]
        specs.append(TensorSpec(name, NAMES[tensor.dtype], shape))
    return specs


def _joined(one: list[TensorSpec], other: list[TensorSpec]) -> list[TensorSpec]:
    """The outputs of two runs: a side that differs may have any size."""
    if [(s.name, s.datatype, len(s.shape)) for s in one] != [(s.name, s.datatype, len(s.shape)) for s in other]:
        raise run_error("its outputs differ in number, type or dimensions from run to run")
    return [replace(a, shape=[x if x == y else ANY for x, y in zip(a.shape, b.shape)]) for a, b in zip(one, other)]


def named(found: list[TensorSpec], wanted: list[tuple[str, list[int] | None]]) -> list[TensorSpec]:
    """The outputs with the names and the shapes that the user gives them."""
    if not wanted:
        require_different("its outputs have one name; --output names them", [spec.name for spec in found])
        return found
    if len(wanted) != len(found):
        raise usage_error(f"--output is given {len(wanted)} times, but the model returns {len(found)} tensors")
    outputs = []
    for spec, (name, shape) in zip(found, wanted):
        shape = spec.shape if shape is None else shape
        if len(shape) != len(spec.shape) or any(w not in (ANY, f) for f, w in zip(spec.shape, shape)):
            raise usage_error(f"--output {name}: the model returns {shape_text(spec.shape)}, not {shape_text(shape)}")
        outputs.append(replace(spec, name=name, shape=shape))
    return outputs
