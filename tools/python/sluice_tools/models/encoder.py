"""A BERT-like text encoder: token ids in, last hidden states out.

Plain operations with fixed control flow, so that it can be scripted, exported and captured into a
CUDA graph. Post-norm, learned positions, no padding mask: every sequence is full.
"""

import torch
import torch.nn.functional as functional
from torch import nn

VOCABULARY = 30522
LONGEST_SEQUENCE = 512


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.causal = False
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = self.attention_norm(x + self.attention_out(mixed))
        return self.norm(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.empty(LONGEST_SEQUENCE, width).normal_(std=0.02))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.tokens(ids) + self.positions[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x)
        return x


class LanguageModel(nn.Module):
    """An encoder whose tokens see earlier tokens only, with logits of the next token as its output.

    The logits take the table of tokens. `sluice train` finds the table by its name, and reads the
    size of the vocabulary from it.
    """

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.encoder = encoder
        for layer in encoder.layers:
            assert isinstance(layer, EncoderLayer)
            layer.causal = True

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.linear(self.encoder(ids), self.encoder.tokens.weight)
