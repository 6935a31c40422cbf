"""Which models, loads and systems `sluice bench serve --part colocate` compares, and when requests arrive."""

import random
from dataclasses import dataclass

from sluice_tools.bench.serve.setting import Setting

INFER_ONLY, TRAIN_ONLY = "infer only", "training alone"
OURS = "colocate-l1"
SLO = 2.0  # of a model, in multiples of its p99 under infer only with the same load


@dataclass(frozen=True)
class System:
    """mode: of `sluice serve`. fixed: nothing hands memory over, so training gets a part of the pool for good. share:
    percent of the memory and of the multiprocessors (by MPS) that inference has then. idle_ms: without a request for
    this time, a model beyond the cold cache leaves its memory to training; None: the server's default."""

    name: str
    mode: str
    trains: bool = True
    infers: bool = True
    fixed: bool = False
    mps: bool = False
    share: int | None = None
    idle_ms: int | None = None


# Those of one server follow one another; servers() joins them.
SYSTEMS = (
    System(INFER_ONLY, "colocate-l1", trains=False),
    System("colocate-l1", "colocate-l1"),
    System(TRAIN_ONLY, "normal", infers=False),
    System("normal", "normal", fixed=True),
    System("task-switch-l1", "task-switch-l1"),
    System("park", "park", fixed=True),
    System("colocate-l2", "colocate-l2"),
    System("MPS", "normal", fixed=True, mps=True),
    System("static 50 %", "normal", fixed=True, mps=True, share=50),
    System("static 75 %", "normal", fixed=True, mps=True, share=75),
    System("task-switch-l2", "task-switch-l2"),
    System("task-switch-l3", "task-switch-l3"),
    System("colocate-l1 idle 300 ms", "colocate-l1", idle_ms=300),
)
# What the published figures compare with: contention, fixed shares, and switching between the two tasks.
BASELINES = ("normal", "MPS", "static 50 %", "static 75 %", "task-switch-l1", "task-switch-l2", "task-switch-l3")
LOADS = ("light", "heavy", "burst", "skew", "azure")
_KINDS = ("densenet161", "efficientnet_v2_s", "mobilenet_v3_large", "resnet50", "resnet152", "bert_base")
_TINY_KINDS = ("mobilenet_v2_b1", "resnet50_b1")  # recordings

# Share of the device's time that the requests need.
_BUSY = {"light": 0.1, "heavy": 0.4, "burst": 0.2, "skew": 0.25, "azure": 0.25}
_BURST_PERIOD_S, _BURST_SHARE, _BURST_TIMES = 10.0, 0.2, 4.0
_ZIPF = 1.1
_AZURE_ON = 0.3  # share of the time in which a function is called at all
_AZURE_SPREAD = 1.2  # sigma of the lognormal rates of the functions


@dataclass(frozen=True)
class Training:
    """The job next to inference."""

    model: str
    batch: int


def training_of(setting: Setting) -> Training:
    return Training("example", 8) if setting.tiny else Training("resnet152", 72)


def steps_of(system: System) -> int:
    """Of an epoch. Each epoch is a line of the log, so short ones show short progress; but a mode that drops epochs
    must lose something."""
    return 4 if system.mode == "task-switch-l2" else 1


def kinds_of(setting: Setting) -> tuple[str, ...]:
    return _TINY_KINDS if setting.tiny else _KINDS


@dataclass(frozen=True)
class Needs:
    """Bytes: of inference with all models; of training, without and for an item of its micro-batch."""

    inference: float
    base: float
    item: float


def micro_batch(system: System, pool_gb: float | None, needs: Needs, batch: int) -> int:
    """Items of a micro-batch of training, so that it keeps to its part of the pool. Without a share, the part is what
    inference leaves, but at least a half. A batch is the same work in all systems."""
    if not system.fixed or pool_gb is None:
        return batch
    pool = pool_gb * (1 << 30)
    part = pool * (1 - system.share / 100) if system.share else max(pool / 2, pool - needs.inference)
    return min(batch, max(1, int((part - needs.base) / needs.item)))


def models_of(setting: Setting, count: int) -> dict[str, str]:
    """The kind of each of `count` models, by name."""
    kinds = kinds_of(setting)
    return {f"{kinds[i % len(kinds)]}-{i // len(kinds)}": kinds[i % len(kinds)] for i in range(count)}


def kind_of(model: str) -> str:
    """From its name in models_of()."""
    return model.rsplit("-", 1)[0]


def servers() -> list[list[System]]:
    """The systems that one server can be, one after another: without training first."""
    found: dict[tuple, list[System]] = {}
    for system in SYSTEMS:
        found.setdefault((system.mode, system.mps, system.share, system.idle_ms), []).append(system)
    return list(found.values())


def arrivals(load: str, limits_ms: dict[str, float], seconds: float, seed: int) -> list[tuple[float, str]]:
    """Due times in ms and models, sorted. limits_ms: the device time of a request, by model."""
    draw = random.Random(f"{load} {seed}")
    shares = _shares(load, list(limits_ms), draw)
    mean_ms = sum(share * limits_ms[model] for model, share in shares.items())
    per_ms = _BUSY[load] / mean_ms
    found: list[tuple[float, str]] = []
    for model, share in shares.items():
        found += ((at, model) for at in _times(load, per_ms * share, seconds * 1e3, draw))
    return sorted(found)


def _shares(load: str, models: list[str], draw: random.Random) -> dict[str, float]:
    """Of the requests, by model."""
    if load == "skew":
        weights = [1 / (rank + 1) ** _ZIPF for rank in range(len(models))]
    elif load == "azure":
        weights = [draw.lognormvariate(0, _AZURE_SPREAD) for _ in models]
    else:
        weights = [1.0] * len(models)
    draw.shuffle(models)
    return {model: weight / sum(weights) for model, weight in zip(models, weights)}


def _times(load: str, per_ms: float, length_ms: float, draw: random.Random) -> list[float]:
    """A Poisson process whose rate changes with time, by thinning; per_ms is the mean rate."""
    rate, most = _rate(load, per_ms, length_ms, draw)
    found, at = [], 0.0
    while (at := at + draw.expovariate(most)) < length_ms:
        if draw.random() * most < rate(at):
            found.append(at)
    return found


def _rate(load: str, per_ms: float, length_ms: float, draw: random.Random):
    """The rate at a time, and the greatest."""
    if load == "burst":
        low = per_ms / (1 + (_BURST_TIMES - 1) * _BURST_SHARE)
        high = low * _BURST_TIMES
        period = min(_BURST_PERIOD_S * 1e3, length_ms)
        return lambda at: high if at % period >= period * (1 - _BURST_SHARE) else low, high
    if load == "azure":
        # Each function has busy spells of its own.
        spell = length_ms / 8
        busy = [draw.random() < _AZURE_ON for _ in range(8)]
        if not any(busy):
            busy[draw.randrange(8)] = True
        high = per_ms * len(busy) / sum(busy)
        return lambda at: high if busy[min(int(at / spell), 7)] else 0.0, high
    return lambda _: per_ms, per_ms
