"""What `sluice bench llm` measures: best-effort programs, modes, loads and conditions."""

from dataclasses import dataclass

from sluice_tools.common.grammar import TARGET_FORMS, WHOLE, WIDTH_FORMS, parse_target, parse_width, width_text
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

SERVER = "llm-server"
BEST_EFFORT = ("llama-finetuning", "resnet-training", "offline-generation")  # of `sluice bench programs`
TIME_SLICED, MPS, MPS_PRIORITY = "time-sliced", "MPS", "MPS + priority"
MODES = (TIME_SLICED, MPS, MPS_PRIORITY)
LOADS = (30, 70, 100)  # % of the requests that the server can end
BARE, DEFAULT = "without Sluice", "default"
TARGET = "step p99=1.3x"
USUAL = ("none", "default")  # the conditions, next to those of --targets
CONDITION_FORMS = "none, default, target=T, sms=W, or target=T+sms=W and none+sms=W"


@dataclass(frozen=True)
class Condition:
    """policy, slice_: of the best-effort program; target: of the server, or none. These can change at run time. width:
    of the best-effort program, in percent of the SMs; there is a process for each. hooked: False: as without Sluice,
    where nobody is above another."""

    name: str
    policy: str = "device:200us"
    slice_: str = "auto"
    target: str = "none"
    hooked: bool = True
    width: int = WHOLE

    @property
    def server_runs(self) -> bool:
        return self.name != BEST_EFFORT_ALONE

    @property
    def best_effort_runs(self) -> bool:
        return self.name != ALONE


def condition_of(text: str) -> Condition:
    """As `default`, or words with + between them, such as 'sms=50%+target=step p99=1.2x'. Raises ValueError."""
    gates: list[str] = []
    width = None
    for word in (part.strip() for part in text.split("+")):
        if word in USUAL:
            gates.append(word)
        elif word.startswith("target"):
            gates.append(_target_of(word))
        elif width is None and word.startswith("sms="):
            width = parse_width(word.removeprefix("sms="))
            if width is None:
                raise ValueError(f"'{word}' is not a width: {WIDTH_FORMS}")
        else:
            raise ValueError(f"'{text}' is not a condition: {CONDITION_FORMS}")
    if len(gates) > 1:
        raise ValueError(f"'{text}' has two of none, default and target")
    return _condition(gates[0] if gates else "default", width or WHOLE)


def _target_of(word: str) -> str:
    target = word.removeprefix("target").lstrip("= ")
    if not parse_target(target):
        raise ValueError(f"'{word}' has no target: {TARGET_FORMS}")
    return target


def _condition(gates: str, width: int) -> Condition:
    behind = "" if width == WHOLE else f", sms={width_text(width)}"
    if gates == "none":
        return Condition(BARE + behind, "none", "off", hooked=False, width=width)
    if gates == "default":
        return Condition(DEFAULT + behind, width=width)
    return target_condition(gates, behind, width)


def target_condition(target: str, behind: str = "", width: int = WHOLE) -> Condition:
    return Condition(f"target {target}{behind}", target=target, width=width)


def conditions(wanted: list[Condition], mode: str) -> list[Condition]:
    """Of one load; best effort alone needs no load. A width needs MPS."""
    return [Condition(ALONE)] + [one for one in wanted if mode != TIME_SLICED or one.width == WHOLE]


def order(found: list[Condition], repeat: int) -> list[Condition]:
    """Another one first in every round, so that none always follows the same."""
    first = (repeat - 1) % len(found)
    return found[first:] + found[:first]
