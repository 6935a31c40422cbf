"""An unmodified PyTorch program without any use of Sluice.

Serves ResNet-50 at batch 1 (random weights, seed 0) about every 6 ms for some seconds, first
eagerly, then as one CUDA graph. Prints the latency of a request in ms, and a checksum of the outputs,
which must be the same with and without Sluice.

    python3 inference_loop.py [SECONDS]
"""

import hashlib
import statistics
import sys
import time

import torch
import torchvision

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
PERIOD = 0.006


def serve(name, request):
    for _ in range(20):
        request()
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        request()
        times.append((time.perf_counter() - begin) * 1e3)
        time.sleep(max(0.0, PERIOD - (time.perf_counter() - begin)))
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"{name}: {len(times)} requests, p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms", flush=True)


def main():
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.resnet50().eval().cuda()
    image = torch.randn(1, 3, 224, 224).pin_memory()
    outputs = []

    def eager():
        outputs[:] = [model(image.cuda(non_blocking=True)).cpu()]

    with torch.inference_mode():
        serve("eager", eager)
        checksum = hashlib.sha256(outputs[0].numpy().tobytes()).hexdigest()

        static_image = image.cuda()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(static_image)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_output = model(static_image)

        def replay():
            static_image.copy_(image, non_blocking=True)
            graph.replay()
            torch.cuda.synchronize()

        serve("graph", replay)
        graph_checksum = hashlib.sha256(static_output.cpu().numpy().tobytes()).hexdigest()
    print(f"outputs: eager {checksum[:16]}, graph {graph_checksum[:16]}", flush=True)


if __name__ == "__main__":
    main()
