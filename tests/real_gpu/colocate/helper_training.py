"""Trains a model of jobs.py with sluice.train, one item a micro-batch, and prints a hash of its parameters.

helper_training.py JOB [--steps 30] [--device cpu]
"""

import argparse
import hashlib

import jobs
import sluice.train
import torch

MICRO_BATCHES = 2


def step(job: jobs.Job) -> None:
    for micro in sluice.train.micro_batches(MICRO_BATCHES, model=job.model, largest=1):
        with micro:
            loss = job.loss() * micro.weight
            loss.backward()
    with sluice.train.step():
        job.optimizer.step()
        job.optimizer.zero_grad()


def digest(model: torch.nn.Module) -> str:
    """Of parameters and buffers."""
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    job = jobs.make(arguments.job, arguments.device)
    for _ in range(arguments.steps):
        step(job)
    print(sluice.train.epoch_line(arguments.job, 0), flush=True)
    print(f"trained {arguments.job}: parameters {digest(job.model)}", flush=True)


main()
