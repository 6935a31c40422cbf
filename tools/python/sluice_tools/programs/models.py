"""Where networks come from: operators by name, torchvision, encoders, ONNX files. Each becomes a relax module."""

import itertools
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from unittest import mock

import tvm
from tvm import relax

from sluice_tools.common.errors import first_line, usage_error
from sluice_tools.programs import catalog
from sluice_tools.programs.tvm_setup import torch_path

SEQUENCE = 128


def load(source: str, name: str, batch: int) -> tvm.IRModule:
    """CommandError, one line, if the network does not exist, is broken, or TVM refuses it."""
    makers = {"simple": _simple, "local": _local, "transformers": _transformers, "remoteonnx": _remoteonnx}
    catalog.check(name, source)
    if batch < 1:
        raise usage_error(f"batch {batch} is not positive")
    return makers[source](name, batch)


def _simple(name: str, batch: int) -> tvm.IRModule:
    kind, _, size = name.partition("-")
    usual, shapes, operator = catalog.OPERATORS[kind]
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
    known = catalog.TORCHVISION.get(name, name)
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
    torch_path()
    import torch

    from sluice_tools.models import encoder

    torch.manual_seed(0)
    module = encoder.Encoder(*catalog.ENCODERS[name])
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
        raise usage_error(
            f"{place}: input '{value.name}' is fixed to batch {sizes[0]}, so batch {batch} is impossible: its first "
            "dimension has to be the batch, not the time; export it free"
        )
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
