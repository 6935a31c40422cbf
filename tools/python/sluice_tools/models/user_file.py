"""What a user's file holds, and the module in it."""

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sluice_tools.common.errors import first_line, usage_error
from sluice_tools.models import safetensors, weights


def kind_of(path: Path) -> str:
    """torchscript, aoti or checkpoint."""
    if not path.is_file():
        raise usage_error(f"no file {path}")
    if safetensors.is_one(path) or not zipfile.is_zipfile(path):
        return "checkpoint"  # as torch before 1.6 wrote them, or nothing that torch knows
    with zipfile.ZipFile(path) as archive:
        parts = [name.split("/") for name in archive.namelist()]
    if any("aotinductor" in part for part in parts):
        return "aoti"
    if any(part[1:2] == ["code"] for part in parts):
        return "torchscript"
    if any(part[1:] == ["data.pkl"] for part in parts):
        return "checkpoint"
    hint = (
        "; compile an exported program with torch._inductor.aoti_compile_and_package" if path.suffix == ".pt2" else ""
    )
    raise usage_error(f"{path} is neither a TorchScript file, nor a checkpoint, nor an AOTInductor package{hint}")


def load_script(path: Path) -> torch.jit.ScriptModule:
    try:
        script = torch.jit.load(str(path), map_location="cpu")
    except Exception as error:
        raise usage_error(f"{path} cannot be loaded: {first_line(error)}") from error
    if not hasattr(script, "forward"):
        raise usage_error(f"{path} has no forward()")
    return script


def load_checkpoint(path: Path, maker: str) -> nn.Module:
    """The module that `maker`, MODULE:CALLABLE, makes, with the weights of the file."""
    state = weights.read_state(path)  # A file that is none must not run the user's code.
    module = _make(maker).eval()
    weights.load_state(module, maker, state, path)
    return module


def _make(maker: str) -> nn.Module:
    name, colon, attribute = maker.partition(":")
    if not (name and colon and attribute):
        raise usage_error(f"--class {maker}: expected MODULE:CALLABLE, such as mynet.models:Tagger")
    print(f"sluice models: runs the code of {maker}", file=sys.stderr)
    sys.path.insert(0, str(Path.cwd()))
    try:
        made: Any = importlib.import_module(name)
        for part in attribute.split("."):
            made = getattr(made, part)
        module = made()
    except (Exception, SystemExit) as error:
        raise usage_error(f"--class {maker}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise usage_error(f"--class {maker}: returned a {type(module).__name__}, not a torch.nn.Module")
    return module
