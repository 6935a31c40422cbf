"""Part D: an unmodified PyTorch training next to a server, with and without expandable segments.

Roomy: the pool holds both. Tight: the training needs more than its share, and sees an ordinary out-of-memory error.

    plain_trainers.py --out DIR --store DIR [--limit-s 120] [--gpu sim]
"""

import argparse
import functools
import json
import os
import re
import sys
import time

from findings import finding, progress, spread
from stage import GIB, ROOT, Place, Stage, parse, told

_POOLS_GIB = {"roomy": 24, "tight": 3}
_WEIGHTS_MB = 256
_TRAIN_S = 5
_GAP_S = 0.25
_ERROR = re.compile(r"^.*(?:OutOfMemoryError|CUDA error|RuntimeError).*$", re.MULTILINE)


def command(place: Place, expandable: bool) -> list:
    words = [os.environ.get("SLUICE_PYTHON", sys.executable), ROOT / "tools/python/examples/train.py"]
    if place.sim:
        words += ["--device", "cpu", "--batch", 2, "--size", 32, "--max-steps", 3]
    else:
        words += ["--batch", 64, "--seconds", _TRAIN_S]
    return ["env", f"PYTORCH_ALLOC_CONF=expandable_segments:{expandable}", *words]


def run(place: Place, expandable: bool, pool: str) -> None:
    recording = {"path": "mobilenet_v2_b1", "weights-mb": 1 if place.sim else _WEIGHTS_MB}
    options = ["-m", "colocate-l1", "--cold-cache-gb", 0, "--infer-model-max-idle-ms", 100]
    options += ["--cuda-memory-pool-gb", _POOLS_GIB[pool]]
    name = f"D-{pool}-{'expandable' if expandable else 'classic'}"
    jobs = {"job": command(place, expandable)}
    latencies, answered, most = [], 0, 0
    with Stage(place, name, dict.fromkeys(("one", "two"), recording), jobs, *options) as stage:
        client = stage.start("job")
        while client.poll() is None and place.left() > 0:
            time.sleep(_GAP_S)
            ms, good = stage.infer(("one", "two")[len(latencies) % 2])
            latencies.append(ms)
            answered += good
            most = max(most, stage.training().get("held_bytes", 0))
        text, lines = stage.log(), stage.trained()
        ended = client.poll()
        training = stage.training()
    results = [json.loads(line) for line in lines if line.startswith("{")]
    error = _ERROR.search(text)
    finding(
        "D",
        f"{pool} pool, expandable segments {expandable}",
        pool_gib=_POOLS_GIB[pool],
        ended=ended,
        ms_per_step=results[-1]["ms_per_step"] if results else None,
        error=error[0].strip()[:200] if error else None,
        held_gib=most / GIB,
        orders=training["orders"],
        requests=len(latencies),
        answered=answered,
        **spread("latency_ms", latencies),
    )


def main() -> None:
    place, _ = parse(argparse.ArgumentParser(description=__doc__))
    tell = functools.partial(finding, "D")
    for pool in _POOLS_GIB:
        for expandable in (True, False):
            what = f"{pool} pool, expandable segments {expandable}"
            if place.left() < 15:
                tell(f"{what} not tried", left_s=place.left())
                continue
            progress(what)
            with told(what, tell):
                run(place, expandable, pool)


if __name__ == "__main__":
    main()
