"""AOTInductor packages: compiled for one batch, one device and one GPU architecture."""

import ctypes
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from sluice_tools.common.errors import CommandError, first_line, run_error, usage_error
from sluice_tools.models.catalogue import Model
from sluice_tools.models.compare import require_close
from sluice_tools.models.torchscript import dtype_name


def require_possible(task: str, name: str, device: str) -> None:
    if task == "detection":
        raise usage_error(
            f"{name} is a detection model: its output sizes depend on the image, which "
            "torch.export refuses; export it with --format torchscript"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise run_error(
            "--format aoti --device cuda compiles for the GPU of this machine, and torch finds "
            "none; use a machine with one, --device cpu or --format torchscript"
        )


def architecture() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def describe(model_input: list[int], dtype: torch.dtype, batch: int, device: str) -> dict:
    """The variant that an export with these settings makes."""
    suffix = "" if dtype == torch.float32 else "_" + dtype_name(dtype)
    target = device if device == "cpu" else f"cuda_{architecture()}"
    shape = "x".join(str(size) for size in model_input)
    variant = {
        "format": "aoti",
        "file": f"model_b{batch}_{shape}{suffix}_{target}.pt2",
        "input": model_input,
        "dtype": dtype_name(dtype),
        "batch": batch,
        "device": device,
        "resizes": False,
    }
    if device == "cuda":
        variant["gpu_arch"] = architecture()
    return variant


def save(
    model: Model, dtype: torch.dtype, batch: int, device: str, folder: Path, note: Callable[[str], None]
) -> list[dict]:
    """Compiles the model into `folder`; returns the variant."""
    variant = describe(model.input, dtype, batch, device)
    path = folder / variant["file"]
    logging.getLogger("torch").setLevel(logging.ERROR)
    module = model.module.to(device)
    example = model.example(batch, dtype, device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            note("exporting the graph")
            program = torch.export.export(module, (example,))
            note(f"compiling for {variant.get('gpu_arch', 'this CPU')}, batch {batch}")
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
            note("checking")
            package = load_package(path)
            require_close(package(example), module(example), dtype)
    except CommandError as error:
        raise run_error(f"the package of {model.name} is wrong: {error}") from error
    except Exception as error:
        raise run_error(f"{model.name} cannot be compiled by AOTInductor: {first_line(error)}") from error
    return [variant]


def load_package(path: Path):
    # torch's libraries export a std::filesystem of another layout than that of the compiler here, and
    # a package that binds to it crashes when it is loaded. What is global is bound to first.
    ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"  # else it takes inputs of another type or shape for its own
    return torch._inductor.aoti_load_package(str(path))


def quietly(package) -> Callable:
    """Runs of a package, whose errors have the reason that it prints among a hundred lines on standard error."""

    def call(*tensors, **named):
        with tempfile.TemporaryFile() as printed:
            saved = os.dup(2)
            os.dup2(printed.fileno(), 2)
            try:
                return package(*tensors, **named)
            except Exception as error:
                printed.seek(0)
                text = printed.read().decode(errors="replace")
                reason = re.search(r"^(?:.*Exception in aoti_torch|Error): (.*)", text, re.MULTILINE)
                raise RuntimeError(reason[1] if reason else first_line(error)) from error
            finally:
                os.dup2(saved, 2)
                os.close(saved)

    return call
