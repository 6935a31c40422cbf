"""What `sluice bench pairs` measures, and in which order."""

from dataclasses import dataclass

CRITICAL = {
    "resnet50": "ResNet-50, batch 1, one CUDA graph",
    "bert": "BERT-large-like encoder, batch 1, 128 tokens, one CUDA graph",
    "fasterrcnn": "FasterRCNN-ResNet50-FPN, 720x1280, TorchScript",
}
BEST_EFFORT = {
    "resnet152": "ResNet-152, batch 256, eager",
    "resnet152-graph": "ResNet-152, batch 256, one CUDA graph",
    "training": "ResNet-50 training, batch 64, bf16",
    "bert": "BERT-large-like encoder, batch 8, 512 tokens, eager",
}
# Measured first, and as often as --repeats says; the others once.
NAMED = ("resnet50+resnet152", "resnet50+resnet152-graph", "resnet50+training", "bert+bert")
PAIRS = NAMED + tuple(
    pair for pair in (f"{critical}+{other}" for critical in CRITICAL for other in BEST_EFFORT)
    if pair not in NAMED)

MODES = ("time-sliced", "MPS")
LOAD = 0.15
DEVICE = "device:200us"
NOTICE_MS = 2.0

# The pair that is also measured at another load and with other arrivals.
VARIED = "resnet50+resnet152"


@dataclass(frozen=True)
class Cell:
    name: str
    policy: str = "none"
    critical: bool = True     # whether critical jobs arrive,
    best_effort: bool = True  # and whether best-effort jobs run: both programs are there always
    notice_ms: float = 0.0
    load: float = LOAD
    arrivals: str = "periodic"


ALONE = Cell("alone", best_effort=False)
BE_ALONE = Cell("be-alone", critical=False)
BE_ALONE_DEVICE = Cell(f"be-alone:{DEVICE}", DEVICE, critical=False)

_DEVICE_CELLS = (Cell(DEVICE, DEVICE), Cell(f"{DEVICE}+notice", DEVICE, notice_ms=NOTICE_MS))
_TIME_SLICED = (ALONE, BE_ALONE, BE_ALONE_DEVICE, *_DEVICE_CELLS,
                *(Cell(policy, policy) for policy in ("none", "event:1", "event:2", "gate", "sync:1")))
_PRIORITIES = (ALONE, BE_ALONE, BE_ALONE_DEVICE, Cell(f"priority+{DEVICE}", DEVICE),
               Cell(f"priority+{DEVICE}+notice", DEVICE, notice_ms=NOTICE_MS),
               Cell("priority"), Cell("priority+event:1", "event:1"))
_PREDICTED = {"time-sliced": (Cell(f"{DEVICE}+predicted", DEVICE),),
              "MPS": (Cell(f"priority+{DEVICE}+predicted", DEVICE),)}
_VARIED = tuple(
    Cell(name, policy, best_effort=name != "alone", load=load, arrivals=arrivals)
    for load, arrivals in ((0.5, "periodic"), (LOAD, "poisson"))
    for name, policy in (("alone", "none"), (DEVICE, DEVICE), ("none", "none"),
                         ("event:2", "event:2")))


@dataclass(frozen=True)
class Group:
    """Cells that are measured with the same two processes."""

    pair: str
    mode: str
    repeat: int
    cells: tuple
    priorities: bool = True  # under MPS: the best-effort program's client priority is the lower
    predicts: bool = False   # whether the critical program's jobs, which come regularly, are predicted

    @property
    def critical(self) -> str:
        return self.pair.split("+")[0]

    @property
    def best_effort(self) -> str:
        return self.pair.split("+")[1]


def cell_names() -> list:
    """What --policies may name."""
    return list(dict.fromkeys(cell.name for cell in (*_TIME_SLICED, *_PRIORITIES,
                                                   *sum(_PREDICTED.values(), ()))))


def _cells(pair: str, mode: str) -> tuple:
    if mode == "MPS":
        return _PRIORITIES
    return _TIME_SLICED + (_VARIED if pair == VARIED else ())


def _chosen(cells: tuple, policies) -> tuple:
    """Those asked for, and what they are held against."""
    kept = [cell for cell in cells if not policies or cell.name in policies]
    if not kept:
        return ()
    variants = {(cell.load, cell.arrivals) for cell in kept}
    return tuple(cell for cell in cells if cell in kept or cell == BE_ALONE or
                 (cell.name == ALONE.name and (cell.load, cell.arrivals) in variants))


def groups(pairs=PAIRS, modes=MODES, policies=(), repeats: int = 3) -> list:
    """The most valuable first: the named pairs once, the rest once, then the named pairs again.
    MPS without client priorities, and prediction, need programs of their own and come last."""
    named = [pair for pair in PAIRS if pair in pairs and pair in NAMED]
    rest = [pair for pair in PAIRS if pair in pairs and pair not in NAMED]
    turns = [(named, 1), (rest, 1)] + [(named, repeat) for repeat in range(2, repeats + 1)]
    found = []
    for turn, repeat in turns:
        found += [Group(pair, mode, repeat, _chosen(_cells(pair, mode), policies))
                  for pair in turn for mode in MODES if mode in modes]
        if "MPS" in modes and (not policies or "none" in policies):
            found += [Group(pair, "MPS", repeat, (Cell("none"),), priorities=False)
                      for pair in turn]
        found += [Group(pair, mode, repeat, _chosen(_PREDICTED[mode], policies), predicts=True)
                  for pair in turn if pair in NAMED for mode in MODES if mode in modes]
    return [group for group in found if group.cells]
