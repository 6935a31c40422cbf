"""R3: three ways to keep the gradients of earlier micro-batches safe: their time and their memory.

plain: loss.backward() adds to .grad, nothing is safe.  copy: .grad is copied before each micro-batch.
scratch: torch.autograd.grad, then the result is added.  aside: .grad is put aside and set to None, loss.backward()
fills it, and the gradients put aside are added to.

    scratch_gradients.py [--device cpu]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jobs
import torch
from findings import finding, progress

Step = Callable[[jobs.Job, list[torch.Tensor], list[torch.Tensor]], None]


def gradients_of(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Each parameter has one."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def plain(job: jobs.Job, _parameters: list[torch.Tensor], _spare: list[torch.Tensor]) -> None:
    job.loss().backward()


def copy(job: jobs.Job, parameters: list[torch.Tensor], spare: list[torch.Tensor]) -> None:
    """`spare` keeps the copy from one micro-batch to the next."""
    gradients = gradients_of(parameters)
    if not spare:
        spare.extend(torch.empty_like(gradient) for gradient in gradients)
    torch._foreach_copy_(spare, gradients)
    job.loss().backward()


def scratch(job: jobs.Job, parameters: list[torch.Tensor], _spare: list[torch.Tensor]) -> None:
    new = torch.autograd.grad(job.loss(), parameters)
    torch._foreach_add_(gradients_of(parameters), list(new))


def aside(job: jobs.Job, parameters: list[torch.Tensor], _spare: list[torch.Tensor]) -> None:
    before = gradients_of(parameters)
    for parameter in parameters:
        parameter.grad = None
    job.loss().backward()
    torch._foreach_add_(before, gradients_of(parameters))
    for parameter, gradient in zip(parameters, before):
        parameter.grad = gradient


def measure(job: jobs.Job, step: Step, device: str, rounds: int) -> tuple[float, int]:
    """The median time of a micro-batch in ms, and the peak of allocated bytes (0 on the CPU)."""
    parameters = list(job.model.parameters())
    spare: list[torch.Tensor] = []
    times = []
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for index in range(rounds + 3):
        if device == "cuda":
            torch.cuda.synchronize()
            if index == 3:
                torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        step(job, parameters, spare)
        if device == "cuda":
            torch.cuda.synchronize()
        if index >= 3:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times), torch.cuda.max_memory_allocated() if device == "cuda" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    device = parser.parse_args().device
    torch.manual_seed(0)
    models = jobs.torchvision.models
    name = "swin_b" if device == "cuda" else "resnet18"
    model = getattr(models, name)(num_classes=10)
    job = jobs.image_job(model, device, 16 if device == "cuda" else 2, False)
    gradients_mb = sum(p.numel() * p.element_size() for p in job.model.parameters()) / 1e6
    for turn in range(2):
        for step in (plain, copy, scratch, aside):
            progress(f"gradients: {step.__name__}")
            ms, peak = measure(job, step, device, 15 if device == "cuda" else 3)
            finding("R3", f"{name}, {step.__name__}", turn=turn, ms=ms, peak_mb=peak / 1e6, gradients_mb=gradients_mb)


if __name__ == "__main__":
    main()
