"""Latency targets, as `sluice exec --target` takes them, and whether a cell keeps one."""

import re
from dataclasses import dataclass

from sluice_tools.bench.programs.results import Result
from sluice_tools.errors import usage_error
from sluice_tools.measure.summary import middle

_FORM = re.compile(r"(p50|p90|p99)=([0-9]*\.?[0-9]+)(us|ms|s|x)")
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Target:
    figure: str  # p50, p90 or p99 of a request's work
    limit: float  # ms, or times alone
    relative: bool

    def limit_ms(self, alone: Result | None) -> float | None:
        """None where the time alone is not known."""
        if not self.relative:
            return self.limit
        base = middle(alone.work[self.figure]) if alone else None
        return self.limit * base if base else None

    def kept(self, result: Result, alone: Result | None) -> bool | None:
        """In every repeat. None where it is not known."""
        limit, values = self.limit_ms(alone), result.work[self.figure]
        return max(values) <= limit if limit is not None and values else None


def parse_target(text: str) -> Target:
    """p99=50ms or p99=1.3x. Raises CommandError."""
    found = _FORM.fullmatch(text)
    if not found or float(found[2]) <= 0 or (found[3] == "x" and float(found[2]) < 1):
        raise usage_error(f"--targets: '{text}' is not like p99=50ms or p99=1.3x (p50, p90 or p99; at least 1x)")
    return Target(found[1], float(found[2]) * _MS.get(found[3], 1.0), found[3] == "x")
