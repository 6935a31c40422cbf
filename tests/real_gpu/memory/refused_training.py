"""R2: is training the same to the bit if launches are refused at random, and the micro-batch repeated?

Trains a job four times with the same seed: twice undisturbed, once with refused launches, once undisturbed again.
Each refusal begins at a random launch or instant and lasts until the micro-batch is dropped and the cache emptied.

    refused_training.py JOB [--steps 12] [--drops 4] [--gradients aside|copy] [--cold] [--device cpu]
"""

import argparse
import collections
import contextlib
import hashlib
import random
import time
import warnings

import jobs
import torch
from findings import describe, finding, progress, spread
from shim import CpuShim, Shim

MICRO_BATCHES = 2


class Gradients:
    """What makes the gradients of a dropped micro-batch vanish.

    aside: gradients so far are put aside, and those of a whole micro-batch are added to them.
    copy: a copy of the gradients so far takes their place.
    """

    def __init__(self, parameters: list[torch.Tensor], kind: str) -> None:
        self._parameters = parameters
        self._aside = kind == "aside"
        self._before: list[torch.Tensor | None] = []

    def begin(self) -> None:
        if self._aside:
            self._before = [parameter.grad for parameter in self._parameters]
            for parameter in self._parameters:
                parameter.grad = None
        else:
            self._before = [None if p.grad is None else p.grad.clone() for p in self._parameters]

    def drop(self) -> None:
        """Needs no launch, so it works while launches are refused."""
        for parameter, before in zip(self._parameters, self._before):
            parameter.grad = before
        self._before = []

    def keep(self) -> None:
        if not self._aside:
            return
        for parameter, before in zip(self._parameters, self._before):
            if before is not None and parameter.grad is not None:
                before.add_(parameter.grad)
            if before is not None:
                parameter.grad = before
        self._before = []


class State:
    """Buffers (such as those of batch norm) and random number generators before a micro-batch."""

    def __init__(self, model: torch.nn.Module, device: str) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if device == "cuda" else None

    def restore(self) -> None:
        for buffer, before in self._buffers:
            buffer.copy_(before)
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)


class Trainer:
    """Trains one job; what happened to its micro-batches is in the public members."""

    def __init__(self, arguments: argparse.Namespace, shim: Shim | CpuShim) -> None:
        self._arguments = arguments
        self._shim = shim
        self._random = random.Random(1)
        # Of one micro-batch. Small until one was whole, so that the first ones are refused early.
        self.launches = 20
        self.micro_ns = 1_000_000
        self.drops = self.silent = self.ghosts = 0
        self.errors: collections.Counter[str] = collections.Counter()
        self.caught_us: list[float] = []
        self.emptied_ms: list[float] = []
        self.left_mb: list[float] = []

    def train(self, disturbed: bool) -> dict[str, str]:
        """Trains a new job. Returns a digest of each tensor at the end."""
        job = jobs.make(self._arguments.job, self._arguments.device)
        gradients = Gradients(list(job.model.parameters()), self._arguments.gradients)
        for step in range(self._arguments.steps):
            for _ in range(MICRO_BATCHES):
                for turn in range(self._arguments.drops if disturbed else 0):
                    if self._whole(job, gradients, self._draw(turn)):
                        break
                else:
                    while not self._whole(job, gradients, None):
                        if self.ghosts > 100:
                            raise SystemExit(f"the job fails without refusals: {self.errors.most_common(3)}")
            job.optimizer.step()
            job.optimizer.zero_grad(set_to_none=True)
            if disturbed and step % 4 == 3:
                progress(f"{self._arguments.job}: step {step + 1}, {self.drops} drops")
        return digests(job)

    def _draw(self, turn: int) -> dict[str, int]:
        if turn % 2:
            return {"delay_ns": self._random.randrange(self.micro_ns)}
        return {"launches": self._random.randrange(self.launches)}

    def _whole(self, job: jobs.Job, gradients: Gradients, refuse: dict[str, int] | None) -> bool:
        """Runs one micro-batch. Returns False if it was dropped."""
        cuda = self._arguments.device == "cuda"
        state = State(job.model, self._arguments.device)
        before = torch.cuda.memory_allocated() if cuda else 0
        gradients.begin()
        launches, begin = self._shim.launches(), time.monotonic_ns()
        if refuse is not None:
            self._shim.arm(**refuse)
        error = attempt(job)
        caught = time.monotonic_ns()
        refused = refuse is not None and self._shim.first_refusal() > 0
        if error is None and not refused:
            self._shim.disarm()
            self.launches = max(1, self._shim.launches() - launches)
            self.micro_ns = caught - begin
            gradients.keep()
            return True
        self._note(error, refused, caught)
        gradients.drop()
        if cuda:
            # Launches are still refused: neither call may need one.
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self.left_mb.append((torch.cuda.memory_allocated() - before) / 1e6)
        if refused:
            self.emptied_ms.append((time.monotonic_ns() - self._shim.refused_at()) / 1e6)
        self._shim.disarm()
        state.restore()
        return False

    def _note(self, error: str | None, refused: bool, caught: int) -> None:
        self.drops += 1
        if error is None:
            self.silent += 1
        elif not refused:
            self.ghosts += 1
            self.errors[f"without a refusal: {error}"] += 1
        else:
            self.errors[error] += 1
            self.caught_us.append((caught - self._shim.refused_at()) / 1e3)


def attempt(job: jobs.Job) -> str | None:
    """One forward and backward pass. Returns the type and first line of the exception."""
    try:
        job.loss().backward()
    except Exception as error:
        # The exception must not leave this function: its traceback holds the activations.
        return describe(error)
    return None


def digests(job: jobs.Job) -> dict[str, str]:
    tensors = dict(job.model.state_dict())
    for index, state in job.optimizer.state_dict()["state"].items():
        tensors |= {f"{index}.{name}": value for name, value in state.items() if isinstance(value, torch.Tensor)}
    return {
        name: hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        for name, value in tensors.items()
    }


def different(one: dict[str, str], other: dict[str, str]) -> int:
    return sum(one[name] != other[name] for name in one)


def run(arguments: argparse.Namespace, shim: Shim | CpuShim) -> None:
    trainer = Trainer(arguments, shim)
    runs = {}
    order = ["disturbed", "first", "second"] if arguments.cold else ["first", "second", "disturbed", "after"]
    name = arguments.job + (", refused from its first launch" if arguments.cold else "")
    for one in order:
        progress(f"{name}: {one} run")
        runs[one] = trainer.train(disturbed=one == "disturbed")
    finding(
        "R2",
        name,
        gradients=arguments.gradients,
        tensors=len(runs["first"]),
        undisturbed_differ=different(runs["first"], runs["second"]),
        disturbed_differ=different(runs["first"], runs["disturbed"]),
        after_differ=different(runs["first"], runs.get("after", runs["second"])),
        drops=trainer.drops,
        silent=trainer.silent,
        ghosts=trainer.ghosts,
        launches=trainer.launches,
        micro_ms=trainer.micro_ns / 1e6,
        left_mb=max(trainer.left_mb, default=0.0),
        **spread("caught_us", trainer.caught_us),
        **spread("emptied_ms", trainer.emptied_ms),
    )
    for error, count in trainer.errors.most_common():
        finding("R2", f"{arguments.job} error", count=count, error=error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--drops", type=int, default=4, help="refused attempts of each micro-batch, at most")
    parser.add_argument("--gradients", choices=["aside", "copy"], default="aside")
    parser.add_argument("--cold", action="store_true", help="refuse from the first launch of the process")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    shim = Shim() if arguments.device == "cuda" else CpuShim()
    with shim if isinstance(shim, CpuShim) else contextlib.nullcontext():
        run(arguments, shim)


if __name__ == "__main__":
    main()
