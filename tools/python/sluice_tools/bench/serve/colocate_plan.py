"""Which models, loads and systems `sluice bench serve --part colocate` compares, and when requests arrive."""

import random
from dataclasses import dataclass

from sluice_tools.bench.serve.setting import Setting

INFER_ONLY, TRAIN_ONLY = "infer only", "training alone"
OURS = "colocate-l1"
SLO = 2.0  # of a model, in multiples of its p99 under infer only with the same load


@dataclass(frozen=True)
class System:
    """mode: of `sluice serve`. share: percent of the multiprocessors that MPS lets inference use."""

    name: str
    mode: str
    trains: bool = True
    infers: bool = True
    mps: bool = False
    share: int | None = None


SYSTEMS = (
    System(INFER_ONLY, "colocate-l1", trains=False),
    System(TRAIN_ONLY, "normal", infers=False),
    System("colocate-l1", "colocate-l1"),
    System("normal", "normal"),
    System("task-switch-l1", "task-switch-l1"),
    System("park", "park"),
    System("colocate-l2", "colocate-l2"),
    System("MPS", "normal", mps=True),
    System("static 50 %", "normal", mps=True, share=50),
    System("static 75 %", "normal", mps=True, share=75),
    System("task-switch-l2", "task-switch-l2"),
    System("task-switch-l3", "task-switch-l3"),
)
# What the published figures compare with: contention, fixed shares, and switching between the two tasks.
BASELINES = ("normal", "MPS", "static 50 %", "static 75 %", "task-switch-l1", "task-switch-l2", "task-switch-l3")
LOADS = ("light", "heavy", "burst", "skew", "azure")
_KINDS = ("densenet161", "efficientnet_v2_s", "mobilenet_v3_large", "resnet50", "resnet152", "bert_base")
_TINY_KINDS = ("mobilenet_v2_b1", "resnet50_b1")  # recordings

# Share of the device's time that the requests need.
_BUSY = {"light": 0.1, "heavy": 0.4, "burst": 0.2, "skew": 0.25, "azure": 0.25}
_BURST_PERIOD_S, _BURST_S, _BURST_TIMES = 10.0, 2.0, 4.0
_ZIPF = 1.1
_AZURE_ON = 0.3  # share of the time in which a function is called at all
_AZURE_SPREAD = 1.2  # sigma of the lognormal rates of the functions


@dataclass(frozen=True)
class Training:
    """The job next to inference. steps: of an epoch, each of which is a line of the log."""

    model: str
    batch: int
    steps: int


def training_of(setting: Setting) -> Training:
    return Training("example", 8, 2) if setting.tiny else Training("resnet152", 72, 4)


def kinds_of(setting: Setting) -> tuple[str, ...]:
    return _TINY_KINDS if setting.tiny else _KINDS


def models_of(setting: Setting, count: int) -> dict[str, str]:
    """The kind of each of `count` models, by name."""
    kinds = kinds_of(setting)
    return {f"{kinds[i % len(kinds)]}-{i // len(kinds)}": kinds[i % len(kinds)] for i in range(count)}


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
        low = per_ms / (1 + (_BURST_TIMES - 1) * _BURST_S / _BURST_PERIOD_S)
        high = low * _BURST_TIMES
        return lambda at: high if at / 1e3 % _BURST_PERIOD_S >= _BURST_PERIOD_S - _BURST_S else low, high
    if load == "azure":
        # Each function has busy spells of its own.
        spell = length_ms / 8
        busy = [draw.random() < _AZURE_ON for _ in range(8)]
        if not any(busy):
            busy[draw.randrange(8)] = True
        high = per_ms * len(busy) / sum(busy)
        return lambda at: high if busy[min(int(at / spell), 7)] else 0.0, high
    return lambda _: per_ms, per_ms
