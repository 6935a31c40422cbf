"""Triton: own kernels, an autotuned one, in two streams, and in a captured graph."""

import torch
import triton
import triton.language as tl
from common import clock, report


@triton.jit
def mix(data, salt, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(data + i, mask=i < n)
    tl.store(data + i, x * 1664525 + salt, mask=i < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in (2, 4)],
    key=["n"],
    restore_value=["data"],
)
@triton.jit
def tuned(data, salt, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(data + i, mask=i < n)
    tl.store(data + i, x * 22695477 + salt, mask=i < n)


n = 1 << 16
data = [torch.full((n,), 7, dtype=torch.int32, device="cuda") for _ in range(2)]
streams = [torch.cuda.Stream() for _ in range(2)]
grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
for d in data:
    mix[grid](d, 1, n, BLOCK=256)
    tuned[grid](d, 3, n)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for k in range(30):
        mix[grid](data[0], k, n, BLOCK=256)
torch.cuda.synchronize()
begin = clock()
count = 4000
for i in range(count):
    for d, s in zip(data, streams):
        with torch.cuda.stream(s):
            mix[grid](d, 5, n, BLOCK=256)
            tuned[grid](d, 9, n)
    if i % 50 == 49:
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
took = clock() - begin
report([int(d.long().sum()) for d in data], count, took)
