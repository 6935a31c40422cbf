"""The critical program of `sluice bench pairs`: plain PyTorch, one job per arrival.

Commands: load; calibrate (jobs); run (jobs, seconds, skip_s, period_ms, arrivals, seed, announce_ms);
quit. Run as `python -m sluice_tools.bench.pairs.critical --model resnet50 --device cuda:0`.
"""

import argparse
import sys

import torch
import torchvision  # noqa: F401  importing takes seconds, which may pass while others are measured

from sluice_tools.bench.pairs import jobs, models
from sluice_tools.bench.pairs.protocol import answer, run_program

_WARM_UPS = 10


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=tuple(models.CRITICAL), required=True)
    parser.add_argument("--device", default="cuda:0")
    return parser.parse_args()


@torch.inference_mode()
def _obey(commands, options):
    models.prepare(options.model)
    answer("imported", torch=torch.__version__)
    sluice, work = jobs.Sluice(), None
    while (command := commands.next())["do"] != "quit":
        if command["do"] == "load":
            work = models.CriticalWork(options.model, options.device)
            for _ in range(_WARM_UPS):
                work()
            answer(
                "loaded", gpu=models.name_of(options.device), attached=sluice.attached(), announces=sluice.announces()
            )
        elif command["do"] == "calibrate":
            answer("calibrated", latency_ms=jobs.back_to_back(work, sluice, command["jobs"]))
        elif command["do"] == "run":
            done = jobs.serve(work, sluice, command, lambda: answer("measuring"))
            answer("done", **done)
        else:
            raise ValueError(f"unknown command {command['do']}")


def main() -> int:
    options = _options()
    return run_program(lambda commands: _obey(commands, options))


if __name__ == "__main__":
    sys.exit(main())
