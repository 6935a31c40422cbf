"""`sluice models import` takes weights as training programs and hubs save them, and says what is wrong with others."""

import json
import random
import struct
from pathlib import Path

import pytest
import torch
from sluice_tools.common.errors import CommandError
from sluice_tools.models import safetensors, weights
from test_import_refused import Evil
from torch import nn

X = torch.rand(3, 4)
TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.complex64: "C64", torch.uint16: "U16", torch.uint32: "U32",
}  # fmt: skip


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.fc(x))


class Held(nn.Module):
    """Its children have the names that wrappers use."""

    def __init__(self):
        super().__init__()
        self.module, self.model = nn.Linear(4, 3), Plain()
        self.n_averaged = nn.Parameter(torch.rand(()))

    def forward(self, x):
        return torch.cat([self.module(x), self.model(x)], 1) * self.n_averaged


class Extra(Plain):
    seen = 0

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]

    def forward(self, x):
        return super().forward(x) + self.seen


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.table(x))


class Late(nn.Module):
    """Has no shapes before its weights are loaded."""

    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(2)

    def forward(self, x):
        return self.fc(x)


def made(kind: type[nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    module = kind().eval()
    with torch.no_grad():
        module(X)
    return module


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict | None = None) -> Path:
    """By the description of the format, not by what reads it."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()) if tensor.numel() else b""
        header[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def imported(models, file: Path, kind: str, *more: str):
    arguments = ["--class", f"test_import_checkpoints:{kind}", "--input", "x:FP32:4", *more]
    code, _, err = models("import", "net", "--force", str(file), *arguments)
    assert code == 0, err
    return torch.jit.load(str(models.store / "net" / "model.pt"))


def compiled(net):
    return torch.compile(net).state_dict()


def averaged(net):
    return torch.optim.swa_utils.AveragedModel(net).state_dict()


def parallel(net):
    return nn.DataParallel(net).state_dict()


FORMS = {
    "compiled": compiled,
    "parallel": parallel,
    "averaged": averaged,
    "compiled, then parallel": lambda net: parallel(torch.compile(net)),
    "parallel, then compiled": lambda net: compiled(nn.DataParallel(net)),
    "compiled, then averaged": lambda net: averaged(torch.compile(net)),
    "nanoGPT": lambda net: {"model": compiled(net), "iter_num": 3},
    "DeepSpeed": lambda net: {"module": net.state_dict(), "global_steps": 3},
    "Lightning": lambda net: {"state_dict": {f"net.{key}": value for key, value in net.state_dict().items()}},
}


@pytest.mark.parametrize("kind", [Plain, Held, Extra, Late])
@pytest.mark.parametrize("form", FORMS)
def test_what_training_programs_save(tmp_path, models, form, kind):
    """The wrappers of torch itself, not their prefixes as we know them."""
    net = made(kind, 5)
    net.seen = 7
    torch.save(FORMS[form](net), tmp_path / "net.pth")
    wanted = net(X)
    stored = imported(models, tmp_path / "net.pth", kind.__name__)
    torch.testing.assert_close(stored(X), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_wrappers_at_any_place(seed):
    """A part of a model may be compiled or wrapped by itself. A child of that name must keep its weights."""
    chance = random.Random(seed)
    kind = chance.choice([Plain, Held])
    net, other = made(kind, 1), made(kind, 2)
    wraps = {}  # of each module, as its name says

    def wrapped(name: str) -> str:
        parts, key = name.split("."), ""
        for i, part in enumerate(parts):
            owner = ".".join(parts[:i])
            wraps.setdefault(owner, chance.choices(sorted(weights._WRAPPERS), k=chance.choice([0, 0, 1, 2])))
            key += "".join(f"{wrapper}." for wrapper in wraps[owner]) + part + "."
        return key[:-1]

    state = {wrapped(name): value for name, value in net.state_dict().items()}
    weights.load_state(other, "net", state, Path("file"))
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in other.state_dict().items())


def test_two_tensors_for_one_name_are_refused():
    """Else one of them would be taken, and nobody would learn which."""
    state = Plain().state_dict()
    both = {
        **{f"module.{key}": value for key, value in state.items()},
        **{f"_orig_mod.{k}": v for k, v in state.items()},
    }
    with pytest.raises(CommandError, match="does not fit"):
        weights.load_state(Plain(), "net", both, Path("file"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s | {"fc.weight": torch.rand(9, 4)}, r"'fc.weight' is \[9, 4\] where.*trained with 9 classes"),
        (
            lambda s: {f"_orig_mod.{k}": v for k, v in s.items()} | {"_orig_mod.fc.bias": torch.rand(5)},
            r"'fc.bias' is \[5\]",
        ),
        (
            lambda s: {f"_orig_mod.{k}": v for k, v in s.items() if k != "fc.bias"},
            "'fc.bias' is missing.*'_orig_mod.fc",
        ),
        (lambda s: {f"other.deep.{k[1:]}": v for k, v in s.items()}, "the file has 'other.deep."),
        (lambda s: s | {"fc.scale": torch.rand(1)}, "'fc.scale' is unexpected"),
        (lambda s: s | {"fc.weight": 5}, "'fc.weight' is a int and no tensor"),
        (lambda s: s | {"n_averaged": torch.ones(()), "epoch": 3}, "'epoch' is unexpected"),
        (lambda s: {}, "is missing"),
    ],
)
def test_the_refusal_says_what_the_file_has(change, said):
    with pytest.raises(CommandError, match=said):
        weights.load_state(Plain(), "net", change(Plain().state_dict()), Path("file"))


def test_extra_state_that_the_model_refuses_is_one_line(tmp_path, models):
    torch.save(made(Extra, 1).state_dict() | {"_extra_state": {"other": 1}}, tmp_path / "net.pth")
    arguments = ["--class", "test_import_checkpoints:Extra", "--input", "x:FP32:4"]
    line = models.refused(2, "import", "net", str(tmp_path / "net.pth"), *arguments)
    assert "does not take the weights" in line and "seen" in line


@pytest.mark.parametrize("kind", [Plain, Held, Tied])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("name", ["net.safetensors", "net.bin"])
def test_safetensors(tmp_path, models, kind, prefix, name):
    """Hubs write this format. It has a tensor that is shared once, under one of its names."""
    net = made(kind, 3)
    state = {f"{prefix}{key}": value for key, value in net.state_dict().items() if key != "head.weight"}
    file = write_safetensors(tmp_path / name, state, {"format": "pt"})
    stored = imported(models, file, kind.__name__)
    torch.testing.assert_close(stored(X), net(X), rtol=1e-3, atol=1e-4)
    example = write_safetensors(tmp_path / "example.safetensors", {"x": X})
    imported(models, file, kind.__name__, "--example", str(example))


@pytest.mark.parametrize("seed", range(20))
def test_safetensors_of_all_types_and_shapes(tmp_path, seed):
    chance = random.Random(seed)
    tensors = {}
    for i in range(chance.randrange(6)):
        shape = [chance.randrange(4) for _ in range(chance.randrange(4))]
        dtype = chance.choice(list(TYPES))
        tensors[f"{i}.é"] = (torch.rand(shape) * 2).to(dtype)
    found = safetensors.read(write_safetensors(tmp_path / "x", tensors, chance.choice([None, {"a": "b"}])))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert found[name].flatten().view(torch.uint8).tolist() == tensor.flatten().view(torch.uint8).tolist()


@pytest.mark.parametrize("seed", range(30))
def test_damaged_safetensors_are_refused_in_one_line(tmp_path, models, seed):
    """Every cut and many changes: an error of ours, or tensors of the sizes that the header gives."""
    chance = random.Random(seed)
    whole = write_safetensors(tmp_path / "x", {"a": torch.rand(3, 4), "b": torch.rand(2)}).read_bytes()
    file = tmp_path / "net.safetensors"
    for _ in range(30):
        data = bytearray(whole)
        if chance.random() < 0.5:
            del data[chance.randrange(len(data)) :]
        else:
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(150)] = chance.choice(b'\x00\xff0129[]{}",:ab')
        file.write_bytes(data)
        try:
            found = safetensors.read(file)
        except ValueError:
            continue
        assert sum(tensor.numel() * tensor.element_size() for tensor in found.values()) == 56
    file.write_bytes(whole[: chance.randrange(len(whole))])
    arguments = ["--class", "test_import_checkpoints:Plain", "--input", "x:FP32:4"]
    assert "not a file of weights" in models.refused(2, "import", "net", str(file), *arguments)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": 5},
        {},
        [],
    ],
)
def test_a_header_that_does_not_fit_its_file(tmp_path, header):
    text = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(ValueError, match=r"^(it|the)"):
        safetensors.read(tmp_path / "x")


def test_no_refusal_recommends_unsafe_loading(tmp_path, models):
    """Torch's own message does, also for a file of code."""
    (tmp_path / "text").write_text("no weights")
    torch.save(Evil(), tmp_path / "evil.pth")
    torch.save({"state_dict": Plain().state_dict(), "net": Evil()}, tmp_path / "hidden.pth")
    torch.save(Plain(), tmp_path / "whole.pth")
    torch.save(Plain().state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    (tmp_path / "cut.pth").write_bytes((tmp_path / "old.pth").read_bytes()[:300])
    (tmp_path / "cut.safetensors").write_bytes(b"\x10")
    for name in ("text", "evil.pth", "hidden.pth", "whole.pth", "cut.pth", "cut.safetensors"):
        for words in (["--input", "x:FP32:4"], ["--example", str(tmp_path / name)]):
            file = "old.pth" if "--example" in words else name
            arguments = ["--class", "test_import_checkpoints:Plain", *words]
            line = models.refused(2, "import", "net", str(tmp_path / file), *arguments)
            for word in ("weights_only", "arbitrary", "trust", "Re-running"):
                assert word not in line
    arguments = ["--class", "test_import_checkpoints:Plain", "--input", "x:FP32:4"]
    assert "test_import_checkpoints.Plain" in models.refused(
        2, "import", "net", str(tmp_path / "whole.pth"), *arguments
    )
