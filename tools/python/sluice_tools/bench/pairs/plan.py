"""What `sluice bench pairs` measures, and in which order."""

from dataclasses import dataclass

from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

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
    pair for pair in (f"{critical}+{other}" for critical in CRITICAL for other in BEST_EFFORT) if pair not in NAMED
)

TIME_SLICED, MPS_PRIORITY, MPS = "time-sliced", "MPS + priority", "MPS"
MODES = (TIME_SLICED, MPS_PRIORITY, MPS)
LOAD = 0.15
DEVICE = "device:200us"
ANNOUNCED, PREDICTED = f"{DEVICE}, announced", f"{DEVICE}, predicted"
BEST_EFFORT_ALONE_DEVICE = f"{BEST_EFFORT_ALONE}, {DEVICE}"
ANNOUNCE_MS = 2.0
# The pair that is also measured at another load and with other arrivals.
VARIED = "resnet50+resnet152"


@dataclass(frozen=True)
class Condition:
    """What runs in a cell. Both programs are always loaded."""

    name: str
    policy: str = "none"  # of the best-effort program

    @property
    def critical(self) -> bool:
        """Whether critical jobs arrive."""
        return not self.name.startswith(BEST_EFFORT_ALONE)

    @property
    def best_effort(self) -> bool:
        """Whether best-effort jobs run."""
        return self.name != ALONE

    @property
    def announce_ms(self) -> float:
        return ANNOUNCE_MS if self.name == ANNOUNCED else 0.0


_CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition(ALONE),
        Condition(BEST_EFFORT_ALONE),
        Condition(BEST_EFFORT_ALONE_DEVICE, DEVICE),
        Condition(DEVICE, DEVICE),
        Condition(ANNOUNCED, DEVICE),
        Condition(PREDICTED, DEVICE),
        *(Condition(policy, policy) for policy in ("none", "event:1", "event:2", "gate", "sync:1")),
    )
}
_OF_MODE = {
    TIME_SLICED: (
        ALONE,
        BEST_EFFORT_ALONE,
        BEST_EFFORT_ALONE_DEVICE,
        DEVICE,
        ANNOUNCED,
        "none",
        "event:1",
        "event:2",
        "gate",
        "sync:1",
    ),
    MPS_PRIORITY: (ALONE, BEST_EFFORT_ALONE, BEST_EFFORT_ALONE_DEVICE, DEVICE, ANNOUNCED, "none", "event:1"),
    MPS: (ALONE, BEST_EFFORT_ALONE, "none"),
}
CONDITIONS = tuple(_CONDITIONS)


@dataclass(frozen=True)
class Variant:
    """Conditions that are measured with the same two processes."""

    pair: str
    mode: str
    repeat: int
    conditions: tuple[Condition, ...]
    load: float = LOAD
    arrivals: str = "periodic"
    predicts: bool = False  # whether regular jobs are predicted, as is the interposer's default

    @property
    def subject(self) -> str:
        if self.arrivals == "poisson":
            return f"{self.pair}, Poisson arrivals"
        return self.pair if self.load == LOAD else f"{self.pair}, load {self.load:.0%}"

    @property
    def critical(self) -> str:
        return self.pair.split("+")[0]

    @property
    def best_effort(self) -> str:
        return self.pair.split("+")[1]


def _chosen(names: tuple, policies) -> tuple:
    """Those asked for, and what they are compared with. A policy that is no condition of its own runs wherever
    the default does."""
    others = [policy for policy in policies if policy not in _CONDITIONS] if DEVICE in names else []
    kept = [name for name in names if not policies or name in policies] + others
    wanted = {*kept, ALONE, BEST_EFFORT_ALONE} if kept else set()
    return tuple(_CONDITIONS.get(name, Condition(name, name)) for name in (*names, *others) if name in wanted)


def _varied(repeat: int, policies) -> list[Variant]:
    names = (ALONE, BEST_EFFORT_ALONE, DEVICE, "none", "event:2")
    return [
        Variant(VARIED, TIME_SLICED, repeat, _chosen(names, policies), load, arrivals)
        for load, arrivals in ((0.5, "periodic"), (LOAD, "poisson"))
    ]


def variants(pairs=PAIRS, modes=MODES, policies=(), repeats: int = 3) -> list[Variant]:
    """The most valuable first: the named pairs once, the rest once, then the named pairs again."""
    named = [pair for pair in PAIRS if pair in pairs and pair in NAMED]
    rest = [pair for pair in PAIRS if pair in pairs and pair not in NAMED]
    found: list[Variant] = []
    for turn, repeat in [(named, 1), (rest, 1)] + [(named, n) for n in range(2, repeats + 1)]:
        for pair in turn:
            found += [Variant(pair, mode, repeat, _chosen(_OF_MODE[mode], policies)) for mode in MODES if mode in modes]
            if pair == VARIED and TIME_SLICED in modes:
                found += _varied(repeat, policies)
        # Prediction is switched when a process starts, so it needs processes of its own.
        if not policies or PREDICTED in policies:
            found += [
                Variant(pair, mode, repeat, (_CONDITIONS[PREDICTED],), predicts=True)
                for pair in turn
                if pair in NAMED
                for mode in (TIME_SLICED, MPS_PRIORITY)
                if mode in modes
            ]
    return [variant for variant in found if variant.conditions]
