"""One import: a model of the user's own is tried, described and put into the store."""

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision

from sluice_tools.common.errors import CommandError, first_line, run_error, usage_error
from sluice_tools.models import aoti, arguments, torchscript, trial, user_file, weights
from sluice_tools.models.example import Example
from sluice_tools.models.export import Progress, result_of
from sluice_tools.models.store import Store
from sluice_tools.models.tensor_specs import ANY, TensorSpec

_RESERVED = "dummy"  # a path of the server's config


@dataclass(frozen=True)
class Request:
    file: Path
    maker: str | None  # MODULE:CALLABLE
    inputs: list[TensorSpec]  # empty: of the example
    example: Path | None
    outputs: list[tuple[str, list[int] | None]]
    batched: bool
    force: bool

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes that the model is tried with."""
        return (1, 3) if self.batched else (1,)

    def example_for(self, taken: arguments.Arguments, device: str = "cpu") -> Example:
        return Example(self.inputs, self.example, taken, self.batched, device)


def import_model(name: str, request: Request, store: Store) -> dict:
    """Returns what was done, as `--json` prints it."""
    if name == _RESERVED:
        raise usage_error(f"'{name}' is the name of the server's own model; take another one")
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
    script = user_file.load_script(request.file)
    example = request.example_for(arguments.of_script(script))
    model = arguments.call_script(arguments.frozen(user_file.load_script(request.file)), example.arguments)
    return _write_script(arguments.only(script, example.arguments), model, example, request, work, note)


def _checkpoint(request: Request, work: Path, note: Progress) -> dict:
    assert request.maker
    linked = torchscript.operators()  # before the code of the user adds others
    module = user_file.load_checkpoint(request.file, request.maker)
    example = request.example_for(arguments.of_module(module))
    model = arguments.ByName(module, example.arguments)
    note("scripting")
    problems = []
    for way, make in (
        ("scripted", lambda: arguments.only(torch.jit.script(module), example.arguments)),
        ("traced", lambda: torchscript.trace(model, tuple(example.ones(request.batches[-1])))),
    ):
        try:
            script = make()
            torchscript.require_operators(script, linked)
            return _write_script(script, model, example, request, work, note)
        except OSError:  # a full disk
            raise
        except Exception as error:
            problems.append(f"{way}, {error if isinstance(error, CommandError) else first_line(error)}")
    raise run_error(f"{request.maker} cannot be made into TorchScript: {'; '.join(problems)}")


def _write_script(
    script: torch.jit.ScriptModule, model: Callable, example: Example, request: Request, work: Path, note: Progress
) -> dict:
    """`model`: what the file must compute when it gets the inputs by position, as the server passes them."""
    note("checking")
    torchscript.free_of_devices(script)
    torchscript.write(script, work / "model.pt")
    served = torch.jit.load(str(work / "model.pt"))
    with torch.jit.optimized_execution(False):
        trial.require_same(served, model, example, request.batches)
        outputs = trial.outputs_of(served, example, request.batches)
    variant = {"format": "torchscript", "file": "model.pt", "batch": "any" if request.batched else 0}
    if "torchvision::" in str(script.inlined_graph):
        variant["operators"] = ["torchvision"]
    return _described(variant, example, trial.named(outputs, request.outputs))


def _package(request: Request, work: Path, note: Progress) -> dict:
    note("checking")
    try:
        package = aoti.load_package(request.file)
        device = package.loader.get_metadata().get("AOTI_DEVICE_KEY", "cpu")
    except Exception as error:
        raise run_error(f"{request.file} cannot be loaded: {first_line(error)}") from error
    example = request.example_for(arguments.of_package(package), device)
    if request.batched and not request.example:
        raise usage_error(f"{request.file} is compiled for one batch size: --example FILE has it")
    if any(ANY in spec.shape for spec in example.specs):
        raise usage_error(f"{request.file} is compiled for fixed sizes: give them instead of 'any'")
    batch = example.given[0].shape[0] if request.batched else 0
    outputs = trial.outputs_of(arguments.call_package(aoti.quietly(package), example.arguments), example, (batch,))
    file = f"model_b{batch}_{device}.pt2"
    shutil.copyfile(request.file, work / file)
    variant = {"format": "aoti", "file": file, "batch": batch, "device": device}
    if device == "cuda":
        variant["gpu_arch"] = aoti.architecture()
    return _described(variant, example, trial.named(outputs, request.outputs))


def _described(variant: dict, example: Example, outputs: list[TensorSpec]) -> dict:
    return {
        **variant,
        "inputs": [spec.described() for spec in example.specs],
        "outputs": [spec.described() for spec in outputs],
        "dtype": "float32",
        "resizes": False,
    }
