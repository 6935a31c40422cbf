"""`sluice models import`: models of users, with random weights."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """As BERT: token ids and a mask."""

    def __init__(self, classes: int = 3):
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.layer(self.table(input_ids), src_key_padding_mask=attention_mask == 0)
        return {"hidden": hidden, "logits": self.head(hidden[:, 0])}


class Ranker(nn.Module):
    """Two towers: ids of a user and an item, and features of the item."""

    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(50, 8)
        self.items = nn.Embedding(70, 8)
        self.features = nn.Linear(4, 8)

    def forward(self, user: Tensor, item: Tensor, features: Tensor) -> Tensor:
        return (self.users(user) * (self.items(item) + self.features(features))).sum(1)


class Detector(nn.Module):
    """One image, and the size of the original: boxes of another number for each image."""

    def __init__(self):
        super().__init__()
        self.score = nn.Conv2d(3, 1, 3, padding=1)

    def forward(self, image: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.score(image.unsqueeze(0))[0, 0].flatten()
        kept = (scores > 0).nonzero()[:, 0]
        scale = size.to(image.dtype)
        boxes = kept.to(image.dtype).unsqueeze(1) * torch.cat([scale, scale]) / scores.numel()
        return boxes, scores[kept]


class Types(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a + 1, b


class CountsItems(nn.Module):
    """Its output is of the batch, and not of each item."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


def script(path: Path, module: nn.Module) -> Path:
    torch.manual_seed(0)
    torch.jit.script(module.eval()).save(str(path))
    return path


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


CODE = """
import torch
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


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def bad_files(folder: Path) -> None:
    (folder / "mynet.py").write_text(CODE)
    (folder / "text").write_text("nothing\n")
    torch.save(nn.Linear(3, 2).state_dict(), folder / "other.pth")
    torch.save(Evil(), folder / "evil.pth")
    torch.save(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 9)).state_dict(), folder / "nine.pth")
    torch.save({"input_ids": torch.zeros(2, 4)}, folder / "one.pt")
    script(folder / "reader.pt", Reader())
    script(folder / "counts.pt", CountsItems())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none", "--input", "x:FP32:4"], "no file none"),
        (["text", "--input", "x:FP32:4"], "--class MODULE:CALLABLE"),
        (["text", "--class", "mynet:make", "--input", "x:FP32:4"], "not a file of weights"),
        (["evil.pth", "--class", "mynet:make", "--input", "x:FP32:4"], "not a file of weights"),
        (["other.pth", "--class", "mynet:make", "--input", "x:FP32:4"], "'0.weight' is missing"),
        (["nine.pth", "--class", "mynet:make", "--input", "x:FP32:4"], "trained with 9 classes?"),
        (["nine.pth", "--class", "mynet:wrong", "--input", "x:FP32:4"], "returned a int"),
        (["nine.pth", "--class", "nowhere:make", "--input", "x:FP32:4"], "No module named 'nowhere'"),
        (["reader.pt", "--class", "mynet:make", *READER], "says itself"),
        (["reader.pt"], "no inputs"),
        (["reader.pt", "--input", "x:FP32:4"], "fails on inputs"),
        (["reader.pt", *READER, *READER], "'input_ids' is given twice"),
        (["reader.pt", "--input", "x:FLOAT:4"], "unknown type 'FLOAT'"),
        (["reader.pt", "--input", "x:FP32:0"], "found the side '0'"),
        (["reader.pt", *READER, "--example", "one.pt"], "has 1 of the 2 inputs"),
        (["reader.pt", *READER, "--output", "a"], "the model returns 2 tensors"),
        (["reader.pt", *READER, "--output", "a:any", "--output", "b"], "the model returns anyx16"),
        (["counts.pt", "--input", "x:FP32:5"], "the first dimension must be the batch"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(tmp_path, models, monkeypatch, arguments, said):
    """Nothing is left in the store, and no code of a file runs."""
    bad_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, err = models("import", "bad", *arguments)
    assert code in (1, 2) and out == "" and "Traceback" not in err
    assert said in err.strip().splitlines()[-1], err
    assert not list(models.store.glob("*")) and not (tmp_path / "evil").exists()
