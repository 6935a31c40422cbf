"""NCCL on all visible GPUs: all-reduces in a loop, and DistributedDataParallel. One process for each GPU."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from common import clock, report


def work(rank, n, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=n)
    x = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    begin = clock()
    count = 600
    for i in range(count):
        dist.all_reduce(x)
        x /= n
        if i % 20 == 19:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    reduced = clock() - begin
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6))).cuda()
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    data = torch.full((64, 512), 0.01, device="cuda")
    begin = clock()
    steps = 300
    for _ in range(steps):
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    value = float(loss)
    took = clock() - begin
    if rank == 0:
        report(
            (float(x[0]), f"{value:.3e}"),
            count + steps,
            reduced + took,
            f"gpus={n} allreduce={count / reduced:.0f}/s ddp={steps / took:.0f}/s",
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    n = torch.cuda.device_count()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (n, port), nprocs=n)
