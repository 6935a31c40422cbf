"""Makes the models that the tests of `sluice train` train: small, and quick to make.

usage: make_train_models.py FOLDER
"""

import json
import shutil
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "python"))

from sluice_tools.models import encoder

warnings.simplefilter("ignore")  # torch calls TorchScript deprecated


class Conv(nn.Module):
    """Has all that a dropped micro-batch must take back: batch norm, dropout, gradients."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(torch.relu(self.norm(self.first(x))).mean((2, 3))))


class Plain(nn.Module):
    """Computes each item alone, so micro-batches compute what the batch computes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.first(x)).mean((2, 3))
        return self.head(x), x


def put(folder: Path, script, task: str, model_input: list[int], model_format: str = "training") -> None:
    folder.mkdir(parents=True)
    script.save(str(folder / "model_train.pt"))
    variant = {"format": model_format, "file": "model_train.pt", "input": model_input, "dtype": "float32"}
    variant |= {"batch": "any", "resizes": False}
    described = {"name": folder.name, "task": task, "torch": torch.__version__.split("+")[0], "variants": [variant]}
    (folder / "model.json").write_text(json.dumps(described))


def main() -> None:
    store = Path(sys.argv[1])
    shutil.rmtree(store, ignore_errors=True)
    torch.manual_seed(0)
    image = [3, 8, 8]
    put(store / "conv", torch.jit.script(Conv()), "classification", image)
    put(store / "plain", torch.jit.script(Plain()), "classification", image)
    put(store / "frozen", torch.jit.freeze(torch.jit.script(Plain().eval())), "classification", image)
    put(store / "inference", torch.jit.script(Plain().eval()), "classification", image, "torchscript")
    encoder.VOCABULARY = 50
    put(store / "text", torch.jit.script(encoder.LanguageModel(encoder.Encoder(1, 16, 2))), "text", [12])


main()
