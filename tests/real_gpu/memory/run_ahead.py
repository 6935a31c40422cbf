"""R5: what a bound on how far the host runs ahead costs an eager trainer, and how long the GPU then drains.

Trains ResNet-50 at batch 64 without and with autocast. The shim records an event every few launches and the host
waits for an earlier one, so that about the bound's GPU time is queued. A drain is what cuCtxSynchronize takes in the
launching thread at a random place of a step.

    run_ahead.py [--seconds 0.5]
"""

import argparse
import os
import random
import statistics
import subprocess
import time

import jobs
import torch
from findings import finding, progress, spread
from shim import Shim

BATCH = 64
BOUNDS_MS = (None, 8, 4, 2, 1)
DEPTH = 4  # Groups of launches that may be queued behind the one that the GPU runs.


def one_step(job: jobs.Job) -> None:
    job.optimizer.zero_grad(set_to_none=True)
    job.loss().backward()
    job.optimizer.step()


def timed(job: jobs.Job, seconds: float) -> tuple[int, float]:
    """Trains for this time. Returns the steps and what they took, in seconds."""
    torch.cuda.synchronize()
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        one_step(job)
        steps += 1
    torch.cuda.synchronize()
    return steps, time.perf_counter() - begin


def drains_ms(job: jobs.Job, shim: Shim, count: int) -> list[float]:
    """Drains at random places of a step, forward or backward, with undisturbed steps in between."""
    result = []
    leaves = [module for module in job.model.modules() if not list(module.children())]
    parameters = list(job.model.parameters())
    for _ in range(count):
        for _ in range(random.randint(1, 2)):
            one_step(job)
        if random.random() < 0.4:
            handle = random.choice(leaves).register_forward_pre_hook(lambda *_: shim.ask_drain())
        else:
            handle = random.choice(parameters).register_hook(lambda *_: shim.ask_drain())
        one_step(job)
        handle.remove()
        if shim.drain_ns() >= 0:
            result.append(shim.drain_ns() / 1e6)
    return result


def launches_of_step(job: jobs.Job, shim: Shim) -> int:
    before = shim.launches()
    one_step(job)
    return shim.launches() - before


def measure(job: jobs.Job, shim: Shim, name: str, busy: bool, seconds: float) -> None:
    shim.bound(0, 0)
    for _ in range(3):
        one_step(job)
    launches = launches_of_step(job, shim)
    steps, took = timed(job, 0.4)
    launch_ms = took / steps * 1e3 / launches
    for bound in BOUNDS_MS:
        group = 0 if bound is None else max(1, round(bound / (DEPTH + 1) / launch_ms))
        shim.bound(group, DEPTH)
        timed(job, 0.1)
        rounds = [timed(job, seconds / 2) for _ in range(2)]
        rates = [BATCH * steps / took for steps, took in rounds]
        drains = drains_ms(job, shim, 6)
        finding(
            "R5",
            f"{name}, {'every CPU busy' if busy else 'CPUs idle'}",
            bound_ms="none" if bound is None else bound,
            launches_per_event=group,
            images_s=statistics.mean(rates),
            images_s_worst=min(rates),
            launches_per_step=launches,
            launch_us=launch_ms * 1e3,
            **spread("drain_ms", drains),
        )
    shim.bound(0, 0)


def start_busy() -> list[subprocess.Popen]:
    """One busy process for each CPU; they end by themselves after a minute."""
    return [subprocess.Popen(["timeout", "60", "sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() or 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of training for each combination")
    arguments = parser.parse_args()
    shim = Shim()
    random.seed(1)
    torch.backends.cudnn.benchmark = False
    for amp in (False, True):
        torch.manual_seed(0)
        job = jobs.image_job(jobs.torchvision.models.resnet50(), "cuda", BATCH, amp)
        for busy in (False, True):
            progress(f"run-ahead: amp {amp}, busy {busy}")
            others = start_busy() if busy else []
            try:
                measure(job, shim, "ResNet-50 b64 " + ("bf16" if amp else "fp32"), busy, arguments.seconds)
            finally:
                for other in others:
                    other.terminate()
                for other in others:
                    other.wait()


if __name__ == "__main__":
    main()
