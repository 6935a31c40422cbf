"""An unmodified PyTorch program: trains ResNet-50 at batch 64 in bf16 on random data for some
seconds and prints the time of a step in ms.

    python3 training_loop.py [SECONDS]
"""

import sys
import time

import torch
import torchvision

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0


def main():
    torch.manual_seed(0)
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    print("training", flush=True)
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        step()
        steps += 1
        if steps % 10 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - begin
    print(f"training: {steps} steps, {elapsed / steps * 1e3:.2f} ms per step", flush=True)


if __name__ == "__main__":
    main()
