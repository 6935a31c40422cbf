"""`sluice models import` refuses in one line what cannot be served, and leaves nothing in the store."""

import os
from pathlib import Path

import pytest
import torch
from test_import import CODE, READER
from torch import nn
from user_models import CountsItems, Equal, Lengths, Reader, Scaled, Text, layers, script


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
    script(folder / "lengths.pt", Lengths())
    script(folder / "text.pt", Text())
    script(folder / "scaled.pt", Scaled())
    script(folder / "equal.pt", Equal())
    script(folder / "identity.pt", nn.Identity())
    (folder / "short.pt").write_bytes((folder / "reader.pt").read_bytes()[:500])
    torch.save(nn.Sequential(*layers()).state_dict(), folder / "net.pth")
    torch.save({"weight": torch.ones(1)}, folder / "fixed.pth")
    torch.save([torch.zeros(0, 3)], folder / "empty.pt")
    torch.save([Evil()], folder / "evil_example.pt")


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
        (["reader.pt", "--input", "x:FP32:4"], "an argument 'attention_mask' without an input"),
        (["reader.pt", *READER, *READER], "'input_ids' is given twice"),
        (["reader.pt", "--input", "x:FLOAT:4"], "unknown type 'FLOAT'"),
        (["reader.pt", "--input", "x:FP32:0"], "found the side '0'"),
        (["reader.pt", *READER, "--example", "one.pt"], "has 1 of the 2 inputs"),
        (["reader.pt", *READER, "--output", "a"], "the model returns 2 tensors"),
        (["reader.pt", *READER, "--output", "a:any", "--output", "b"], "the model returns anyx16"),
        (["counts.pt", "--input", "x:FP32:5"], "the first dimension must be the batch"),
        (
            ["net.pth", "--class", "user_operator:make", "--input", "x:FP32:4"],
            "needs the operator user_operator::twice",
        ),
        (["net.pth", "--class", "user_models:leaves", "--input", "x:FP32:4"], "SystemExit"),
        (
            ["fixed.pth", "--class", "user_models:Fixed", "--input", "x:FP32:any"],
            "computes something else than the model",
        ),
        (["lengths.pt", "--input", "x:FP32:5x4", "--input", "lengths:INT64:"], "that are zero"),
        (["text.pt", "--input", "texts:BYTES:"], "send token ids"),
        (["text.pt", "--input", "texts:INT64:5"], "List[str], but the server gives tensors; it takes token ids"),
        (["scaled.pt", "--input", "x:FP32:3"], "an argument 'scale' without an input"),
        (["scaled.pt", "--input", "x:FP32:3", "--input", "scale:FP32:"], "'scale' of forward() is of type float"),
        (["equal.pt", "--input", "x:FP32:3"], "'OUTPUT__1' is given twice"),
        (["short.pt", "--input", "x:FP32:3"], "--class MODULE:CALLABLE"),
        (["identity.pt", "--input", "x:FP32:" + "x".join(["2147483647"] * 4)], "no memory for the input 'x'"),
        (["identity.pt", "--input", "x y:FP32:3"], "expected NAME:TYPE:SHAPE"),
        (["identity.pt", "--example", "empty.pt"], "has no elements"),
        (["identity.pt", "--example", "evil_example.pt"], "cannot be read"),
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


def test_the_name_of_the_servers_own_model_is_refused(tmp_path, models):
    file = script(tmp_path / "identity.pt", nn.Identity())
    assert "take another one" in models.refused(2, "import", "dummy", str(file), "--input", "x:FP32:3")
