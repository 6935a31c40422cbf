#!/usr/bin/env python3
"""Trains a torchvision model on synthetic images, which lie on the GPU from the start.

Plain PyTorch. At the end one line of JSON says how many steps were done, and how fast.

  python train.py --model resnet50 --batch 64 --amp bf16 --seconds 30
  python train.py --max-steps 20 --digest
"""

import argparse
import contextlib
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
    parser.add_argument("--batch", type=int, default=64, help="images per step")
    parser.add_argument("--size", type=int, default=224, help="height and width of an image")
    parser.add_argument("--amp", choices=("off", "bf16"), default="off", help="mixed precision")
    parser.add_argument("--seconds", type=float, default=30.0, help="stop after this time")
    parser.add_argument("--max-steps", type=int, metavar="N", help="stop after this many steps")
    parser.add_argument(
        "--warm-up", type=int, default=3, metavar="N", help="steps before the clock starts (they train too)"
    )
    parser.add_argument(
        "--log-every",
        type=int,
        default=10,
        metavar="N",
        help="steps between two readings of the loss, which wait for the GPU",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--channels-last", action="store_true", help="memory format of the images")
    parser.add_argument(
        "--digest", action="store_true", help="deterministic algorithms; report a hash of the final parameters"
    )
    return parser.parse_args()


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def training_step(args):
    """A function that does one step and returns its loss, and the model."""
    torch.manual_seed(0)
    model = torchvision.models.get_model(args.model, weights=None).train().to(args.device)
    images = torch.rand(args.batch, 3, args.size, args.size).to(args.device)
    labels = torch.randint(1000, (args.batch,)).to(args.device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    def precision():
        if args.amp == "off":
            return contextlib.nullcontext()
        return torch.autocast(torch.device(args.device).type, dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with precision():
            loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, model


def train(args, step, stopped):
    """Returns how many steps were done and how long they took on the GPU, in seconds."""
    begin = time.monotonic()
    done = 0
    while not stopped and time.monotonic() - begin < args.seconds:
        if args.max_steps is not None and done >= args.max_steps:
            break
        loss = step()
        done += 1
        if done % args.log_every == 0:
            print(f"step {done}: loss {loss.item():.4f}", file=sys.stderr, flush=True)
    synchronize(args.device)
    return done, time.monotonic() - begin


def parameters_digest(model):
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def main():
    args = arguments()
    if args.digest:
        torch.use_deterministic_algorithms(True)
    stopped = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.append(True))
    step, model = training_step(args)
    for _ in range(args.warm_up):
        step()
    synchronize(args.device)
    print(f"training {args.model} on {args.device}", file=sys.stderr, flush=True)
    steps, seconds = train(args, step, stopped)
    result = {
        "program": "train",
        "model": args.model,
        "batch": args.batch,
        "amp": args.amp,
        "device": args.device,
        "steps": steps,
        "seconds": round(seconds, 3),
        "ms_per_step": round(1000 * seconds / steps, 3) if steps else None,
        "samples_per_second": round(args.batch * steps / seconds, 2),
    }
    if args.digest:
        result["digest"] = parameters_digest(model)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
