"""torch.profiler (CUPTI) in the process, around eager work and graphs; it starts and stops several times."""

import torch
from common import clock, report
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)
w = torch.randn(256, 256, device="cuda") / 16
x = torch.ones(64, 256, device="cuda") * 0.1
torch.tanh(x @ w)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = torch.tanh(x @ w)
begin = clock()
kernels = []
for _ in range(4):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for i in range(400):
            y2 = torch.tanh(x @ w)
            if i % 4 == 0:
                graph.replay()
            if i % 40 == 39:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
    names = [e for e in recorded.events() if e.device_type == torch.autograd.DeviceType.CUDA and "Mem" not in e.name]
    kernels.append(
        len([e for e in names if "tanh" in e.name.lower() or "gemm" in e.name.lower() or "cutlass" in e.name.lower()])
        > 0
    )
took = clock() - begin
report((kernels, f"{float(y.sum() + y2.sum()):.2f}"), 1600, took)
