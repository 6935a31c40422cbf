"""Kernels written in Triton, launched by a plain loop."""

import torch
import triton
import triton.language as tl

from sluice_tools.bench.programs.setting import Setting
from sluice_tools.bench.programs.torch_work import begin, marked


@triton.jit
def _softmax(out, values, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    x = tl.load(values + row * columns + place, mask=place < columns, other=float("-inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + place, x / tl.sum(x, axis=0), mask=place < columns)


@triton.jit
def _bias_gelu_add(out, values, bias, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    inside = place < columns
    x = tl.load(values + row * columns + place, mask=inside)
    y = x + tl.load(bias + place, mask=inside)
    y = x + y / (1 + tl.exp(-1.702 * y))
    tl.store(out + row * columns + place, y, mask=inside)


def steps(setting: Setting):
    begin(setting)
    rows, columns, rounds = setting.size((16384, 4096, 16), (4, 64, 1))
    values = torch.randn(rows, columns, device=setting.device)
    bias = torch.randn(columns, device=setting.device)
    middle, out = torch.empty_like(values), torch.empty_like(values)
    block = triton.next_power_of_2(columns)

    def step():
        for _ in range(rounds):
            _bias_gelu_add[(rows,)](middle, values, bias, columns, BLOCK=block)  # pyright: ignore[reportIndexIssue]
            _softmax[(rows,)](out, middle, columns, BLOCK=block)  # pyright: ignore[reportIndexIssue]

    return marked(setting, step)
