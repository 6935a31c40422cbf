#!/usr/bin/env python3
"""Serves a torchvision model: one request per period, as an inference server would see them.

Plain PyTorch, with random weights and a fixed input. At the end one line of JSON says how long the
requests took, from the copy of the input to the GPU until the output is back on the host.

  python serve.py --model resnet50 --batch 1 --period-ms 6 --seconds 10
  python serve.py --cuda-graph --csv latencies.csv
"""

import argparse
import csv
import hashlib
import json
import os
import signal
import sys
import time

# Only read when CUDA starts; without it cuBLAS is not deterministic.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torchvision


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a torchvision classification model")
    parser.add_argument("--batch", type=int, default=1, help="images per request")
    parser.add_argument("--size", type=int, default=224, help="height and width of an image")
    parser.add_argument("--period-ms", type=float, default=6.0, help="time from request to request; 0: back to back")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to serve")
    parser.add_argument("--warm-up", type=int, default=20, metavar="N", help="requests before the clock starts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--channels-last", action="store_true", help="memory format of the images")
    parser.add_argument("--cuda-graph", action="store_true", help="capture the model and replay it")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--csv", metavar="FILE", help="write start, end and latency of each request")
    parser.add_argument("--digest", action="store_true", help="deterministic algorithms; report a hash of the output")
    args = parser.parse_args()
    if args.cuda_graph and not args.device.startswith("cuda"):
        parser.error("--cuda-graph needs --device cuda")
    return args


def build(args):
    torch.manual_seed(0)
    model = torchvision.models.get_model(args.model, weights=None).eval().to(args.device)
    images = torch.rand(args.batch, 3, args.size, args.size)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    if args.device.startswith("cuda"):
        images = images.pin_memory()
    return torch.compile(model) if args.compile else model, images


def captured(model, on_device):
    """A function that replays the model's work on `on_device` as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # what libraries set up at first use cannot be captured
            model(on_device)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(on_device)

    def replay(_):
        graph.replay()
        return output

    return replay


def wait_until(due_ns):
    left = due_ns - time.monotonic_ns()
    if left > 0:
        time.sleep(left / 1e9)


def serve(args, handle, stopped):
    """Calls `handle` once per period; a late request starts at once. Returns (due, start, end)."""
    period = int(args.period_ms * 1e6)
    begin = due = time.monotonic_ns()
    requests = []
    while due - begin < args.seconds * 1e9 and not stopped:
        wait_until(due)
        start = time.monotonic_ns()
        handle()
        end = time.monotonic_ns()
        requests.append((due, start, end))
        due = max(due + period, end - period) if period else end
    return requests


def quantile(ordered, share):
    """Interpolates between the two nearest ranks, as numpy does."""
    if not ordered:
        return None
    below, part = divmod(share * (len(ordered) - 1), 1)
    low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return low + (high - low) * part


def summary(args, requests, digests):
    latencies = sorted((end - start) / 1e6 for _, start, end in requests)
    delays = sorted((start - due) / 1e6 for due, start, _ in requests)
    wall = (requests[-1][2] - requests[0][1]) / 1e9 if requests else 0.0
    result = {
        "program": "serve",
        "model": args.model,
        "batch": args.batch,
        "device": args.device,
        "requests": len(requests),
        "seconds": round(wall, 3),
        "requests_per_second": round(len(requests) / wall, 2) if wall else None,
        "latency_ms": {
            "mean": round(sum(latencies) / len(latencies), 4) if latencies else None,
            "p50": quantile(latencies, 0.50),
            "p99": quantile(latencies, 0.99),
            "max": quantile(latencies, 1.0),
        },
        "start_delay_ms": {"p50": quantile(delays, 0.50), "p99": quantile(delays, 0.99)},
    }
    if args.digest:
        result |= {"digest": digests[0] if digests else None, "distinct_outputs": len(set(digests))}
    return result


def write_csv(path, requests):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["due_ns", "start_ns", "end_ns", "latency_ms"])
        for due, start, end in requests:
            writer.writerow([due, start, end, (end - start) / 1e6])


@torch.inference_mode()
def main():
    args = arguments()
    if args.digest:
        torch.use_deterministic_algorithms(True)
    stopped = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    model, images = build(args)
    on_device = images.to(args.device)
    infer = captured(model, on_device) if args.cuda_graph else model
    digests = []

    def handle():
        on_device.copy_(images, non_blocking=True)
        output = infer(on_device).cpu()
        if args.digest:
            digests.append(hashlib.sha256(output.numpy().tobytes()).hexdigest())

    for _ in range(args.warm_up):
        handle()
    digests.clear()
    print(f"serving {args.model} on {args.device}", file=sys.stderr, flush=True)
    requests = serve(args, handle, stopped)
    if args.csv:
        write_csv(args.csv, requests)
    print(json.dumps(summary(args, requests, digests)), flush=True)


if __name__ == "__main__":
    main()
