"""Where networks come from: operators by name, torchvision, encoders, ONNX files. Each becomes a relax module."""

import itertools
import re
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from unittest import mock

import tvm
from tvm import relax

from sluice_tools.errors import first_line, usage_error
from sluice_tools.models import names
from sluice_tools.programs.tvm_setup import torch_path

SOURCES = ("simple", "local", "transformers", "remoteonnx")
# Published name -> torchvision's name. Any other model of torchvision goes by its own name.
_TORCHVISION = {
    "resnet-18": "resnet18", "resnet-50": "resnet50", "resnet3d-18": "r3d_18", "mobilenet": "mobilenet_v2",
    "mobilenet_v3": "mobilenet_v3_large", "squeezenet_v1.1": "squeezenet1_1", "wide_resnet50": "wide_resnet50_2",
    "resnext50": "resnext50_32x4d", "vit": "vit_b_16",
}  # fmt: skip
_BASE = names.ENCODERS["bert_base"]
_ENCODERS = names.ENCODERS | {"bert_medium": (8, 512, 8), "bert": _BASE, "gpt2": _BASE, "roberta": _BASE}
SEQUENCE = 128


def load(source: str, name: str, batch: int) -> tvm.IRModule:
    """CommandError, one line, if the network does not exist, is broken, or TVM refuses it."""
    makers = {"simple": _simple, "local": _local, "transformers": _transformers, "remoteonnx": _remoteonnx}
    if source not in makers:
        raise usage_error(f"modelsource '{source}' is not one of {', '.join(SOURCES)}")
    if batch < 1:
        raise usage_error(f"batch {batch} is not positive")
    return makers[source](name, batch)


def source_of(name: str) -> str:
    """The model source of a name in `--models`."""
    if name.partition("-")[0] in _OPERATORS and re.fullmatch(r"[a-z_]+(-\d+)?", name):
        return "simple"
    if name in _ENCODERS:
        return "transformers"
    return "remoteonnx" if name.endswith((".onnx", ".zip")) or "://" in name else "local"


# name -> (usual size, shapes of the inputs for batch b and size n, the operator)
_OPERATORS = {
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
    parts = op.split(gates, 4, axis=1)
    enter, keep, new, leave = (relax.TupleGetItem(parts, number) for number in range(4))
    cell = op.add(op.multiply(op.sigmoid(keep), cell), op.multiply(op.sigmoid(enter), op.tanh(new)))
    return op.multiply(op.sigmoid(leave), op.tanh(cell))


def _simple(name: str, batch: int) -> tvm.IRModule:
    kind, _, size = name.partition("-")
    if kind not in _OPERATORS or (size and not 1 <= int(size if size.isdigit() else 0) <= 4096):
        raise usage_error(
            f"'{name}' is no simple operator: one of {', '.join(_OPERATORS)}, with -SIZE of 1 to 4096 if wanted"
        )
    usual, shapes, operator = _OPERATORS[kind]
    inputs = [
        relax.Var(f"input{number}", relax.TensorType(shape, "float32"))
        for number, shape in enumerate(shapes(batch, int(size or usual)))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(operator(relax.op, *inputs))
        builder.emit_func_output(result)
    return builder.finalize()


def _from_torch(name: str, module, example) -> tvm.IRModule:
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with torch.no_grad(), mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention):
            program = torch.export.export(module.eval(), (example,))
        return from_exported_program(program, unwrap_unit_return_tuple=True)
    except Exception as error:
        raise usage_error(f"TVM cannot import '{name}': {first_line(error)}") from None


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False):
    """Plain attention. TVM gets torch's own with operators that guard rows which are masked completely."""
    import torch

    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if is_causal:
        scores = scores + torch.full(scores.shape[-2:], -1e9).triu(1)
    return (scores if attn_mask is None else scores + attn_mask).softmax(-1) @ value


def _local(name: str, batch: int) -> tvm.IRModule:
    if name == "lstm":
        return _simple(name, batch)
    torch_path()
    import torch
    import torchvision

    torch.manual_seed(0)
    if name == "dcgan":
        return _from_torch(name, _dcgan(torch.nn), torch.randn(batch, 100, 1, 1))
    known = _TORCHVISION.get(name, name)
    try:
        module = torchvision.models.get_model(known, weights=None)
    except (ValueError, KeyError):
        raise usage_error(f"no local model '{name}': torchvision has none, and it is neither lstm nor dcgan") from None
    side = 299 if known == "inception_v3" else 224
    shape = (batch, 3, 16, 112, 112) if known == "r3d_18" else (batch, 3, side, side)
    return _from_torch(name, module, torch.randn(shape))


def _dcgan(nn):
    """The generator of DCGAN for images of 64 x 64."""
    layers, widths = [], [100, 512, 256, 128, 64]
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        stride, padding = (1, 0) if number == 0 else (2, 1)
        layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


def _transformers(name: str, batch: int) -> tvm.IRModule:
    if name not in _ENCODERS:
        raise usage_error(f"no transformer '{name}': one of {', '.join(_ENCODERS)}")
    torch_path()
    import torch

    from sluice_tools.models import encoder

    torch.manual_seed(0)
    module = encoder.Encoder(*_ENCODERS[name])
    if name == "gpt2":
        module = encoder.LanguageModel(module)
    return _from_torch(name, module, torch.zeros(batch, SEQUENCE, dtype=torch.int64))


def _remoteonnx(place: str, batch: int) -> tvm.IRModule:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    data = _fetch(place)
    try:
        model = onnx.load_from_string(data)
        onnx.checker.check_model(model)
    except Exception as error:
        raise usage_error(f"{place} is no ONNX file that can be read: {first_line(error)}") from None
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    shapes = {value.name: _shape(place, value, batch) for value in inputs}
    try:
        return from_onnx(model, shape_dict=shapes, keep_params_in_input=False)
    except Exception as error:
        raise usage_error(f"TVM cannot import {place}: {first_line(error)}") from None


def _shape(place: str, value, batch: int) -> list[int]:
    """Of an ONNX input. A free first dimension is the batch, other free dimensions are sequences."""
    sizes = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    if sizes and sizes[0] not in (0, batch):
        raise usage_error(f"{place}: input '{value.name}' is fixed to batch {sizes[0]}, so batch {batch} is impossible")
    return [size or (SEQUENCE if number else batch) for number, size in enumerate(sizes)]


def _fetch(place: str) -> bytes:
    """The bytes of an .onnx file: of a path, of an address, or the only one inside of a zip."""
    address = place if "://" in place else Path(place).absolute().as_uri()
    if not address.startswith(("file://", "http://", "https://")):
        raise usage_error(f"{place}: give a path, or an address of file, http or https")
    with tempfile.TemporaryFile() as copy:
        try:
            with urllib.request.urlopen(address, timeout=60) as response:
                while block := response.read(1 << 20):
                    copy.write(block)
        except (OSError, ValueError) as error:
            raise usage_error(f"cannot read {place}: {getattr(error, 'reason', error)}") from None
        copy.seek(0)
        if not zipfile.is_zipfile(copy):
            copy.seek(0)
            return copy.read()
        with zipfile.ZipFile(copy) as archive:
            inside = [name for name in archive.namelist() if name.endswith(".onnx")]
            if len(inside) != 1:
                raise usage_error(f"{place} holds {len(inside)} .onnx files, not 1")
            return archive.read(inside[0])
