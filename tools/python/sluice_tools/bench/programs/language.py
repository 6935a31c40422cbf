"""A decoder-only language model in plain PyTorch: prefill, decoding, offline generation, and rollouts of RL."""

from collections import deque

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


def _generated(model: Decoder, ids: torch.Tensor, new: int) -> torch.Tensor:
    """`new` tokens after the prompts `ids` (batch, length), greedily."""
    logits, past = model(ids)
    made = [logits.argmax(-1, keepdim=True)]
    for _ in range(new - 1):
        logits, past = model(made[-1], past)
        made.append(logits.argmax(-1, keepdim=True))
    return torch.cat(made, dim=1)


def two_in_flight(setting: Setting):
    """As servers with asynchronous scheduling: a token is launched, then the one before it is waited for, whose logits
    a second stream copies to the host. The program waits by events only, and the GPU is never idle."""
    model = _model(setting, 1)
    ids = [torch.full((1, 1), 7 + index, device=setting.device) for index in range(INPUTS)]
    copies = torch.cuda.Stream() if setting.gpu else None
    pending: deque = deque()

    def launch(index: int) -> None:
        logits = model(ids[index])[0][0, :64]
        if copies is None:
            pending.append((None, logits))
            return
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            logits.record_stream(copies)
            host = torch.empty_like(logits, device="cpu", pin_memory=True).copy_(logits, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        pending.append((done, host))

    @torch.inference_mode()
    def request(index: int):
        if not pending:
            launch((index - 1) % INPUTS)
        launch(index)
        done, logits = pending.popleft()
        if done is not None:
            done.synchronize()
        return to_host(logits)

    return request


def offline_generation(setting: Setting):
    prompts, length, new = setting.size((64, 128, 32), (2, 8, 4))
    model = _model(setting, length + new)
    ids = torch.randint(_VOCABULARY, (prompts, length)).to(setting.device)

    @torch.inference_mode()
    def step():
        _generated(model, ids, new)

    return marked(setting, step)


def rl_rollouts(setting: Setting):
    """Each step: a batch of sequences is decoded, the learner takes a step on them, and its weights are copied to the
    model that decodes."""
    sequences, length, new = setting.size((32, 32, 16), (2, 4, 4))
    actor, learner = _model(setting, length + new), _model(setting, length + new)
    actor.load_state_dict(learner.state_dict())
    ids = torch.randint(_VOCABULARY, (sequences, length)).to(setting.device)
    optimizer = torch.optim.SGD(learner.parameters(), lr=1e-5)

    def step():
        with torch.inference_mode():
            made = _generated(actor, ids, new)
        optimizer.zero_grad(set_to_none=True)
        logits, _ = learner(torch.cat((ids, made[:, :-1]), dim=1))
        functional.cross_entropy(logits.float(), made[:, -1].clone()).backward()
        optimizer.step()
        with torch.no_grad():
            for own, newer in zip(actor.parameters(), learner.parameters()):
                own.copy_(newer, non_blocking=True)

    return marked(setting, step)


def prefill(setting: Setting):
    batch, length = setting.size((4, 2048), (1, 64))
    model = _model(setting, length)
    ids = torch.randint(_VOCABULARY, (batch, length)).to(setting.device)

    @torch.inference_mode()
    def step():
        model(ids)

    return marked(setting, step)
