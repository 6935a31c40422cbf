"""Which models, loads and schedulers `sluice bench serve --part order` measures."""

from dataclasses import dataclass

from sluice_tools.bench.serve.setting import Setting

SCHEDULERS = ("FIFO", "BNST", "OYST", "DLIR", "PARALLER", "EDF")
# The first ones say the most: they are measured first.
LOADS = (0.85, 1.1, 0.5, 0.95, 0.7)
LAWS = ("poisson", "poisson-ms")
SLO = 4  # deadline of a request, in multiples of the time of its model alone
_BLOCKS = (3, 2)  # of the longest model and of the second; the others run whole, as published


@dataclass(frozen=True)
class Models:
    names: tuple[str, ...]
    batch: int


_REAL = Models(("vgg19", "resnet50", "googlenet", "densenet121", "bert_base"), 16)
_TINY = Models(("resnet50", "squeezenet1_1", "mobilenet_v2"), 4)


def models_of(setting: Setting) -> Models:
    return _TINY if setting.tiny else _REAL


def in_blocks(name: str, blocks: int) -> str:
    """The name under which the server has the model in so many blocks."""
    return f"{name}-in-{blocks}"


def config(models: Models) -> dict:
    """Every model whole, and the models in blocks, which are loaded once it is known which are the longest."""
    keys = {"batch-size": models.batch, "max-queue": 100000}
    entries = {name: {"path": name, **keys} for name in models.names}
    for blocks in _BLOCKS:
        for name in models.names:
            entries[in_blocks(name, blocks)] = {"path": name, **keys, "blocks": blocks, "preload": "no"}
    return entries


def blocks_of(whole_ms: dict[str, float]) -> dict[str, int]:
    """The number of blocks of each model, from the times of the whole models."""
    longest = sorted(whole_ms, key=lambda name: whole_ms[name], reverse=True)
    return dict.fromkeys(whole_ms, 1) | dict(zip(longest, _BLOCKS))


def gap_ms(execute_ms: list[float], load: float) -> float:
    """The mean time between two requests of each model at which all models together need `load` of the device.

    execute_ms: the device time that a request of each model needs.
    """
    return sum(execute_ms) / load
