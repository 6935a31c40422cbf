"""Part A: does training next to a server end with the bits that it has alone?

Each training runs twice alone, and once next to a server in each mode while requests come at random instants. All
micro-batches have one item, so that a smaller grant changes no sum.

    bits.py --out DIR --store DIR [--limit-s 120] [--gpu sim]
"""

import argparse
import functools
import os
import random
import re
import subprocess
import sys
import time

from findings import finding, progress, spread
from stage import GIB, ROOT, Place, Stage, number, parse, told

EXPERIMENT = "A"
_MODES = ("task-switch-l1", "colocate-l1")
_GAP_S = 0.3  # between two requests, on average
_WEIGHTS_MB = 256  # of each of two models
_MARGIN_GIB = 0.2  # of the pool, beyond what the training held without a limit: less than a model
_ALONE_S = 90
_FULL = 0.95  # of the memory of the training
_KILLS = re.compile(r"\| try (\d+) kill (\d+) finish")


def commands(place: Place) -> dict[str, list]:
    """By name; the first ones matter most."""
    train = [place.setting.sluice, "train", "resnet50", "--store", place.setting.store, "--deterministic"]
    train += ["--micro-batch-size", 1, "--device", "cpu" if place.sim else "cuda"]
    train += ["--batch-size", 2, "--steps-per-epoch", 2] if place.sim else ["--batch-size", 4, "--steps-per-epoch", 80]
    helper = [os.environ.get("SLUICE_PYTHON", sys.executable), ROOT / "tests/real_gpu/colocate/helper_training.py"]
    size = ["--steps", 2, "--device", "cpu"] if place.sim else []
    jobs = ("encoder-bf16",) if place.sim else ("resnet50", "encoder-bf16", "swin_t")
    found = {"sluice train resnet50": train}
    return found | {f"helper {job}": [*helper, job, *size] for job in jobs}


def digest(lines: list[str]) -> str | None:
    ends = [line for line in lines if line.startswith("trained ")]
    return ends[-1].rsplit("parameters ", 1)[1] if ends else None


def alone(place: Place, command: list) -> list[str]:
    """What two runs at the same time print."""
    environment = os.environ | {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    pipe = subprocess.PIPE
    words = [str(word) for word in command]
    runs = [subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment) for _ in range(2)]
    try:
        said = [run.communicate(timeout=max(1.0, min(_ALONE_S, place.left()))) for run in runs]
    finally:
        for run in runs:
            run.kill()
    for run, (_, err) in zip(runs, said):
        if run.returncode != 0:
            raise RuntimeError(f"alone: exit code {run.returncode}: {err.strip()[-300:]}")
    return [out for out, _ in said]


def has_chosen(stage: Stage, gib: float) -> bool:
    """Whether the training has run once with all the memory that it takes if it may. cuDNN chooses other algorithms,
    with other sums, if the first micro-batch finds less."""
    training = stage.training()
    return training["attached"] and training.get("held_bytes", 0) >= _FULL * gib * GIB


def disturbed(place: Place, case: str, command: list, mode: str, gib: float, wanted: str | None) -> float:
    """Of a training that holds `gib` if it may. Returns the most GiB that it held."""
    names = ("one", "two")
    recording = {"path": "mobilenet_v2_b1", "weights-mb": 1 if place.sim else _WEIGHTS_MB}
    options = ["-m", mode, "--cold-cache-gb", 0, "--infer-model-max-idle-ms", 100]
    if mode == "colocate-l1":
        options += ["--cuda-memory-pool-gb", f"{gib + _MARGIN_GIB:.3f}"]
    draw = random.Random(1)
    latencies, answered, most = [], 0, 0
    name = re.sub(r"\W+", "-", f"A {case} {mode}")
    with Stage(place, name, dict.fromkeys(names, recording), {"job": command}, *options) as stage:
        client = stage.start("job")
        stage.wait_for(lambda: has_chosen(stage, gib) or client.poll() is not None, 60)
        while client.poll() is None and place.left() > 0:
            time.sleep(draw.expovariate(1 / _GAP_S))
            most = max(most, stage.training().get("held_bytes", 0))
            ms, good = stage.infer(draw.choice(names))
            latencies.append(ms)
            answered += good
        training, lines = stage.training(), stage.trained()
        if ended := client.poll():
            print(f"{case}, {mode}: exit code {ended}\n{stage.log()[-2000:]}", file=sys.stderr)
    counts = [_KILLS.search(line) for line in lines]
    found = digest(lines)
    finding(
        EXPERIMENT,
        f"{case}, {mode}",
        same_bits=found is not None and found == wanted,
        ended=ended,
        tried=sum(int(count[1]) for count in counts if count),
        dropped=sum(int(count[2]) for count in counts if count),
        orders=training["orders"],
        requests=len(latencies),
        answered=answered,
        held_gib=most / GIB,
        **spread("latency_ms", latencies),
    )
    return most / GIB


def main() -> None:
    place, _ = parse(argparse.ArgumentParser(description=__doc__))
    tell = functools.partial(finding, EXPERIMENT)
    for case, command in commands(place).items():
        if place.left() < 30:
            tell(f"{case} not tried", left_s=place.left())
            continue
        with told(case, tell):
            progress(f"{case}: alone")
            said = alone(place, command)
            bits = [digest(text.splitlines()) for text in said]
            gib = number(said[0], r"memory ([\d.]+)Gb") or 0.0
            tell(f"{case}, alone", same_bits=None not in bits and bits[0] == bits[1], memory_gib=gib)
            for mode in _MODES:
                progress(f"{case}: {mode}")
                with told(f"{case}, {mode}", tell):
                    gib = max(gib, disturbed(place, case, command, mode, gib, bits[0]))


if __name__ == "__main__":
    main()
