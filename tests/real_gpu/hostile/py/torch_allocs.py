"""PyTorch with segments that grow (cuMemMap), threads with streams of their own, empty_cache, blocking launches."""

import os
import threading

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
import torch
from common import clock, report

w = torch.ones(512, 512, device="cuda") / 600
sums = {}


def work(k):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.full((256, 512), 0.1 + k, device="cuda")
        for i in range(600):
            y = torch.cat([x, x * (i % 5)]) @ w
            x = torch.tanh(y[:256]) + 0.1
            if i % 150 == 149:
                stream.synchronize()
                torch.cuda.empty_cache()
        sums[k] = f"{float(x.double().mean()):.4f}"


begin = clock()
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
torch.cuda.synchronize()
took = clock() - begin
report(sorted(sums.items()), 2400, took)
