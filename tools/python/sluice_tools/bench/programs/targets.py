"""Whether a cell keeps a latency target of its critical program."""

from sluice_tools.bench.programs.results import Result
from sluice_tools.grammar import Target, required_target
from sluice_tools.measure.summary import middle


def parse_target(text: str) -> Target:
    """Of a request's work. Raises CommandError."""
    return required_target(text, ("p50", "p90", "p99"))


def limit_ms(target: Target, alone: Result | None) -> float | None:
    """None where the time alone is not known."""
    if not target.relative:
        return target.limit
    base = middle(alone.work[target.figure]) if alone else None
    return target.limit * base if base else None


def keeps(target: Target, result: Result, alone: Result | None) -> bool | None:
    """In every repeat. None where it is not known."""
    limit, values = limit_ms(target, alone), result.work[target.figure]
    return max(values) <= limit if limit is not None and values else None
