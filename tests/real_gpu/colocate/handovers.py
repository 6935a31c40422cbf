"""Parts B and C: what it costs to take memory from a training for a cold model, by the size of the model.

A training that holds nearly the whole pool gets its memory back after each request. B: colocate-l1, training gives
memory and goes on; small models take it from a smaller training. C: task-switch-l3, training is killed.

    handovers.py B|C --out DIR --store DIR [--limit-s 200] [--repeats 20] [--gib 0.5,2] [--gpu sim]
"""

import argparse
import functools
import json
import re
import time
from dataclasses import dataclass

from findings import finding, progress, spread
from stage import GIB, Place, Stage, example_trainer, number, parse, section, told

# By part and batch of the training, whose memory follows from it.
_GIB_REAL = {"B": {64: (0.25, 0.5, 1.0, 2.0), 256: (4.0, 8.0)}, "C": {256: (2.0,)}}
_GIB_SIM = {"B": {16: (1 / 8, 1 / 4)}, "C": {16: (1 / 4,)}}
_BLOCKS = 8
_FULL = 0.95  # of its memory: then the training has all back
_START_S = 60
# Of the pool, beyond what the training takes for whole batches: the broker keeps 64 MiB free when a training grows, and
# grants whole pages of 20 MiB. A training without room runs out of memory, and searches new plans for cuDNN.
_MARGIN_GIB, _MARGIN_SHARE = 96 / 1024, 0.03
_PARTS = ("order", "drop", "drain", "give", "take", "load")
_HANDOVER = re.compile(r"^([\d.]+): ([\d.]+) Mb " + " ".join(rf"{part} ([\d.]+)" for part in _PARTS) + "(.*)$")


@dataclass(frozen=True)
class Handover:
    at_ms: float  # CLOCK_REALTIME
    mib: float
    parts_ms: dict[str, float]
    obeyed: bool


def trainer(place: Place, batch: int) -> list:
    if place.sim:
        words = ("--item-mb", 32, "--item-us", 20, "--num-epoch", 100000)
        return example_trainer(place, "--batch-size", batch, *words)
    words = [place.setting.sluice, "train", "resnet50", "--store", place.setting.store, "--device", "cuda"]
    return [*words, "--batch-size", batch, "--steps-per-epoch", 1, "--num-epoch", 1000000]


def stage_of(place: Place, name: str, mode: str, pool_gib: float | None, sizes: dict[str, float], batch: int) -> Stage:
    models = {
        model: {"path": "mobilenet_v2_b1", "blocks": _BLOCKS, "weights-mb": round(gib * 1024)}
        for model, gib in sizes.items()
    }
    options = ["-m", mode, "--cold-cache-gb", 0, "--infer-model-max-idle-ms", 100]
    options += ["--cuda-memory-pool-gb", f"{pool_gib:.4f}"] if pool_gib else []
    return Stage(place, name, models, {"job": trainer(place, batch)}, *options)


def named(gibs: tuple[float, ...]) -> dict[str, float]:
    """By the name of a model."""
    return {f"m{round(gib * 1024)}": gib for gib in gibs}


def held(stage: Stage) -> int:
    return stage.training().get("held_bytes", 0)


def is_full(stage: Stage, whole: int) -> bool:
    """Whether the training has its memory back, and may use it."""
    training = stage.training()
    return training.get("held_bytes", 0) >= _FULL * whole and training.get("grant_bytes", whole) >= whole


def steady(stage: Stage) -> int:
    """What the training holds once that no longer changes."""
    seen = [0] * 5

    def stays() -> bool:
        seen.append(held(stage))
        time.sleep(0.3)
        return len(stage.trained()) >= 6 and seen[-1] > 0 and len(set(seen[-5:])) == 1

    if not stage.wait_for(stays, _START_S):
        raise RuntimeError(f"training holds {seen[-5:]} bytes, which still changes: {stage.log()[-300:]}")
    return seen[-1]


def needs(place: Place, batch: int) -> tuple[int, int]:
    """Bytes that the training takes if it may, and bytes of the server apart from weights."""
    with stage_of(place, f"needs-{batch}", "colocate-l1", None, {"m": 1 / 64}, batch) as stage:
        stage.start("job")
        wanted = steady(stage)
        stage.wait_for(lambda: not stage.resident(), 5)
    infer_mb = [number(line, r"Infer ([\d.]+) Mb") or 0.0 for line in section(stage.profile, "Memory Info")]
    return wanted, int(min(infer_mb[-20:]) * (1 << 20))


def handovers(stage: Stage) -> list[Handover]:
    (clock,) = section(stage.profile, "Clock Info")
    start_ms = float(clock.split()[1])
    found = []
    for line in section(stage.profile, "Adjust Info"):
        match = _HANDOVER.match(line)
        if match is None:
            raise RuntimeError(f"[Adjust Info] has the line {line}")
        parts = {part: float(match[3 + place]) for place, part in enumerate(_PARTS)}
        found.append(Handover(start_ms + float(match[1]), float(match[2]), parts, "not obeyed" not in match[9]))
    return found


@dataclass
class Sent:
    """Requests without a good answer; those for which the training did not get its memory back in time; and when the
    first turn, which warms up, had ended (CLOCK_REALTIME)."""

    bad: int = 0
    late: int = 0
    warm_ms: float = 0.0


def send(
    place: Place, stage: Stage, models: list[str], whole: int, repeats: int, restart_s: float, until_s: float
) -> Sent:
    """All models in turn, `repeats` times and once to warm up, each when the training has its memory back. until_s: of
    the time that is left, what the next training needs."""
    sent = Sent()
    for turn in range(repeats + 1):
        for model in models:
            if place.left() < until_s:
                progress(f"no time left in turn {turn} of {repeats}")
                return sent
            sent.late += not stage.wait_for(lambda: not stage.resident() and is_full(stage, whole), restart_s)
            sent.bad += not stage.infer(model)[1]
        if turn == 0:
            sent.warm_ms = time.time() * 1e3
    return sent


def tell_of(experiment: str, what: str, rows: list[dict], own: list[Handover]) -> None:
    values = {}
    for part in _PARTS:
        values |= spread(f"{part}_ms", [handover.parts_ms[part] for handover in own])
    training_ms = [sum(handover.parts_ms[part] for part in _PARTS[:4]) for handover in own]
    first_ms = [row["child_model_run_time"][0][0] - row["recv_time"] for row in rows if row["child_model_run_time"]]
    finding(
        experiment,
        what,
        requests=len(rows),
        cold=sum(row["cold_ms"] > 0 for row in rows),
        good=sum(row["result"] == "ok" for row in rows),
        handovers=len(own),
        not_obeyed=sum(not handover.obeyed for handover in own),
        **spread("given_mib", [handover.mib for handover in own]),
        **spread("training_gave_ms", training_ms),
        **values,
        **spread("train_wait_ms", [row["train_wait_ms"] for row in rows]),
        **spread("cold_ms", [row["cold_ms"] for row in rows]),
        **spread("first_block_ms", first_ms),
        **spread("total_ms", [row["total_cost_by_ms"] for row in rows]),
    )


def report(experiment: str, stage: Stage, sizes: dict[str, float], since_ms: float) -> None:
    """By size: the requests since then, and the handovers that began while one of them waited."""
    rows = [row for row in stage.records() if row["recv_time"] >= since_ms]
    found = [handover for handover in handovers(stage) if handover.at_ms >= since_ms]
    matched = 0
    for model, gib in sizes.items():
        own_rows = [row for row in rows if row["model_name"] == model]
        own = [
            handover
            for handover in found
            if any(row["recv_time"] - 1 <= handover.at_ms <= row["finish_time"] for row in own_rows)
        ]
        matched += len(own)
        tell_of(experiment, f"{gib:g} GiB", own_rows, own)
    finding(experiment, "handovers that no request waited for", count=len(found) - matched)


def measure(place: Place, part: str, batch: int, sizes: dict[str, float], repeats: int, until_s: float) -> None:
    """One training, and all sizes next to it."""
    tell = functools.partial(finding, part)
    mode, restart_s = ("colocate-l1", 5.0) if part == "B" else ("task-switch-l3", 30.0)
    known = place.setting.out / f"needs-{batch}.json"  # the same for both parts
    if not known.exists():
        known.write_text(json.dumps(needs(place, batch)))
    whole, other = json.loads(known.read_text())
    pool_gib = (whole * (1 + _MARGIN_SHARE) + other) / GIB + _MARGIN_GIB
    tell(f"batch {batch}", pool_gib=pool_gib, training_gib=whole / GIB, server_gib=other / GIB)
    with stage_of(place, f"{part}-{mode}-{batch}", mode, pool_gib, sizes, batch) as stage:
        stage.start("job")
        if not stage.wait_for(lambda: is_full(stage, whole), _START_S):
            tell(f"batch {batch} did not fill the pool", held_gib=held(stage) / GIB)
        sent = send(place, stage, list(sizes), whole, repeats, restart_s, until_s)
        training = stage.training()
    counts = {name: training[name] for name in ("orders", "kills")}
    tell(f"batch {batch}, all requests", mode=mode, bad=sent.bad, late=sent.late, **counts)
    report(part, stage, sizes, sent.warm_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("B", "C"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--gib", help="only models of these sizes")
    place, arguments = parse(parser)
    groups = (_GIB_SIM if place.sim else _GIB_REAL)[arguments.part]
    if arguments.gib:
        chosen = {float(gib) for gib in arguments.gib.split(",")}
        groups = {batch: wanted for batch, gibs in groups.items() if (wanted := tuple(g for g in gibs if g in chosen))}
    left_s = place.left()
    for index, (batch, gibs) in enumerate(groups.items(), 1):
        progress(f"training with batch {batch}")
        with told(f"batch {batch}", functools.partial(finding, arguments.part)):
            until_s = 10 + left_s * (1 - index / len(groups))
            measure(place, arguments.part, batch, named(gibs), arguments.repeats, until_s)


if __name__ == "__main__":
    main()
