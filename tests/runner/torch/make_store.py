"""Makes what the tests of the LibTorch worker run: a model store of tiny models, and images.

usage: make_store.py FOLDER
"""

import json
import os
import shutil
import sys
import warnings
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor, nn

warnings.simplefilter("ignore")  # torch calls TorchScript deprecated
import torchvision  # noqa: E402  registers nms

PACKAGE = "sluice_test_classifier.pt2"  # unpacked into a folder of this name


class Classifier(nn.Module):
    """Takes 3x16x16 and nothing else."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 14 * 14, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


class Detector(nn.Module):
    """With the form of torchvision's, and one of their operators."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, images: list[Tensor]) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
        detections: list[dict[str, Tensor]] = []
        for image in images:
            boxes = torch.tensor([[0.0, 0.0, 9.0, 9.0], [0.0, 0.0, 9.0, 8.0]]) * self.scale
            kept = torch.ops.torchvision.nms(boxes, torch.tensor([0.9, 0.8]), 0.5)
            size = torch.tensor([float(image.shape[-2]), float(image.shape[-1])])
            detections.append({"boxes": boxes[kept], "size": size})
        return {}, detections


def describe(folder: Path, task: str, variants: list[dict]) -> None:
    description = {
        "name": folder.name,
        "task": task,
        "weights": {"source": "random", "seed": 0},
        "torch": torch.__version__.split("+")[0],
        "torchvision": torchvision.__version__.split("+")[0],
        "variants": variants,
    }
    (folder / "model.json").write_text(json.dumps(description))


def torchscript(file: str, model_input: list[int], resizes: bool = False) -> dict:
    return {
        "format": "torchscript",
        "file": file,
        "input": model_input,
        "dtype": "float32",
        "batch": "any",
        "resizes": resizes,
    }


def make_classifier(folder: Path) -> None:
    folder.mkdir()
    torch.manual_seed(0)
    model = Classifier().eval()
    torch.jit.script(model).save(str(folder / "model.pt"))
    with torch.no_grad():
        program = torch.export.export(model, (torch.zeros(2, 3, 16, 16),))
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / PACKAGE))
    compiled = {
        "format": "aoti",
        "file": PACKAGE,
        "input": [3, 16, 16],
        "dtype": "float32",
        "batch": 2,
        "device": "cpu",
        "resizes": False,
    }
    describe(folder, "classification", [torchscript("model.pt", [3, 16, 16]), compiled])


def make_detector(folder: Path) -> None:
    folder.mkdir()
    for file, scale in (("model.pt", 1.0), ("model_fixed.pt", 2.0)):
        torch.jit.script(Detector(scale)).save(str(folder / file))
    any_size = [3, 0, 0]
    describe(
        folder, "detection", [torchscript("model.pt", any_size, resizes=True), torchscript("model_fixed.pt", any_size)]
    )


def make_broken(folder: Path) -> None:
    folder.mkdir()
    (folder / "model.pt").write_bytes(b"not a TorchScript file")
    describe(folder, "classification", [torchscript("model.pt", [3, 16, 16])])


def make_images(folder: Path) -> None:
    folder.mkdir()
    pixels = numpy.random.default_rng(0).integers(0, 255, (24, 32, 4), dtype=numpy.uint8)
    Image.fromarray(pixels).save(folder / "rgba.png")
    Image.fromarray(pixels[..., :3]).save(folder / "rgb.png")
    Image.fromarray(pixels[..., 0]).save(folder / "grey.png")
    Image.fromarray(pixels[..., :2], "LA").save(folder / "grey_alpha.png")
    Image.fromarray(pixels[..., 0].astype(numpy.uint16) * 200).save(folder / "grey_16bit.png")
    Image.fromarray(pixels).convert("CMYK").save(folder / "cmyk.jpg")
    (folder / "text.png").write_text("not an image")


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    # Beside it, so that the next run is quicker, and in nobody's way.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}-cache")
    store = folder / "store"
    store.mkdir(parents=True)
    make_classifier(store / "classifier")
    make_detector(store / "detector")
    make_broken(store / "broken")
    make_images(folder / "images")


main()
