"""One import: a model of the user's own is tried, described and put into the store."""

import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torchvision

from sluice_tools.errors import CommandError, first_line, run_error, usage_error
from sluice_tools.models import aoti, torchscript, user_file, weights
from sluice_tools.models.compare import require_close
from sluice_tools.models.export import Progress, result_of
from sluice_tools.models.store import Store
from sluice_tools.models.tensor_specs import ANY, TYPES, TensorSpec, shape_text

# The server tries a model with the first of these.
_ANY_SIDES = (64, 48)
_BATCHES = (1, 3)
_NAMES = {getattr(torch, name): datatype for datatype, name in TYPES.items()}


@dataclass(frozen=True)
class Request:
    file: Path
    maker: str | None  # MODULE:CALLABLE
    inputs: list[TensorSpec]  # empty: of the example
    example: Path | None
    outputs: list[tuple[str, list[int] | None]]
    batched: bool
    force: bool


def import_model(name: str, request: Request, store: Store) -> dict:
    """Returns what was done, as `--json` prints it."""
    note = Progress(name)
    if not request.force and store.read(name) is not None:
        raise usage_error(f"{store.folder} has a model '{name}'; --force replaces it")
    kind = user_file.kind_of(request.file)
    if (kind == "checkpoint") != bool(request.maker):
        what = "is a checkpoint, or no model: --class MODULE:CALLABLE says" if kind == "checkpoint" else "says itself"
        raise usage_error(f"{request.file} {what} what its weights belong to")
    note(f"reading {kind}")
    with warnings.catch_warnings(), torch.inference_mode(), store.work_folder() as work:
        warnings.simplefilter("ignore")  # torch calls TorchScript deprecated, once per call
        variant = {"aoti": _package, "torchscript": _script, "checkpoint": _checkpoint}[kind](request, work, note)
        described = {
            "name": name,
            "task": "imported",
            "weights": weights.described(request.file),
            "torch": torch.__version__.split("+")[0],
            "torchvision": torchvision.__version__.split("+")[0],
        }
        store.publish(work, {**described, "variants": [variant]}, replace=True)
    return result_of(described, [variant], store, note.seconds, exported=True)


def _script(request: Request, work: Path, note: Progress) -> dict:
    return _write_script(user_file.load_script(request.file), request, work, note)


def _checkpoint(request: Request, work: Path, note: Progress) -> dict:
    assert request.maker
    module = user_file.load_checkpoint(request.file, request.maker)
    example = _Example(request, _argument_names(module))
    note("scripting")
    problems = []
    traced = example.tensors(_BATCHES[-1])
    for way, make in (
        ("scripted", lambda: torch.jit.freeze(torch.jit.script(module))),
        ("traced", lambda: torchscript.trace(module, tuple(traced))),
    ):
        try:
            script = make()
            for batch in _BATCHES if request.batched else (1,):
                tensors = example.tensors(batch)
                _require_same(_run(script, tensors), _run(module, tensors))
            return _write_script(script, request, work, note)
        except Exception as error:
            problems.append(f"{way}, {error if isinstance(error, CommandError) else first_line(error)}")
    raise run_error(f"{request.maker} cannot be made into TorchScript: {'; '.join(problems)}")


def _write_script(script: torch.jit.ScriptModule, request: Request, work: Path, note: Progress) -> dict:
    note("checking")
    example = _Example(request, _argument_names(script))
    with torch.jit.optimized_execution(False):
        outputs = _outputs(script, example, _BATCHES if request.batched else (1,))
    script.save(str(work / "model.pt"))
    variant = {"format": "torchscript", "file": "model.pt", "batch": "any" if request.batched else 0}
    if "torchvision::" in str(script.inlined_graph):
        variant["operators"] = ["torchvision"]
    return _described(variant, example, outputs)


def _package(request: Request, work: Path, note: Progress) -> dict:
    note("checking")
    try:
        package = torch._inductor.aoti_load_package(str(request.file))
        device = package.loader.get_metadata().get("AOTI_DEVICE_KEY", "cpu")
    except Exception as error:
        raise run_error(f"{request.file} cannot be loaded: {first_line(error)}") from error
    example = _Example(request, None, device)
    if request.batched and not request.example:
        raise usage_error(f"{request.file} is compiled for one batch size: --example FILE has it")
    batch = example.given[0].shape[0] if request.batched else 0
    outputs = _outputs(package, example, (batch,))
    file = f"model_b{batch}_{device}.pt2"
    shutil.copyfile(request.file, work / file)
    variant = {"format": "aoti", "file": file, "batch": batch, "device": device}
    if device == "cuda":
        variant["gpu_arch"] = aoti.architecture()
    return _described(variant, example, outputs)


def _described(variant: dict, example: "_Example", outputs: list[TensorSpec]) -> dict:
    return {
        **variant,
        "inputs": [spec.described() for spec in example.specs],
        "outputs": [spec.described() for spec in outputs],
        "dtype": "float32",
        "resizes": False,
    }


def _argument_names(module) -> list[str]:
    """Of forward(), without self."""
    if isinstance(module, torch.jit.ScriptModule):
        return [argument.name for argument in module.forward.schema.arguments[1:]]
    import inspect

    return list(inspect.signature(module.forward).parameters)


class _Example:
    """What the model is tried with."""

    def __init__(self, request: Request, names: list[str] | None, device: str = "cpu"):
        self.batched = request.batched
        self.outputs = request.outputs
        self._device = device
        self.given = _read_example(request.example, device) if request.example else {}
        if isinstance(self.given, dict):
            self.specs = request.inputs or self._specs_of(self.given)
            self.given = [self.given[spec.name] for spec in self.specs if spec.name in self.given]
        else:
            wanted = [spec.name for spec in request.inputs] or names or []
            self.specs = request.inputs or self._specs_of(dict(zip(wanted, self.given)))
        if request.example:
            self._require_fit(request.example)
        if not self.specs:
            raise usage_error("no inputs: give --input NAME:TYPE:SHAPE for each, or --example FILE")

    def tensors(self, batch: int, side: int = _ANY_SIDES[0]) -> list[torch.Tensor]:
        """Ones, so that a mask masks nothing."""
        made = []
        for spec in self.specs:
            shape = [side if size == ANY else size for size in spec.shape]
            made.append(
                torch.ones([batch, *shape] if self.batched else shape, dtype=getattr(torch, TYPES[spec.datatype]))
            )
        return [tensor.to(self._device) for tensor in made]

    def _specs_of(self, tensors: dict) -> list[TensorSpec]:
        skipped = 1 if self.batched else 0
        return [
            TensorSpec(name, _NAMES.get(tensor.dtype, str(tensor.dtype)), list(tensor.shape)[skipped:])
            for name, tensor in tensors.items()
        ]

    def _require_fit(self, path: Path) -> None:
        if len(self.given) != len(self.specs):
            raise usage_error(f"{path} has {len(self.given)} of the {len(self.specs)} inputs")
        batches = {tensor.shape[0] if tensor.dim() else None for tensor in self.given} if self.batched else {1}
        if len(batches) > 1 or None in batches:
            raise usage_error(
                f"{path}: its tensors have different first dimensions, which is the batch; see --no-batch"
            )
        for found, spec in zip(self._specs_of(dict(zip((s.name for s in self.specs), self.given))), self.specs):
            if found.datatype not in TYPES:
                raise usage_error(f"{path}: '{spec.name}' is {found.datatype}, which cannot be served")
            same = len(found.shape) == len(spec.shape) and all(w in (ANY, f) for f, w in zip(found.shape, spec.shape))
            if found.datatype != spec.datatype or not same:
                raise usage_error(
                    f"{path}: '{spec.name}' is {found.datatype} {shape_text(found.shape)}, "
                    f"but --input says {spec.datatype} {shape_text(spec.shape)}"
                )


def _read_example(path: Path, device: str) -> dict[str, torch.Tensor] | list[torch.Tensor]:
    try:
        example = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        raise usage_error(f"--example {path} cannot be read: {first_line(error)}") from error
    if isinstance(example, torch.Tensor):
        example = [example]
    values = list(example.values()) if isinstance(example, dict) else example
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, torch.Tensor) for value in values):
        raise usage_error(f"--example {path} holds neither tensors by name nor a list of tensors")
    return {str(name): value for name, value in example.items()} if isinstance(example, dict) else list(example)


def _run(model, tensors: list[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """The outputs by name, as the server sees them."""
    try:
        with torch.no_grad():
            found = _flat(model(*tensors), "")
    except Exception as error:
        shapes = ", ".join(shape_text(list(tensor.shape)) or "one number" for tensor in tensors)
        raise run_error(f"it fails on inputs of {shapes}: {last_line(error)}") from error
    names = [name for name, _ in found]
    return [
        (name if name and names.count(name) == 1 else f"OUTPUT__{i}", tensor) for i, (name, tensor) in enumerate(found)
    ]


def last_line(error: BaseException) -> str:
    """TorchScript says at the end what was wrong, and before that where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _flat(output, key: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(output, torch.Tensor):
        return [(key, output)]
    if isinstance(output, dict):
        return [entry for name, value in output.items() for entry in _flat(value, str(name))]
    if isinstance(output, (list, tuple)):
        return [entry for value in output for entry in _flat(value, key)]
    return []


def _require_same(found: list, wanted: list) -> None:
    def numbers(outputs):
        return {i: tensor.to(torch.float32) for i, (_, tensor) in enumerate(outputs)}

    require_close(numbers(found), numbers(wanted), torch.float32)


def _outputs(model, example: _Example, batches: tuple[int, ...]) -> list[TensorSpec]:
    """Runs the model on all that the server may try first, and describes what it returns."""
    if example.given:
        _describe(_run(model, example.given), example, example.given[0].shape[0] if example.batched else None)
    any_sides = any(ANY in spec.shape for spec in example.specs)
    found = None
    for batch in batches:
        for side in _ANY_SIDES if any_sides else _ANY_SIDES[:1]:
            outputs = _describe(_run(model, example.tensors(batch, side)), example, batch if example.batched else None)
            found = outputs if found is None else _joined(found, outputs)
    assert found
    return _named(found, example.outputs)


def _describe(outputs: list[tuple[str, torch.Tensor]], example: _Example, batch: int | None) -> list[TensorSpec]:
    if not outputs:
        raise run_error("it returns no tensor")
    specs = []
    for name, tensor in outputs:
        if tensor.dtype not in _NAMES:
            raise run_error(f"its output {name} is {tensor.dtype}, which cannot be served")
        shape = list(tensor.shape)
        if batch is not None:
            if not shape or shape[0] != batch:
                raise run_error(
                    f"its output {name} has the shape {shape_text(shape) or 'of one number'} for a batch of {batch}: "
                    "the first dimension must be the batch; --no-batch is for models without one"
                )
            shape = shape[1:]
        specs.append(TensorSpec(name, _NAMES[tensor.dtype], shape))
    return specs


def _joined(one: list[TensorSpec], other: list[TensorSpec]) -> list[TensorSpec]:
    """The outputs of two runs: a side that differs may have any size."""
    if [(s.name, s.datatype, len(s.shape)) for s in one] != [(s.name, s.datatype, len(s.shape)) for s in other]:
        raise run_error("its outputs differ in number, type or dimensions from run to run")
    return [replace(a, shape=[x if x == y else ANY for x, y in zip(a.shape, b.shape)]) for a, b in zip(one, other)]


def _named(found: list[TensorSpec], wanted: list[tuple[str, list[int] | None]]) -> list[TensorSpec]:
    if not wanted:
        return found
    if len(wanted) != len(found):
        raise usage_error(f"--output is given {len(wanted)} times, but the model returns {len(found)} tensors")
    named = []
    for spec, (name, shape) in zip(found, wanted):
        shape = spec.shape if shape is None else shape
        if len(shape) != len(spec.shape) or any(w not in (ANY, f) for f, w in zip(spec.shape, shape)):
            raise usage_error(f"--output {name}: the model returns {shape_text(spec.shape)}, not {shape_text(shape)}")
        named.append(replace(spec, name=name, shape=shape))
    return named
