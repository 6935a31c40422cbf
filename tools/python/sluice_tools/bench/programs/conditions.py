"""The conditions that take turns: what runs, and with which settings of `sluice set`."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from sluice_tools.bench.programs.plan import BUSY, MPS_PRIORITY, Mix, Program
from sluice_tools.common.grammar import WHOLE, WIDTH_FORMS, parse_give, parse_policy, parse_width, required_target
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

BARE, DEFAULT = "bare", "default"
POLICY = "device:200us"  # the default of sluice exec
_RANKS = ("all", "first")
_SLICE = re.compile(r"auto|off|[1-9][0-9]*(us|ms)")
# Words are apart by spaces or by +; a target of steps has a space of its own.
_WORD = re.compile(r"target=step [^\s+]+|[^\s+]+")
_TARGETS = ("p50", "p90", "p95", "p99", "step p50", "step p90", "step p95", "step p99")
_ANNOUNCED = re.compile(r"([1-9][0-9]*)(us|ms)")


class Own(NamedTuple):
    """What no running process can be given. options: of `sluice exec`. announce_ms: so long before it arrives, the
    program announces each request."""

    options: tuple[str, ...] = ()
    announce_ms: float = 0.0


SHARED = Own()  # the critical process of all conditions that ask for nothing of this


@dataclass(frozen=True)
class Condition:
    """policy, slice, weights: of the best-effort programs. ranks: which processes of one such program the policy holds,
    all or the first. own: the critical program has a process for each, which is compared with itself alone. width: of
    the best-effort programs under MPS, in percent of the SMs; they have a process for each."""

    name: str
    policy: str = POLICY
    slice: str = "auto"
    weights: tuple[str, ...] = ()
    ranks: str = "all"
    own: Own = SHARED
    width: int = WHOLE
    hooked: bool = True  # False: as without Sluice

    def settings(self, mix: Mix, program: Program, rank: int = 0) -> tuple[str, ...]:
        """Options of `sluice set`, for one process of the program.

        Without Sluice nobody is above another, so the waits inside of graphs find their gates open, and policy and
        slices do nothing.
        """
        if not self.hooked:
            return ("--priority", "0", "--policy", "none", "--slice", "off", "--weight", "none")
        priority = str(mix.priority(program))
        if program.serves:
            return ("--priority", priority, "--policy", POLICY, "--slice", "auto", "--weight", "none")
        place = mix.best_effort.index(program)
        weight = self.weights[place] if place < len(self.weights) else "none"
        policy = "none" if rank and self.ranks == "first" else self.policy
        return ("--priority", priority, "--policy", policy, "--slice", self.slice, "--weight", weight)

    @property
    def alone(self) -> str:
        """The cell that has the same critical process alone."""
        return f"{ALONE}, {self.name}" if self.own != SHARED else ALONE


def _bare(name: str, own: Own = SHARED) -> Condition:
    return Condition(name, own=own, hooked=False)


def condition_of(text: str) -> Condition:
    """As `bare`, `default`, or settings such as 'slice=off policy=device:400us' and 'bare+sms=50%'. Raises ValueError
    or CommandError."""
    if text == BARE:
        return _bare(BARE)
    made: dict = {}
    own = SHARED
    words = [] if text == DEFAULT else _WORD.findall(text)
    for word in words:
        key, _, value = word.partition("=")
        if word in (BARE, DEFAULT) and len(words) > 1:
            made["hooked"] = made.get("hooked", True) and word != BARE
        elif key == "policy" and parse_policy(value):
            made["policy"] = value
        elif key == "slice" and _SLICE.fullmatch(value):
            made["slice"] = value
        elif key == "weights" and all(part.isdecimal() and int(part) for part in value.split(":")):
            made["weights"] = tuple(value.split(":"))
        elif key == "ranks" and value in _RANKS:
            made["ranks"] = value
        elif key == "sms" and "width" not in made:
            made["width"] = _width_of(word)
        elif key == "target" and required_target(value, _TARGETS):
            own = own._replace(options=(*own.options, "--target", value))
        elif key == "give" and parse_give(value) is not None:
            own = own._replace(options=(*own.options, "--give", value))
        elif key == "announce" and (found := _ANNOUNCED.fullmatch(value)):
            own = own._replace(announce_ms=int(found[1]) / (1 if found[2] == "ms" else 1000))
        else:
            raise ValueError(
                f"'{text}' is not a condition: {BARE}, {DEFAULT}, or words such as policy=device:400us, slice=off, "
                "weights=3:1, ranks=first, sms=50%, target=p99=1.3x, give=0, announce=2ms"
            )
    if text != DEFAULT and not words:
        raise ValueError("a condition has no name")
    return Condition(text, own=own, **made)


def _width_of(word: str) -> int:
    width = parse_width(word.removeprefix("sms="))
    if width is None:
        raise ValueError(f"'{word}' is not a width: {WIDTH_FORMS}")
    return width


def cells(mix: Mix, wanted: list[Condition], mode: str = MPS_PRIORITY) -> list[Condition]:
    """All windows of a round, in order: each process alone, as without Sluice, then what is wanted. Nobody knows before
    when a request that is sent back to back arrives, so it is not announced. A width needs MPS."""
    found = [_bare(BEST_EFFORT_ALONE)]
    wanted = [condition for condition in wanted if condition.width == WHOLE or mode == MPS_PRIORITY]
    if mix.critical is None:
        return found + [condition for condition in wanted if condition.own == SHARED]
    if mix.critical.arrivals == BUSY:
        wanted = [condition for condition in wanted if not condition.own.announce_ms]
    own = [_bare(condition.alone, condition.own) for condition in wanted if condition.own != SHARED]
    return [_bare(ALONE), *found, *own, *wanted]
