"""torch.compile: autotuned matrix products and CUDA graph trees, with changing shapes."""

import torch
from common import clock, report

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(4))).cuda()
trees = torch.compile(model, mode="reduce-overhead")
tuned = torch.compile(lambda a, b: torch.relu(a @ b), mode="max-autotune")
x = torch.randn(64, 256, device="cuda")
with torch.no_grad():
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        trees(x)
        tuned(x, model[0][0].weight)
    torch.cuda.synchronize()
    begin = clock()
    total = 0.0
    count = 1500
    for i in range(count):
        torch.compiler.cudagraph_mark_step_begin()
        y = trees(x)
        z = tuned(x, model[0][0].weight)
        if i % 50 == 49:
            total += float(y.sum()) * 1e-3 + float(z.sum()) * 1e-3
took = clock() - begin
report(f"{total:.1f}", count, took)
