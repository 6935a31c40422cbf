"""The models that the experiments train: each a model, one fixed micro-batch and a loss."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision
from torch import nn
from torch.nn import functional


@dataclass
class Job:
    model: nn.Module
    loss: Callable[[], torch.Tensor]  # The loss of one micro-batch.
    optimizer: torch.optim.Optimizer


class Encoder(nn.Module):
    """A transformer encoder with dropout; attention is scaled_dot_product_attention."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(1))


def images(device: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images [batch, 3, size, size] and labels [batch]; small images on the CPU."""
    size = 224 if device == "cuda" else 64
    return torch.randn(batch, 3, size, size).to(device), torch.randint(0, 10, (batch,)).to(device)


def image_job(model: nn.Module, device: str, batch: int) -> Job:
    x, labels = images(device, batch)
    model = model.to(device).train()

    def loss() -> torch.Tensor:
        return functional.cross_entropy(model(x), labels)

    return Job(model, loss, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))


def encoder_job(device: str) -> Job:
    layers, width, batch, length = (6, 512, 16, 256) if device == "cuda" else (2, 64, 2, 16)
    x = torch.randn(batch, length, width).to(device)
    labels = torch.randint(0, 10, (batch,)).to(device)
    model: nn.Module = Encoder(layers, width).to(device).train()

    def loss() -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return functional.cross_entropy(model(x), labels)

    return Job(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-3))


def make(name: str, device: str) -> Job:
    """A new job with the parameters and data of seed 0. Raises KeyError for an unknown name."""
    torch.manual_seed(0)
    models = torchvision.models
    batch = (lambda size: size) if device == "cuda" else (lambda size: 2)
    return {
        "resnet50": lambda: image_job(models.resnet50(num_classes=10), device, batch(32)),
        "swin_t": lambda: image_job(models.swin_t(num_classes=10), device, batch(16)),
        "encoder-bf16": lambda: encoder_job(device),
    }[name]()
