"""A decoder-only language model in plain PyTorch: prefill of long prompts, and decoding token by token."""

import torch
import torch.nn.functional as functional
from torch import nn

from sluice_tools.bench.programs.requests import INPUTS
from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked, to_host

_VOCABULARY = 32000
_PROMPT, _NEW = 64, 8  # tokens


class Layer(nn.Module):
    """Attention with a cache, then an MLP. Shapes: (batch, length, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, past: tuple | None) -> tuple[torch.Tensor, tuple]:
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if past is not None:
            key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm(x)))), (key, value)


class Decoder(nn.Module):
    def __init__(self, layers: int, width: int, longest: int):
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, width)
        self.positions = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, width // 128 or 1) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor, past: list | None = None) -> tuple[torch.Tensor, list]:
        """ids: (batch, length) tokens after those of `past`. Gives the logits of the last token, and the cache."""
        begin_at = past[0][0].shape[2] if past else 0
        places = torch.arange(begin_at, begin_at + ids.shape[1], device=ids.device)
        x, cache = self.tokens(ids) + self.positions(places), []
        for index, layer in enumerate(self.layers):
            x, kept = layer(x, past[index] if past else None)
            cache.append(kept)
        return self.norm(x[:, -1]) @ self.tokens.weight.T, cache


def _model(setting: Setting, longest: int) -> Decoder:
    begin(setting)
    with torch.device(setting.device):
        model = Decoder(*setting.size((16, 2048), (2, 64)), longest)
    return model.eval().to(torch.bfloat16 if setting.gpu else torch.float32)


def decode(setting: Setting):
    model = _model(setting, _PROMPT + _NEW)
    prompts = torch.randint(_VOCABULARY, (INPUTS, 1, _PROMPT))

    @torch.inference_mode()
    def request(index: int):
        logits, past = model(prompts[index].to(setting.device))
        for _ in range(_NEW - 1):
            logits, past = model(logits.argmax(-1, keepdim=True), past)
        return to_host(logits)

    return request


def prefill(setting: Setting):
    batch, length = setting.size((4, 2048), (1, 64))
    model = _model(setting, length)
    ids = torch.randint(_VOCABULARY, (batch, length)).to(setting.device)

    @torch.inference_mode()
    def step():
        model(ids)

    return marked(setting, step)
