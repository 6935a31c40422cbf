"""The best-effort program of `sluice bench pairs`: plain PyTorch, jobs back to back.

Commands: load; capture (again, for programs that replay a graph); run; idle (tells when each job
since `run` ended on the GPU); quit. Run as
`python -m sluice_tools.bench.pairs.best_effort --model resnet152 --device cuda:0`.
"""

import argparse
import sys
import time
from collections import deque

import torch
import torchvision  # noqa: F401  importing takes seconds, which may pass while others are measured

from sluice_tools.bench.pairs import models
from sluice_tools.bench.pairs.protocol import answer, run_program


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=tuple(models.BEST_EFFORT), required=True)
    parser.add_argument("--device", default="cuda:0")
    return parser.parse_args()


class HostEnds:
    """When jobs end that are done when their call returns."""

    def __init__(self, work):
        self._work = work

    def begin(self):
        self._ends = [time.monotonic_ns()]

    def one(self):
        self._work()
        self._ends.append(time.monotonic_ns())

    def finish(self) -> list:
        return self._ends


class GpuEnds:
    """The same by the GPU's clock: what the host has launched ahead says nothing about the speed."""

    def __init__(self, work):
        self._work = work

    def begin(self):
        torch.cuda.synchronize()
        self._base = torch.cuda.Event(enable_timing=True)
        self._base.record()
        self._base.synchronize()
        self._ends = [time.monotonic_ns()]
        self._pending = deque()

    def one(self):
        self._work()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._pending.append(event)
        self._take(self._work.ahead)

    def _take(self, ahead: int):
        """Ends of jobs that are done; waits until no more than `ahead` are not."""
        while self._pending and (len(self._pending) > ahead or self._pending[0].query()):
            event = self._pending.popleft()
            event.synchronize()
            self._ends.append(self._ends[0] + round(self._base.elapsed_time(event) * 1e6))

    def finish(self) -> list:
        self._take(0)
        return self._ends


def _load(options):
    work = models.best_effort_work(options.model, options.device)
    answer("loaded", gpu=models.name_of(options.device))
    return work, (GpuEnds if options.device.startswith("cuda") else HostEnds)(work)


def _obey(commands, options):
    answer("imported", torch=torch.__version__)
    running, work, ends = False, None, None
    while True:
        command = commands.next(wait=not running)
        do = command and command["do"]
        if do == "quit":
            if running and ends:
                ends.finish()
            return
        if do == "load":
            work, ends = _load(options)
            continue
        if not (work and ends):
            raise ValueError(f"{do} before load")
        if do == "capture":
            work.capture()
            answer("captured")
        elif do == "run":
            ends.begin()
            running = True
            answer("running")
        elif do == "idle":
            running = False
            answer("idle", ends_ns=ends.finish())
        elif do:
            raise ValueError(f"unknown command {do}")
        if running:
            ends.one()


def main() -> int:
    options = _options()
    return run_program(lambda commands: _obey(commands, options))


if __name__ == "__main__":
    sys.exit(main())
