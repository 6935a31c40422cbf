"""A U-Net as diffusion models have: residual convolutions at three scales, attention at the smallest."""

import torch
import torch.nn.functional as functional
from torch import nn

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked, on_host, to_host

_STEPS = 4


class Block(nn.Module):
    """Two convolutions and a skip, shifted by the embedded time step (batch, time width)."""

    def __init__(self, channels: int, out: int, time_width: int):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.time = nn.Linear(time_width, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        shifted = self.first(x) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(shifted)


class Attention(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        query, key, value = self.qkv(self.norm(x)).view(batch, 3, 8, channels // 8, height * width).unbind(1)
        mixed = functional.scaled_dot_product_attention(*(part.transpose(-1, -2) for part in (query, key, value)))
        return x + self.out(mixed.transpose(-1, -2).reshape(batch, channels, height, width))


class UNet(nn.Module):
    """(batch, 4, side, side) and the time step (batch,) -> the noise, in the shape of the input."""

    def __init__(self, channels: int):
        super().__init__()
        time_width = 4 * channels
        scales = (channels, 2 * channels, 4 * channels)
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.enter, self.leave = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        pairs = tuple(zip((channels, *scales), scales))
        self.down = nn.ModuleList(Block(a, b, time_width) for a, b in pairs)
        self.middle = Attention(scales[-1])
        self.up = nn.ModuleList(Block(2 * b, a, time_width) for a, b in reversed(pairs))

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        angles = step[:, None] * torch.arange(1, self.channels // 2 + 1, device=x.device) / self.channels
        time = self.time(torch.cat((angles.sin(), angles.cos()), dim=1).to(x.dtype))
        x, kept = self.enter(x), []
        for place, block in enumerate(self.down):
            x = block(x if place == 0 else functional.avg_pool2d(x, 2), time)
            kept.append(x)
        x = self.middle(x)
        for place, block in enumerate(self.up):
            x = block(torch.cat((x, kept.pop()), dim=1), time)
            if place < len(self.up) - 1:
                x = functional.interpolate(x, scale_factor=2.0)
        return self.leave(x)


def _model(setting: Setting) -> tuple[UNet, torch.dtype]:
    half = begin(setting)
    with torch.device(setting.device):
        return UNet(setting.size(192, 8)).eval().to(half), half


def denoise(setting: Setting):
    model, half = _model(setting)
    shape = setting.size((2, 4, 64, 64), (1, 4, 8, 8))
    noise = [on_host(setting, torch.randn(shape).to(half)) for _ in range(INPUTS)]

    @torch.inference_mode()
    def request(index: int):
        image = noise[index].to(setting.device, non_blocking=True)
        for step in range(_STEPS):
            image = image - model(image, torch.full((shape[0],), _STEPS - step, device=setting.device)) / _STEPS
        return to_host(image)

    return request


def batch(setting: Setting):
    model, half = _model(setting)
    shape = setting.size((16, 4, 64, 64), (2, 4, 8, 8))
    images = torch.randn(shape).to(setting.device, half)
    steps = torch.ones(shape[0], device=setting.device)

    @torch.inference_mode()
    def step():
        model(images, steps)

    return marked(setting, step)
