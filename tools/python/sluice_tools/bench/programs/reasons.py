"""What the interposer counted in the windows of a condition, as far as it explains latency or speed."""

from sluice_tools.bench.programs.results import Result
from sluice_tools.measure.rows import CRITICAL, number

_LONG_US = 1000.0  # launches above this are named as a reason
_MANY_UNKNOWN = 0.05  # share of launches


def reasons(result: Result) -> list[str]:
    """Nobody holds the critical program, and all of its launches are free to run."""
    found = []
    for name, role in dict.fromkeys((row["client"], row["role"]) for row in result.rows):
        rows = [row for row in result.rows if row["client"] == name]
        looks = (_target, _closes, _announced) if role == CRITICAL else (_held, _ungated, _slice)
        parts = [part for look in looks for part in look(rows)]
        if parts:
            found.append(f"{name}: {', '.join(parts)}")
    return found


def _sum(rows: list[dict], name: str) -> float:
    return sum(number(row, name) or 0 for row in rows)


def _most(rows: list[dict], name: str) -> float:
    return max(number(row, name) or 0 for row in rows)


def _held(rows: list[dict]) -> list[str]:
    seconds, launches = _sum(rows, "counted_s"), _sum(rows, "launches")
    if not launches:
        return []
    found = [f"held {_sum(rows, 'held_ms') / 10 / seconds:.0f} % of the time"]
    if waited := _sum(rows, "waited"):
        found.append(f"{waited / seconds:.0f} launches/s waited")
    if opened := _sum(rows, "max_hold_opened"):
        found.append(f"max_hold opened the gate {opened:.0f} times")
    return found


def _ungated(rows: list[dict]) -> list[str]:
    found = []
    if (longest := _most(rows, "longest_us")) > _LONG_US:
        found.append(f"launches of up to {longest / 1e3:.1f} ms")
    if graph := _most(rows, "ungated_graph_us"):
        found.append(f"graphs without waits of up to {graph / 1e3:.1f} ms")
    if bypassed := _sum(rows, "bypassed"):
        found.append(f"{bypassed:.0f} launches ungated")
    launches, unknown = _sum(rows, "launches"), _sum(rows, "unknown_launches")
    if launches and unknown > _MANY_UNKNOWN * launches:
        found.append(f"{100 * unknown / launches:.0f} % of launches of unknown duration")
    return found


def _all_of(rows: list[dict], name: str) -> str:
    return "/".join(dict.fromkeys(row[name] for row in rows if row[name]))


def _slice(rows: list[dict]) -> list[str]:
    return [f"slice {text}"] if (text := _all_of(rows, "slice")) else []


def _closes(rows: list[dict]) -> list[str]:
    return [f"closes gates at {text} (state:level)"] if (text := _all_of(rows, "closes")) else []


def _announced(rows: list[dict]) -> list[str]:
    told = [row for row in rows if row["announced"]]
    return [f"{_sum(told, 'announced'):.0f} of {_sum(told, 'jobs'):.0f} requests announced in time"] if told else []


def _target(rows: list[dict]) -> list[str]:
    if not (jobs := _sum(rows, "target_jobs")):
        return [f"target {row['target_state']}" for row in rows[:1] if row["target_state"]]
    kept = _sum(rows, "target_kept") / jobs
    opened = 100 * _sum(rows, "target_open_ms") / 1e3 / _sum(rows, "counted_s")
    return [
        f"{100 * kept:.1f} % of {jobs:.0f} jobs in {_most(rows, 'target_limit_ms'):.1f} ms by its own count "
        f"({rows[-1]['target_state']}), gates open in jobs for {opened:.0f} % of the time"
    ]
