"""TorchScript files: one file for any batch and any device.

Scripting comes first: it keeps shapes and devices open. Tracing is for the models whose scripted
form returns something else than the model does (inception, googlenet) or that cannot be scripted.
Frozen: weights become constants and batch norms fold into convolutions. A frozen module does not
move with `.to()`; a reader names the device when it loads the file.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from sluice_tools.common.errors import CommandError, first_line, run_error
from sluice_tools.models import detection, encoder
from sluice_tools.models.catalogue import Model
from sluice_tools.models.compare import require_close

_CHECKED_BATCHES = (1, 3)


def save(model: Model, dtype: torch.dtype, folder: Path, note: Callable[[str], None]) -> list[dict]:
    """Writes the model's files into `folder`; returns their variants."""
    suffix = "" if dtype == torch.float32 else "_" + dtype_name(dtype)
    if model.task != "detection":
        note("scripting")
        script = _script_or_trace(model, dtype)
        return [_write(script, model, dtype, folder / f"model{suffix}.pt", resizes=False)]
    variants = []
    fixed = detection.without_resizing(model.module)
    for module, file, resizes in ((model.module, "model.pt", True), (fixed, "model_fixed.pt", False)):
        note("scripting" if resizes else "scripting without its resizing")
        variants.append(_write(_script(module), model, dtype, folder / file, resizes=resizes))
    return variants


def save_for_training(model: Model, dtype: torch.dtype, folder: Path, note: Callable[[str], None]) -> dict:
    """Writes a file that is not frozen, so that its parameters can be trained. Returns its variant.

    Only scripting: a trace fixes what batch norms and dropout do. A text model gets the head of a
    language model, and its tokens see earlier tokens only.
    """
    note("scripting, to be trained")
    module = encoder.LanguageModel(model.module) if isinstance(model.module, encoder.Encoder) else model.module
    suffix = "" if dtype == torch.float32 else "_" + dtype_name(dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            script = torch.jit.script(module.train())
    except Exception as error:
        raise run_error(f"{model.name} cannot be scripted, so it cannot be trained: {first_line(error)}") from error
    variant = _write(script, model, dtype, folder / f"model_train{suffix}.pt", resizes=False)
    return {**variant, "format": "training"}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _write(script, model: Model, dtype: torch.dtype, path: Path, resizes: bool) -> dict:
    write(script, path)
    return {
        "format": "torchscript",
        "file": path.name,
        "input": model.input,
        "dtype": dtype_name(dtype),
        "batch": "any",
        "resizes": resizes,
    }


def write(script: torch.jit.ScriptModule, path: Path) -> None:
    """By way of memory: torch's own writer ends the process if the disk is full."""
    try:
        path.write_bytes(script.save_to_buffer())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _script(module: nn.Module) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated, once per call
        return torch.jit.freeze(torch.jit.script(module))


def trace(module: nn.Module, example: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = torch.jit.freeze(torch.jit.trace(module, example, strict=False, check_trace=False))
    free_of_devices(trace)
    return trace


def free_of_devices(script: torch.jit.ScriptModule) -> None:
    """A trace names the device on which the model made a tensor, and would fail on another one. Such a tensor is made
    where the first input is instead. `script` must be frozen."""
    source = next((value for value in list(script.graph.inputs())[1:] if str(value.type()) == "Tensor"), None)
    if source is None:
        return
    for node in list(_nodes(script.graph)):
        for i, value in enumerate(list(node.inputs())):
            if value.node().kind() == "prim::Constant" and str(value.type()) == "Device":
                device = script.graph.create("prim::device", [source], 1)
                device.output().setType(torch._C.DeviceObjType.get())
                # Before each use, because a block of a split model passes on tensors only.
                device.insertBefore(node)
                node.replaceInput(i, device.output())


def _nodes(block):
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def operators() -> set[str]:
    """Those that this process knows."""
    return {schema.name for schema in torch._C._jit_get_all_schemas()}


def require_operators(script: torch.jit.ScriptModule, linked: set[str]) -> None:
    """Refuses operators that the code of a user has added, because the server does not run that code."""
    for kind in sorted({node.kind() for node in _nodes(script.inlined_graph)} & (operators() - linked)):
        raise run_error(f"it needs the operator {kind}, which its code adds and the server does not have")


def _require_same(script: torch.jit.ScriptModule, model: Model, dtype: torch.dtype) -> None:
    # Two runs are too few to repay the optimiser's profiling.
    with warnings.catch_warnings(), torch.jit.optimized_execution(False):
        warnings.simplefilter("ignore")
        for batch in _CHECKED_BATCHES:
            example = model.example(batch, dtype, "cpu")
            require_close(script(example), model.module(example), dtype)


def _script_or_trace(model: Model, dtype: torch.dtype) -> torch.jit.ScriptModule:
    ways = {
        "scripted": lambda: _script(model.module),
        "traced": lambda: trace(model.module, model.example(2, dtype, "cpu")),
    }
    problems = []
    for way, make in ways.items():
        try:
            script = make()
            _require_same(script, model, dtype)
            return script
        except CommandError as error:
            problems.append(f"{way}, {error}")
        except Exception as error:
            problems.append(f"{way}, {first_line(error)}")
    raise run_error(f"{model.name} cannot be made into TorchScript: {'; '.join(problems)}")
