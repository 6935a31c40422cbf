"""The names of networks. Known without TVM and torch, so that a mistake is refused at once: TVM takes half a minute."""

import difflib
import re
import sys
from pathlib import Path

from sluice_tools.common.errors import CommandError, usage_error
from sluice_tools.models import names

SOURCES = ("simple", "local", "transformers", "remoteonnx")
# Published name -> torchvision's name. Any other model of torchvision goes by its own name.
TORCHVISION = {
    "resnet-18": "resnet18", "resnet-50": "resnet50", "resnet3d-18": "r3d_18", "mobilenet": "mobilenet_v2",
    "mobilenet_v3": "mobilenet_v3_large", "squeezenet_v1.1": "squeezenet1_1", "wide_resnet50": "wide_resnet50_2",
    "resnext50": "resnext50_32x4d", "vit": "vit_b_16",
}  # fmt: skip
_BASE = names.ENCODERS["bert_base"]
ENCODERS = names.ENCODERS | {"bert_medium": (8, 512, 8), "bert": _BASE, "gpt2": _BASE, "roberta": _BASE}


# name -> (usual size, shapes of the inputs for batch b and size n, the operator)
OPERATORS = {
    "matmul": (
        1024,
        lambda b, n: [(b, n, n), (b, n, n)] if b > 1 else [(n, n), (n, n)],
        lambda op, x, y: op.matmul(x, y),
    ),
    "conv": (56, lambda b, n: [(b, 64, n, n), (64, 64, 3, 3)], lambda op, x, w: op.nn.conv2d(x, w, padding=1)),
    "softmax": (1024, lambda b, n: [(b * 128, n)], lambda op, x: op.nn.softmax(x)),
    "pool": (56, lambda b, n: [(b, 64, n, n)], lambda op, x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1))),
    "dense": (
        1024,
        lambda b, n: [(b * 16, n), (n, n), (n,)],
        lambda op, x, w, bias: op.nn.relu(op.add(op.matmul(x, w), bias)),
    ),
    "layer_norm": (
        768,
        lambda b, n: [(b * 128, n), (n,), (n,)],
        lambda op, x, gain, bias: op.nn.layer_norm(x, gain, bias, axes=[-1]),
    ),
    "mlp": (
        256,
        lambda b, n: [(b * 16, n), (n, 4 * n), (4 * n,), (4 * n, n)],
        lambda op, x, up, bias, down: op.nn.softmax(op.matmul(op.nn.gelu(op.add(op.matmul(x, up), bias)), down)),
    ),
    "lstm": (
        256,
        lambda b, n: [(b * 16, n), (b * 16, n), (b * 16, n), (n, 4 * n), (n, 4 * n), (4 * n,)],
        lambda op, *a: _lstm(op, *a),
    ),
}


def _lstm(op, x, hidden, cell, weight_x, weight_hidden, bias):
    gates = op.add(op.add(op.matmul(x, weight_x), op.matmul(hidden, weight_hidden)), bias)
    from tvm import relax

    parts = op.split(gates, 4, axis=1)
    enter, keep, new, leave = (relax.TupleGetItem(parts, number) for number in range(4))
    cell = op.add(op.multiply(op.sigmoid(keep), cell), op.multiply(op.sigmoid(enter), op.tanh(new)))
    return op.multiply(op.sigmoid(leave), op.tanh(cell))


def source_of(name: str) -> str:
    """The model source of a name in `--models`."""
    if name.partition("-")[0] in OPERATORS and re.fullmatch(r"[a-z_]+(-\d+)?", name):
        return "simple"
    if name in ENCODERS:
        return "transformers"
    return "remoteonnx" if name.endswith((".onnx", ".zip")) or "://" in name else "local"


def check(name: str, source: str | None = None) -> None:
    """CommandError, one line, for a name that no source has, and for a file that is not there."""
    source = source or source_of(name)
    if source not in SOURCES:
        raise usage_error(f"modelsource '{source}' is not one of {', '.join(SOURCES)}")
    if source == "remoteonnx" and "://" not in name and not Path(name).is_file():
        raise usage_error(f"cannot read {name}: no such file")
    if source == "simple":
        kind, _, size = name.partition("-")
        if kind not in OPERATORS or (size and not 1 <= int(size if size.isdigit() else 0) <= 4096):
            known = ", ".join(OPERATORS)
            raise usage_error(f"'{name}' is no simple operator: one of {known}, with -SIZE of 1 to 4096 if wanted")
    if source == "transformers" and name not in ENCODERS:
        raise usage_error(f"no transformer '{name}': one of {', '.join(ENCODERS)}")
    if source == "local":
        _check_local(name)


def check_some(known: list[str]) -> None:
    """Raises the first error if no name is right; a wrong name among others is left out later."""
    errors = []
    for name in known:
        try:
            check(name)
        except CommandError as error:
            errors.append(error)
    if errors and len(errors) == len(known):
        raise errors[0]


def _check_local(name: str) -> None:
    """Where torchvision is not installed, only names that are near to a known one are refused."""
    sys.path.append(str(site_packages()))  # not for long: TVM imports a torch that it finds
    installed = [model for model, task in names.tasks().items() if task != "text"]
    sys.path.pop()
    known = ["lstm", "dcgan", *TORCHVISION, *TORCHVISION.values(), *installed]
    if name in known:
        return
    near = difflib.get_close_matches(name, [*known, *ENCODERS, *OPERATORS], n=1, cutoff=0.7)
    if near or installed:
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise usage_error(f"no network '{name}'{hint}; docs/reference/programs-format.md names them")


def site_packages() -> Path:
    """Of the checkout's .venv, which has the same Python version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Path(sys.prefix).parent / ".venv" / "lib" / version / "site-packages"
