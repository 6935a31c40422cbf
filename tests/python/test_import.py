"""`sluice models import`: models of users, with random weights."""

import os
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from sluice_tools.models import aoti
from torch import nn
from user_models import Detector, Masked, Optional, Places, Ranker, Reader, Types, layers, script


def imported(models, name: str, *arguments) -> dict:
    code, _, err = models("import", name, *map(str, arguments))
    assert code == 0, err
    model = models.model(name)
    assert model["task"] == "imported" and len(model["variants"]) == 1
    return model["variants"][0]


READER = ["--input", "input_ids:INT64:any", "--input", "attention_mask:INT64:any"]


def test_named_inputs_and_outputs_of_a_script(tmp_path, models):
    """A renamed key, or a side that is taken for fixed, and the server refuses what the model takes."""
    file = script(tmp_path / "reader.pt", Reader())
    variant = imported(models, "reader", file, *READER)
    assert variant["inputs"][1] == {"name": "attention_mask", "datatype": "INT64", "shape": [-1]}
    assert variant["outputs"] == [
        {"name": "hidden", "datatype": "FP32", "shape": [-1, 16]},
        {"name": "logits", "datatype": "FP32", "shape": [3]},
    ]
    assert variant["batch"] == "any"
    kept = torch.jit.load(str(models.store / "reader" / variant["file"]))
    ids, mask = torch.arange(10).view(2, 5), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    wanted = torch.jit.load(str(file))(ids, mask)
    torch.testing.assert_close(kept(ids, mask), wanted, rtol=1e-3, atol=1e-4)


def test_shapes_are_asked_of_an_example(tmp_path, models):
    """Names come from forward() if the example has none."""
    file = script(tmp_path / "ranker.pt", Ranker())
    example = tmp_path / "example.pt"
    torch.save([torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), torch.rand(2, 4)], example)
    variant = imported(models, "ranker", file, "--example", example, "--output", "score")
    assert [entry["name"] for entry in variant["inputs"]] == ["user", "item", "features"]
    assert [entry["shape"] for entry in variant["inputs"]] == [[], [], [4]]
    assert variant["outputs"] == [{"name": "score", "datatype": "FP32", "shape": []}]


def test_a_model_without_a_batch_dimension(tmp_path, models):
    file = script(tmp_path / "detector.pt", Detector())
    shapes = ["--input", "image:FP32:3xanyxany", "--input", "size:INT64:2"]
    variant = imported(
        models, "detector", file, *shapes, "--no-batch", "--output", "boxes:anyx4", "--output", "scores:any"
    )
    assert variant["batch"] == 0
    assert variant["outputs"][0] == {"name": "boxes", "datatype": "FP32", "shape": [-1, 4]}
    assert "fails on inputs" in models.refused(1, "import", "wrong", str(file), *shapes)


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP64"])
def test_types(tmp_path, models, datatype):
    file = script(tmp_path / "types.pt", Types())
    variant = imported(models, "types", file, "--input", "a:FP32:2", "--input", f"b:{datatype}:3")
    assert variant["outputs"][1] == {"name": "OUTPUT__1", "datatype": datatype, "shape": [3]}


def test_a_trace_follows_its_inputs(tmp_path, models):
    """A size or a device of its example that is left in it would be wrong for other inputs."""
    module = Masked().eval()
    torch.save(module.state_dict(), tmp_path / "masked.pth")
    variant = imported(models, "masked", tmp_path / "masked.pth", "--class", "user_models:Masked", *READER)
    assert variant["outputs"] == [{"name": "pooled", "datatype": "FP32", "shape": [8]}]
    file = str(models.store / "masked" / "model.pt")
    ids, mask = torch.arange(14).view(2, 7), torch.tensor([[1] * 7, [1, 1, 0, 0, 0, 0, 0]])
    found = torch.jit.load(file)(ids, mask)
    torch.testing.assert_close(found["pooled"], module(ids, mask)["pooled"], rtol=1e-3, atol=1e-4)


def test_names_are_those_of_the_class(tmp_path, models):
    torch.save(Masked().state_dict(), tmp_path / "masked.pth")
    torch.save([torch.ones(2, 7, dtype=torch.int64)] * 2, tmp_path / "example.pt")
    checkpoint = [tmp_path / "masked.pth", "--class", "user_models:Masked", "--example", tmp_path / "example.pt"]
    variant = imported(models, "masked", *checkpoint)
    assert [(entry["name"], entry["shape"]) for entry in variant["inputs"]] == [
        ("input_ids", [7]),
        ("attention_mask", [7]),
    ]


def test_a_trace_of_a_user_follows_its_inputs(tmp_path, models):
    torch.jit.save(torch.jit.trace(Places(), torch.ones(2, 64)), str(tmp_path / "places.pt"))
    imported(models, "places", tmp_path / "places.pt", "--input", "x:FP32:any")
    kept = torch.jit.load(str(models.store / "places" / "model.pt"))
    assert kept(torch.zeros(1, 3)).tolist() == [[0, 1, 2]]
    assert kept(torch.zeros(1, 3, device="meta")).device.type == "meta"


@pytest.mark.parametrize("inputs", [["x:FP32:3"], ["x:FP32:3", "serving_default_y:0:FP32:3"]])
def test_arguments_that_are_left_are_none(tmp_path, models, inputs):
    """A name of another framework may have a colon."""
    file = script(tmp_path / "optional.pt", Optional())
    variant = imported(models, "optional", file, *(part for text in inputs for part in ("--input", text)))
    assert [entry["name"] for entry in variant["inputs"]] == [text.removesuffix(":FP32:3") for text in inputs]


CODE = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

def wrong():
    return 5
"""


@pytest.mark.parametrize("form", ["alone", "nested", "parallel"])
def test_a_checkpoint_with_its_class(tmp_path, models, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynet.py").write_text(CODE)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    state = net.state_dict()
    if form == "parallel":
        state = nn.DataParallel(net).state_dict()
    torch.save({"epoch": 3, "state_dict": state} if form == "nested" else state, tmp_path / "net.pth")
    arguments = ["net.pth", "--class", "mynet:make", "--input", "x:FP32:4"]
    code, _, err = models("import", "net", *arguments)
    assert code == 0, err
    assert "runs the code of mynet:make" in err
    kept = torch.jit.load(str(models.store / "net" / "model.pt"))
    x = torch.rand(3, 4)
    torch.testing.assert_close(kept(x), net(x), rtol=1e-3, atol=1e-4)
    assert "--force" in models.refused(2, "import", "net", *arguments)


def test_values_that_compare_with_nothing(tmp_path, models):
    """A masked value is infinite: it must not make a model one that computes something else."""
    torch.save(nn.Sequential(*layers()).state_dict(), tmp_path / "net.pth")
    variant = imported(models, "edges", tmp_path / "net.pth", "--class", "user_models:edges", "--input", "x:FP32:4")
    assert [entry["shape"] for entry in variant["outputs"]] == [[2], [2], [0]]


def package_file(folder: Path) -> str:
    with zipfile.ZipFile(folder / "net.pt2", "w") as archive:
        archive.writestr("net/data/aotinductor/model/x.so", "")
    return str(folder / "net.pt2")


class Package:
    """Stands in for an AOTInductor package, which takes minutes to compile; see test_aoti.py."""

    loader = SimpleNamespace(get_metadata=lambda: {"AOTI_DEVICE_KEY": "cpu"})

    def __call__(self, user, features):
        assert user.shape == (4,) and features.shape == (4, 3)
        return features.sum(1) + user


def test_a_package_has_the_batch_of_its_example(tmp_path, models, monkeypatch):
    """A package does not say what it takes: another batch or type would be read as its own."""
    monkeypatch.setattr(aoti, "load_package", lambda _path: Package())
    file, example = package_file(tmp_path), tmp_path / "example.pt"
    torch.save([torch.ones(4, dtype=torch.int64), torch.rand(4, 3)], example)
    variant = imported(models, "net", file, "--example", example)
    assert (variant["format"], variant["batch"], variant["device"]) == ("aoti", 4, "cpu")
    assert variant["inputs"] == [
        {"name": "INPUT__0", "datatype": "INT64", "shape": []},
        {"name": "INPUT__1", "datatype": "FP32", "shape": [3]},
    ]
    shapes = ["--input", "user:INT64:", "--input", "features:FP32:any"]
    assert "--example FILE has it" in models.refused(2, "import", "other", str(file), *shapes)
    line = models.refused(2, "import", "other", str(file), *shapes, "--example", str(example))
    assert "compiled for fixed sizes" in line


def test_the_reason_that_a_package_prints_is_the_error(capfd):
    """LibTorch prints it among a hundred lines, and raises the name of a function."""

    def fail():
        os.write(2, b"[E1] Exception in aoti_torch: no such row\nframe #0: main\n")
        raise RuntimeError("run_func_()")

    with pytest.raises(RuntimeError, match=r"^no such row$"):
        aoti.quietly(fail)()
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"
