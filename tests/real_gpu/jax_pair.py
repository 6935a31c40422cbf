"""A critical ResNet-50 server and a best-effort JAX training step, without any use of Sluice.

The critical program runs eager inference at batch 4 with Poisson arrivals, and prints the percentiles of
its request times (arrival to result). The best-effort program runs the gradient of a 24-layer MLP, which
XLA makes one CUDA graph, and prints its steps per second. jax_pair.sh runs both.

    python3 jax_pair.py critical|best-effort READY_FILE SECONDS [--every-ms MS] [--tiny]
"""

import argparse
import os
import random
import time
from pathlib import Path


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["critical", "best-effort"])
    parser.add_argument("ready", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--every-ms", type=float, default=10)
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def serve(args):
    import torch
    import torchvision

    # --tiny: one kernel of a few us, so that a request is as long as its delay.
    model = torch.nn.Identity() if args.tiny else torchvision.models.resnet50().cuda().eval()
    images = torch.randn(4, 3, 224, 224, device="cuda")

    def infer():
        with torch.inference_mode():
            model(images) + 1
        torch.cuda.synchronize()

    for _ in range(50):
        infer()
    args.ready.touch()
    arrivals, times = random.Random(1), []
    end = time.monotonic() + args.seconds
    due = time.monotonic()
    while due < end:
        due += arrivals.expovariate(1000 / args.every_ms)
        time.sleep(max(0.0, due - time.monotonic()))
        infer()
        times.append(1000 * (time.monotonic() - due))
    times.sort()
    p50, p99, most = (times[round(part * (len(times) - 1))] for part in (0.5, 0.99, 1))
    print(f"critical p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {most:.2f} ms, {len(times)} requests")


def train(args):
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    layers, width = 24, 4096
    keys = jax.random.split(jax.random.key(1), layers)
    weights = [(jax.random.normal(key, (width, width)) / width**0.5).astype(jnp.bfloat16) for key in keys]
    inputs = jax.random.normal(jax.random.key(2), (2048, width)).astype(jnp.bfloat16)

    def loss(weights):
        x = inputs
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    gradient = jax.jit(jax.grad(loss))
    for _ in range(20):
        jax.block_until_ready(gradient(weights))
    args.ready.touch()
    steps, begin = 0, time.monotonic()
    while time.monotonic() - begin < args.seconds:
        jax.block_until_ready(gradient(weights))
        steps += 1
    print(f"best effort {steps / (time.monotonic() - begin):.1f} steps/s")


def main():
    args = parse()
    serve(args) if args.role == "critical" else train(args)


if __name__ == "__main__":
    main()
