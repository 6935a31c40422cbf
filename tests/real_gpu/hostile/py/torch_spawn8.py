"""Eight spawned processes on one GPU."""

import torch
import torch.multiprocessing as mp
from common import clock, report


def work(rank, results):
    torch.manual_seed(rank)
    a = torch.ones(256, 256, device="cuda") * 0.003
    for i in range(1500):
        a = torch.tanh(a @ a + 0.01)
        if i % 50 == 0:
            a.sum().item()
    results.put((rank, f"{float(a[0, 0]):.3e}"))


if __name__ == "__main__":
    context = mp.get_context("spawn")
    results = context.Queue()
    begin = clock()
    processes = [context.Process(target=work, args=(r, results)) for r in range(8)]
    for p in processes:
        p.start()
    values = sorted(results.get(timeout=100) for _ in processes)
    for p in processes:
        p.join(30)
        assert p.exitcode == 0, p.exitcode
    report(values, 8, clock() - begin)
