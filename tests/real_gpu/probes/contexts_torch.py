"""Changes devices, streams and threads as PyTorch programs do, for libcontext_watch.so."""

import threading

import torch

devices = range(min(torch.cuda.device_count(), 2))


def train(device: int):
    torch.cuda.set_device(device)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(64, 256, device="cuda")).sum().backward()  # in autograd's own thread
        optimizer.step()


def alternate():
    tensors = [torch.randn(256, 256, device=device) for device in devices]
    for step in range(100):
        device = step % len(devices)
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
            tensors[device] = torch.tanh(tensors[device] @ tensors[device])
    for device in devices:  # without a device guard of the program
        tensors[device].add_(1)
        torch.cuda.synchronize(device)


def replay():
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(1024, device="cuda")
    with torch.cuda.graph(graph):
        x += 1
    for _ in range(20):
        graph.replay()


for device in devices:
    train(device)
alternate()
torch.cuda.set_device(0)
replay()
threads = [threading.Thread(target=work) for work in (alternate, lambda: train(0), replay)]
for thread in threads[:2]:
    thread.start()
for thread in threads[:2]:
    thread.join()
threads[2].start()  # a capture, so alone
threads[2].join()
torch.cuda.synchronize()
print(f"P3 torch {torch.__version__}, {len(devices)} devices")
