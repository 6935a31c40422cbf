"""Models of users, for the tests of `sluice models import` and of serving them."""

import functools
import math
import sys
from pathlib import Path

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


class Masked(nn.Module):
    """As models of Hugging Face: cannot be scripted, and makes tensors on the device of its input."""

    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(100, 8), nn.Embedding(512, 8)

    def forward(self, input_ids, attention_mask, **unused):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.table(input_ids) + self.places(places)
        mask = attention_mask.to(hidden.device, hidden.dtype)
        floor = torch.full((), -1e4, device=hidden.device)
        weights = torch.where(mask > 0, hidden.sum(2), floor).softmax(1)
        return {"pooled": (hidden * weights.unsqueeze(2)).sum(1)}


class Places(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(x.shape[1], device=x.device)


class Optional(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None, scale: float | None = None) -> Tensor:
        x = x if y is None else x + y
        return x if scale is None else x * scale


class CountsItems(nn.Module):
    """Its output is of the batch, and not of each item."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


class Lengths(nn.Module):
    """Takes no item of zeros, but the server fills batches with such items."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, total_length=5)[0]


class Text(nn.Module):
    def forward(self, texts: list[str]) -> Tensor:
        return torch.tensor([len(text) for text in texts])


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: float) -> Tensor:
        return x * scale


class Equal(nn.Module):
    def forward(self, x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        return {"OUTPUT__1": x}, x + 1


class Fixed(nn.Module):
    """Computes with a length that a trace fixes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x, **unused):
        return self.weight * x.sum(1) / math.sqrt(x.shape[1])


class Edges(nn.Sequential):
    """Infinite, not a number, and empty."""

    def forward(self, input):
        y = super().forward(input)
        return y / 0, y.masked_fill(y == y, float("nan")), y[:, :0]


def layers() -> list[nn.Module]:
    return [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]


def edges():
    return Edges(*layers())


def leaves():
    sys.exit(0)


def script(path: Path, module: nn.Module) -> Path:
    torch.manual_seed(0)
    torch.jit.script(module.eval()).save(str(path))
    return path


class Weighted(nn.Module):
    """Each input has a weight of its own, so two that change places change the output. A checkpoint has `w`."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def sum(self, a: Tensor, b: Tensor | None, c: Tensor | None) -> Tensor:
        total = a * self.w
        total = total if b is None else total + 10 * b
        return total if c is None else total + 100 * c


class Ordered(Weighted):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return self.sum(a, b, c)


class Gaps(Weighted):
    """As BERT: an input that is left may be in front of others; and defaults that are not None."""

    def forward(
        self, a: Tensor, b: Tensor | None = None, c: Tensor | None = None, scale: float = 2.0, bias: float | None = 3.0
    ) -> Tensor:
        total = self.sum(a, b, c) * scale
        return total if bias is None else total + bias


class KeywordOnly(Weighted):
    def forward(self, a: Tensor, *, b: Tensor, c: Tensor) -> Tensor:
        return self.sum(a, b, c)


class PositionOnly(Weighted):
    def forward(self, a: Tensor, b: Tensor, /, c: Tensor) -> Tensor:
        return self.sum(a, b, c)


class Kwargs(Weighted):
    """Cannot be scripted."""

    def forward(self, a, **others):
        return self.sum(a, others["b"], others["c"])


class OnlyKwargs(Weighted):
    def forward(self, *inputs, **named):
        return self.sum(*inputs, **named)


class Wrapped(Weighted):
    """As the models of Hugging Face, whose forward() is decorated."""

    @functools.wraps(Ordered.forward)
    def forward(self, *inputs, **named):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.sum(*inputs, **named)
