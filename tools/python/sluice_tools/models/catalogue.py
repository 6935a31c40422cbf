"""Which models there are, and how one is built. Nothing is downloaded."""

import warnings
from dataclasses import dataclass

import torch
import torchvision
from torch import nn

from sluice_tools.models import encoder, names


@dataclass(frozen=True)
class Model:
    name: str
    task: str
    module: nn.Module
    input: list[int]  # of one item of a batch; 0 = any

    def example(self, batch: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        shape = [batch, *self.input]
        if self.task == "text":
            ids = torch.randint(encoder.VOCABULARY, shape, generator=generator)
            return ids.to(device)
        return torch.rand(shape, generator=generator).to(device=device, dtype=dtype)


def build(name: str, seed: int, size: list[int] | None, sequence: int, classes: int | None = None) -> Model:
    """The model with random weights: the same seed gives the same bits. classes: None: the usual ones."""
    task = names.task_of(name)
    torch.manual_seed(seed)
    if task == "text":
        return Model(name, task, encoder.Encoder(*names.ENCODERS[name]).eval(), [sequence])
    settings: dict = {} if task == "classification" else {"weights_backbone": None}
    if classes:
        settings["num_classes"] = classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inception and googlenet announce a changed default
        module = torchvision.models.get_model(name, weights=None, **settings).eval()
    if task == "detection":
        return Model(name, task, module, [3, 0, 0])
    return Model(name, task, module, [3, *(size or _usual_size(name, task, module))])


def _usual_size(name: str, task: str, module: nn.Module) -> list[int]:
    if isinstance(fixed := getattr(module, "image_size", None), int):
        return [fixed, fixed]
    preset = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    side = preset.crop_size if task == "classification" else preset.resize_size
    return [side[0], side[0]]
