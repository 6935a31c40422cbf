"""DataLoader workers (fork) with pinned memory, and tensors on the GPU handed from process to process."""

import torch
import torch.multiprocessing as mp
from common import clock, report


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 3000

    def __getitem__(self, i):
        return torch.full((1024,), float(i % 7))


def produce(queue, go_on):
    for k in range(200):
        queue.put(torch.full((1000,), float(k), device="cuda"))
    go_on.wait()  # the memory lives as long as this process


if __name__ == "__main__":
    begin = clock()
    total = torch.zeros((), device="cuda", dtype=torch.double)
    loader = torch.utils.data.DataLoader(Data(), 50, num_workers=3, pin_memory=True, multiprocessing_context="fork")
    for batch in loader:
        total += batch.cuda(non_blocking=True).sum()
    context = mp.get_context("spawn")
    queue, go_on = context.Queue(8), context.Event()
    process = context.Process(target=produce, args=(queue, go_on))
    process.start()
    for _ in range(200):
        total += queue.get(timeout=60).double().sum()
    value = float(total)
    go_on.set()
    process.join(30)
    took = clock() - begin
    assert process.exitcode == 0, process.exitcode
    report(value, 260, took)
