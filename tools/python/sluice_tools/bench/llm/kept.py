"""Which share of the steps kept the target, by the clock of the client: a step is the time between two tokens.

Sluice counts by the clock of the server. A limit that is a multiple of the time alone is here of the gaps of the server
alone, by the same clock and in the same round.
"""

from bisect import bisect_left
from itertools import accumulate

from sluice_tools.common.grammar import Target, parse_target
from sluice_tools.measure.rows import CRITICAL
from sluice_tools.measure.summary import ALONE

_STEP = "step "


def _gaps(row: dict) -> list[tuple[float, int]]:
    """(ms, how many), the shortest first."""
    pairs = (part.split(":") for part in (row.get("gaps") or "").split())
    return [(float(ms), int(count)) for ms, count in pairs]


def _percentile(gaps: list[tuple[float, int]], percent: float) -> float:
    sums = list(accumulate(count for _, count in gaps))
    return gaps[min(bisect_left(sums, percent / 100 * sums[-1]), len(gaps) - 1)][0]


def _target(cell: str) -> Target | None:
    """Of the steps, in a condition of this name."""
    gates = cell.split(", ")[0]
    return parse_target(gates.removeprefix("target ")) if gates.startswith(f"target {_STEP}") else None


def _limit_ms(target: Target, alone: list[tuple[float, int]]) -> float | None:
    if not target.relative:
        return target.limit
    return target.limit * _percentile(alone, target.percent) if alone else None


def _share(gaps: list[tuple[float, int]], limit_ms: float) -> float:
    return sum(count for ms, count in gaps if ms <= limit_ms) / sum(count for _, count in gaps)


def kept(rows: list[dict], subject: str, mode: str, cell: str) -> list[float]:
    """A share for each round of a condition with a target of steps; none for other conditions."""
    target = _target(cell)
    if not target:
        return []
    same = [row for row in rows if (row["subject"], row["mode"], row["role"]) == (subject, mode, CRITICAL)]
    alone = {row["repeat"]: _gaps(row) for row in same if row["cell"] == ALONE}
    found = []
    for row in same:
        gaps = _gaps(row) if row["cell"] == cell else []
        limit_ms = _limit_ms(target, alone.get(row["repeat"], []))
        if gaps and limit_ms is not None:
            found.append(_share(gaps, limit_ms))
    return found
