"""Every launch waits for the GPU (CUDA_LAUNCH_BLOCKING), and all streams share one connection."""

import os

os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
import torch
from common import clock, report

w = torch.ones(256, 256, device="cuda") / 300
x = torch.ones(64, 256, device="cuda")
streams = [torch.cuda.Stream() for _ in range(4)]
torch.cuda.synchronize()
begin = clock()
count = 1500
xs = [x.clone() for _ in streams]
torch.cuda.synchronize()
for _i in range(count):
    for k, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            xs[k] = torch.tanh(xs[k] @ w) + 0.1 * k
torch.cuda.synchronize()
took = clock() - begin
report([f"{float(v.mean()):.4f}" for v in xs], count, took)
