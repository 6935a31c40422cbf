"""AOTInductor packages: compiled for one batch, one device and one GPU architecture."""

import ctypes
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from sluice_tools.errors import CommandError, first_line, run_error, usage_error
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
    # torch's libraries export a std::filesystem of another layout than that of the compiler here, and
    # a package that binds to it crashes when it is loaded. What is global is bound to first.
    ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
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
            package = torch._inductor.aoti_load_package(str(path))
            require_close(package(example), module(example), dtype)
    except CommandError as error:
        raise run_error(f"the package of {model.name} is wrong: {error}") from error
    except Exception as error:
        raise run_error(f"{model.name} cannot be compiled by AOTInductor: {first_line(error)}") from error
    return [variant]
