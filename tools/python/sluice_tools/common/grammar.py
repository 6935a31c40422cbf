"""Policies, latency targets, memory limits, what a program gives, and widths, as users write them; shm/policy.cpp,
shm/target.cpp, shm/memory_limit.cpp and shm/give.cpp read all but the last in C++."""

import re
from dataclasses import dataclass, replace

from sluice_tools.common.errors import usage_error

POLICY_FORMS = "none, gate, sync:N, event:N, device:N, device:Tus, device:Tus,ahead:Ams (N and T 1-1000000, A 1-1000)"
TARGET_FORMS = "p99=50ms, p95=800us, p99.9=1.5s (p50 to p99.9), p99=1.2x (times alone), step p99=25ms, none"
MEMORY_FORMS = "20GiB, 1.5GiB, 80GB (1GiB to 16TiB; KiB, MiB, GiB, TiB, kB, MB, GB, TB), none"
GIVE_FORMS = "0, or a percentage from 0.1% to 50% such as 5%"
WIDTH_FORMS = "sms=all, or sms=1% to sms=99% of the SMs"
WHOLE = 100  # the width of a program that may use all SMs, in percent of them
_POLICY = re.compile(r"(none|gate)|(sync|event|device):([0-9]+)|(device):([0-9]+)us(?:,ahead:([0-9]+)(us|ms))?")
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_TARGET = re.compile(rf"(step )?p{_NUMBER}={_NUMBER}(us|ms|s|x)")
_UNIT = {"us": 1e3, "ms": 1e6, "s": 1e9, "x": 1e3}  # ns, and thousandths of the time alone
_MEMORY = re.compile(r"([0-9]+)(?:\.([0-9]{1,3}))?([KMGT]iB|[kMGT]B)")
_GIVE = re.compile(r"0|([0-9]{1,9})(?:\.([0-9]))?%")
_WIDTH = re.compile(r"all|([0-9]{1,3})%")
_SIZES = {prefix: power for power, prefix in enumerate("kMGT", start=1)} | {"K": 1}
_MOST_COUNT, _MOST_DIGITS = 1_000_000, 15
_MOST_GIVE = 500
_MOST_NS, _MOST_TIMES_ALONE = 3_600_000_000_000, 100_000


@dataclass(frozen=True)
class Policy:
    kind: str
    number: int | None = None  # N launches, or T in us of GPU time; None for none and gate
    in_time: bool = False
    ahead_us: int = 0

    def _text(self, number: object) -> str:
        unit = "us" if self.in_time else ""
        return self.kind + (f":{number}{unit}" if self.number else "") + self._ahead()

    def _ahead(self) -> str:
        if not self.ahead_us:
            return ""
        return f",ahead:{self.ahead_us}us" if self.ahead_us % 1000 else f",ahead:{self.ahead_us // 1000}ms"

    def form(self) -> str:
        """What policies that differ in their number only have in common: sync:N, device:Tus."""
        return self._text("T" if self.in_time else "N")

    def __str__(self) -> str:
        return self._text(self.number)


@dataclass(frozen=True)
class Target:
    """What is good enough at a percentile: a latency, or a multiple of the time alone."""

    figure: str  # p50 to p99.9 of jobs, or "step p99" of steps; empty: no target
    amount: int  # ns, or thousandths of the time alone
    relative: bool

    @property
    def limit(self) -> float:
        """ms, or times alone."""
        return self.amount / (1e3 if self.relative else 1e6)

    @property
    def percent(self) -> float:
        """Of the jobs or steps that are to keep it: 99 of p99 and of step p99."""
        return float(self.figure.rpartition("p")[2])

    def __str__(self) -> str:
        if not self.figure:
            return "none"
        if self.relative:
            return f"{self.figure}={_shortest(self.amount)}x"
        # The largest unit in which three digits behind the point are enough.
        units = ((1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"))
        ns, unit = next(
            (one for one in units if self.amount >= one[0] and self.amount % (one[0] // 1000) == 0), units[-1]
        )
        return f"{self.figure}={_shortest(self.amount // (ns // 1000))}{unit}"


def _shortest(thousandths: int) -> str:
    return f"{thousandths // 1000}.{thousandths % 1000:03}".rstrip("0").rstrip(".")


def parse_policy(text: str) -> Policy | None:
    """None for all other text."""
    found = _POLICY.fullmatch(text)
    if not found:
        return None
    plain, spaced, launches, timed, us, ahead, unit = found.groups()
    if plain:
        return Policy(plain)
    scale = 1000 if unit == "ms" else 1
    policy = Policy(spaced or timed, int(launches or us), bool(timed), int(ahead or 0) * scale)
    counts = [policy.number, policy.ahead_us] if ahead else [policy.number]
    return policy if all(1 <= count <= _MOST_COUNT for count in counts if count is not None) else None


def parse_target(text: str) -> Target | None:
    """None for all other text."""
    if text == "none":
        return Target("", 0, False)
    found = _TARGET.fullmatch(text)
    if not found:
        return None
    step, percentile, limit, unit = found.groups()
    if any(len(number.replace(".", "")) > _MOST_DIGITS for number in (percentile, limit)):
        return None
    tenths, relative = float(percentile) * 10, unit == "x"
    per_mille, amount = int(tenths + 0.5), int(float(limit) * _UNIT[unit] + 0.5)
    least, most = (1000, _MOST_TIMES_ALONE) if relative else (1, _MOST_NS)
    if abs(tenths - per_mille) > 1e-6 or not (500 <= per_mille <= 999 and least <= amount <= most):
        return None
    return Target(f"{step or ''}p{per_mille / 10:g}", amount, relative)


def required_policy(text: str) -> Policy:
    """Raises CommandError."""
    policy = parse_policy(text)
    if policy is None:
        raise usage_error(f"'{text}' is not a policy: {POLICY_FORMS}")
    return policy


def required_target(text: str, figures: tuple) -> Target:
    """figures: what the tool measures, as p99; also words that are no percentile, as max. Raises CommandError."""
    word, _, limit = text.partition("=")
    is_percentile = word not in figures or word.startswith("p")
    target = parse_target(text if is_percentile else f"p50={limit}")
    if not target:
        raise usage_error(f"'{text}' is not a target: {TARGET_FORMS}")
    target = target if is_percentile else replace(target, figure=word)
    if target.figure not in figures:
        raise usage_error(f"'{text}' is not about one of {', '.join(figures)}")
    return target


def parse_memory(text: str) -> int | None:
    """A limit of device memory in bytes; 0 for none. None for all other text."""
    if text == "none":
        return 0
    found = _MEMORY.fullmatch(text)
    if not found:
        return None
    whole, behind, unit = found.groups()
    size = (1024 if unit[1] == "i" else 1000) ** _SIZES[unit[0]]
    limit = int(whole) * size + int((behind or "0").ljust(3, "0")) * size // 1000
    return limit if 1 << 30 <= limit <= 16 << 40 else None


def parse_give(text: str) -> int | None:
    """In 1/1000 of the time. None for all other text."""
    found = _GIVE.fullmatch(text)
    if not found:
        return None
    per_mille = int(found[1] or 0) * 10 + int(found[2] or 0)
    return per_mille if per_mille <= _MOST_GIVE else None


def parse_width(text: str) -> int | None:
    """The SMs that a program may use under MPS, in percent of all; WHOLE for all. None for all other text."""
    found = _WIDTH.fullmatch(text)
    if not found:
        return None
    percent = int(found[1] or WHOLE)
    return percent if 1 <= percent <= WHOLE else None


def width_text(percent: int) -> str:
    """As `sluice exec --sms` reads it."""
    return "all" if percent == WHOLE else f"{percent}%"
