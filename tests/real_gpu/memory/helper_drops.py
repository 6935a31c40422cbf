"""Does sluice.train take refused micro-batches back to the bit, and what does it cost?

Trains a job with the helper twice undisturbed and once with refused launches, and once more without the helper.
The shim refuses, so no server and no interposer is needed.

    helper_drops.py JOB [--steps 12] [--device cpu]
"""

import argparse
import random
import time

import jobs
import sluice.train
import torch
from findings import finding, progress, spread
from refused_training import different, digests
from shim import CpuShim, Shim
from sluice._orders import NO_LIMIT, Kind, Orders

MICRO_BATCHES = 2


class ShimOrders(Orders):
    """Orders to drop, at random launches and instants of micro-batches, for sluice.train."""

    def __init__(self, shim: Shim | CpuShim) -> None:
        self.preloaded = True
        self.chance = 0.0
        self.obeyed_ms: list[float] = []  # from the order until the memory was free
        self._shim = shim
        self._random = random.Random(1)
        self._begun = self._begun_ns = 0  # launches and time at the begin of the micro-batch
        self._launches, self._micro_ns = 20, 1_000_000  # of a whole micro-batch
        self._inside = False

    def critical(self, on: bool) -> None:
        now = time.monotonic_ns()
        if self._inside and on and not self._shim.first_refusal():
            self._launches = max(1, self._shim.launches() - self._begun)
            self._micro_ns = now - self._begun_ns
            self._shim.disarm()  # too late: nothing was refused
        if not on:
            self._begun, self._begun_ns = self._shim.launches(), now
            if self._random.random() < self.chance:
                self._arm()
        self._inside = not on

    def _arm(self) -> None:
        if self._random.random() < 0.5:
            self._shim.arm(launches=self._random.randrange(self._launches))
        else:
            self._shim.arm(delay_ns=self._random.randrange(self._micro_ns))

    def pending(self) -> int:
        return 1 << 8 | Kind.DROP if self._shim.first_refusal() else 0

    def done(self, order: int) -> None:
        self.obeyed_ms.append((time.monotonic_ns() - self._shim.refused_at()) / 1e6)
        self._shim.disarm()
        self._shim.arm()  # forgets the refusal

    def grant(self) -> int:
        return NO_LIMIT

    def held(self) -> int:
        return 0

    def fit(self, base: int, slope: int) -> None:
        pass

    def wait(self, timeout_ms: int) -> bool:
        return True


class Run:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.job = jobs.make(arguments.job, arguments.device)
        self.left_mb: list[float] = []
        self._cuda = arguments.device == "cuda"

    def helped(self) -> None:
        before = torch.cuda.memory_allocated() if self._cuda else 0
        for micro in sluice.train.micro_batches(MICRO_BATCHES, model=self.job.model, largest=1):
            with micro:
                loss = self.job.loss() * micro.weight
                loss.backward()
            if not micro.kept and self._cuda:
                self.left_mb.append((torch.cuda.memory_allocated() - before) / 1e6)
        with sluice.train.step():
            self.job.optimizer.step()
            self.job.optimizer.zero_grad()

    def plain(self) -> None:
        for _ in range(MICRO_BATCHES):
            loss = self.job.loss() / MICRO_BATCHES
            loss.backward()
        self.job.optimizer.step()
        self.job.optimizer.zero_grad()

    def ms_per_step(self, step, steps: int) -> float:
        """Mean, without the first three steps."""
        begin = 0
        for index in range(steps + 3):
            if index == 3:
                self._wait()
                begin = time.monotonic_ns()
            step()
        self._wait()
        return (time.monotonic_ns() - begin) / 1e6 / steps

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


def run(arguments: argparse.Namespace, shim: Shim | CpuShim) -> None:
    training = sluice.train._training
    orders = training.orders = ShimOrders(shim)
    times, results, left_mb = {}, {}, []
    for name, chance in (("first", 0.0), ("second", 0.0), ("disturbed", 0.6)):
        progress(f"{arguments.job}: {name} run")
        orders.chance = chance
        one = Run(arguments)
        times[name] = one.ms_per_step(one.helped, arguments.steps)
        results[name] = digests(one.job)
        left_mb += one.left_mb
    plain = Run(arguments)
    times["plain"] = plain.ms_per_step(plain.plain, arguments.steps)
    finding(
        "T",
        arguments.job,
        tensors=len(results["first"]),
        undisturbed_differ=different(results["first"], results["second"]),
        disturbed_differ=different(results["first"], results["disturbed"]),
        drops=training.counts.killed,
        left_mb=max(left_mb, default=0.0),
        step_ms=times["second"],
        step_ms_without_helper=times["plain"],
        **spread("obeyed_ms", orders.obeyed_ms),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    if arguments.device == "cpu":
        with CpuShim() as shim:
            run(arguments, shim)
    else:
        run(arguments, Shim())


if __name__ == "__main__":
    main()
