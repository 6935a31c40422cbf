"""Makes the models that the tests of served PyTorch models run, each with an input and the outputs
that TorchScript computes for it.

usage: make_models.py FOLDER

With SLUICE_TEST_ALL_CLASSIFIERS set, every classifier of torchvision; that takes minutes.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

warnings.simplefilter("ignore")  # torch calls TorchScript deprecated

TOOLS = Path(__file__).parents[3] / "tools" / "python"
EXPORTED = ["densenet121", "resnet18", "swin_t"]
SIDE = 64
# Classifiers that take no image of SIDE pixels.
NEEDS_ITS_OWN_SIZE = ("vit_", "maxvit", "inception", "alexnet")


class Residual(nn.Module):
    """Has all that a cut must respect: values that live long, work in place, lists, views."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.third = nn.Conv2d(16, 8, 3, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.first(x)
        shortcut = x
        x = torch.relu_(self.second(x))
        view = shortcut.transpose(2, 3)
        x += shortcut
        shortcut.mul_(2)
        features = [x]
        features.append(view)
        x = torch.relu(self.third(torch.cat(features, 1)))
        x = x + features[0]
        pooled = self.dropout(x.mean((2, 3)))
        return {"out": self.head(pooled), "pooled": pooled}


class OneItem(nn.Module):
    """Traced with one item, as a careless export would be."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(1, -1)[:, :4]


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flatten(1).sum(1), x.flatten(1).argmax(1)


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Lookup(nn.Module):
    """Looks its input up in two tables, after changes of its shape."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Embedding(1200, 4)
        self.narrow = nn.Embedding(1100, 4)

    def forward(self, ids: Tensor) -> Tensor:
        if ids.dim() == 2:
            ids = ids.unsqueeze(1)
        return self.wide(ids.view(ids.size(0), -1)) + self.narrow(ids.flatten(1).to(torch.int32))


class Shifted(nn.Module):
    """Computes its ids: their limit cannot be known."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1200, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids + 1)


class Waits(nn.Module):
    """Reads a value on the host, which no capture can."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 100).any()):
            return x.flatten(1)
        return x.flatten(1) * 2


class Detector(nn.Module):
    def forward(self, images: list[Tensor]) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
        found: list[dict[str, Tensor]] = []
        for image in images:
            rows = image[0].sum(1)
            found.append({"boxes": rows.unsqueeze(1).expand(-1, 4).contiguous(), "scores": rows})
        return {}, found


def put(folder: Path, script, task: str, model_input: list[int]) -> None:
    folder.mkdir(parents=True)
    script.save(str(folder / "model.pt"))
    variant = {"format": "torchscript", "file": "model.pt", "input": model_input, "dtype": "float32"}
    variant |= {"batch": "any", "resizes": task == "detection"}
    described = {"name": folder.name, "task": task, "torch": torch.__version__.split("+")[0], "variants": [variant]}
    (folder / "model.json").write_text(json.dumps(described))


def make_own(store: Path) -> None:
    torch.manual_seed(0)
    image = [3, 16, 16]
    put(store / "residual", torch.jit.freeze(torch.jit.script(Residual().eval())), "classification", image)
    # As a user may have saved it: not frozen, and still training.
    put(store / "unfrozen", torch.jit.script(Residual()), "classification", image)
    put(store / "one_item", torch.jit.trace(OneItem(), torch.zeros(1, *image)), "classification", image)
    put(store / "pair", torch.jit.script(Pair()), "classification", image)
    put(store / "two_inputs", torch.jit.script(TwoInputs()), "classification", image)
    put(store / "lookup", torch.jit.script(Lookup()), "text", [6])
    put(store / "shifted", torch.jit.script(Shifted()), "text", [6])
    put(store / "waits", torch.jit.script(Waits()), "classification", image)
    put(store / "detector", torch.jit.script(Detector()), "detection", [3, 0, 0])


def export(store: Path) -> None:
    names = EXPORTED
    if os.environ.get("SLUICE_TEST_ALL_CLASSIFIERS"):
        sys.path.insert(0, str(TOOLS))
        from sluice_tools.models.names import tasks

        names = [name for name, task in tasks().items() if task == "classification"]
    own_size = [name for name in names if name.startswith(NEEDS_ITS_OWN_SIZE)]
    small = ["--size", str(SIDE), str(SIDE)]
    run_export(store, ["bert_tiny"])
    run_export(store, [*[name for name in names if name not in own_size], *small])
    if own_size:
        run_export(store, own_size)


def run_export(store: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "sluice_tools.models", "export", *arguments, "--store", str(store)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(TOOLS)}, check=True)


def flat(output) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    return [tensor for value in values for tensor in flat(value)]


def write_examples(store: Path) -> None:
    """input.bin: two items. output.bin: all outputs of the model, one after another."""
    for name in ("residual", "unfrozen", "pair", "bert_tiny", "resnet18"):
        if not (store / name).exists():
            continue
        model = torch.jit.load(str(store / name / "model.pt"))
        if name == "unfrozen":
            model.eval()
        shape = json.loads((store / name / "model.json").read_text())["variants"][0]["input"]
        example = torch.randint(1000, (2, *shape)) if name == "bert_tiny" else torch.randn(2, *shape)
        (store / name / "input.bin").write_bytes(example.numpy().tobytes())
        with torch.inference_mode():
            outputs = flat(model(example))
        (store / name / "output.bin").write_bytes(b"".join(t.contiguous().numpy().tobytes() for t in outputs))


def stamp() -> str:
    """Changes with everything that decides the content of the store."""
    sources = [Path(__file__), *sorted((TOOLS / "sluice_tools" / "models").glob("*.py"))]
    parts = [torch.__version__, os.environ.get("SLUICE_TEST_ALL_CLASSIFIERS", "")]
    return hashlib.sha256("".join([*parts, *(p.read_text() for p in sources)]).encode()).hexdigest()


def main() -> None:
    store = Path(sys.argv[1])
    made = store.with_name(store.name + ".stamp")
    if made.exists() and made.read_text() == stamp():
        return
    made.unlink(missing_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    torch.set_num_threads(1)
    make_own(store)
    export(store)
    write_examples(store)
    made.write_text(stamp())


main()
