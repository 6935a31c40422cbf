"""What `sluice bench llm` measures: best-effort programs, modes, loads and conditions."""

from dataclasses import dataclass

from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

SERVER = "llm-server"
BEST_EFFORT = ("llama-finetuning", "resnet-training", "offline-generation")  # of `sluice bench programs`
TIME_SLICED, MPS, MPS_PRIORITY = "time-sliced", "MPS", "MPS + priority"
MODES = (TIME_SLICED, MPS, MPS_PRIORITY)
LOADS = (30, 70, 100)  # % of the requests that the server can end
BARE, DEFAULT = "without Sluice", "default"
TARGET = "step p99=1.3x"


@dataclass(frozen=True)
class Condition:
    """policy, slice_: of the best-effort program; target: of the server, or none. All can change at run time. hooked:
    False: as without Sluice, where nobody is above another."""

    name: str
    policy: str = "device:200us"
    slice_: str = "auto"
    target: str = "none"
    hooked: bool = True

    @property
    def server_runs(self) -> bool:
        return self.name != BEST_EFFORT_ALONE

    @property
    def best_effort_runs(self) -> bool:
        return self.name != ALONE


def conditions(targets: list[str]) -> list[Condition]:
    """Of one load; best effort alone needs no load."""
    fixed = [Condition(ALONE), Condition(BARE, "none", "off", hooked=False), Condition(DEFAULT)]
    return fixed + [Condition(f"target {target}", target=target) for target in targets]


def order(found: list[Condition], repeat: int) -> list[Condition]:
    """Another one first in every round, so that none always follows the same."""
    first = (repeat - 1) % len(found)
    return found[first:] + found[:first]
