"""From what a best-effort program answered to the figures of its row."""

from bisect import bisect_right

from sluice_tools.measure.rows import BEST_EFFORT

_SUMMED = ("gated", "captured", "waited")


def jobs_between(ends_ns: list, begin_ns: int, end_ns: int) -> float:
    """Jobs done between two moments, parts of jobs included. ends_ns: the begin of the first job,
    then the end of each."""

    def done(at: int) -> float:
        index = bisect_right(ends_ns, at) - 1
        if index < 0:
            return 0.0
        if index + 1 >= len(ends_ns):
            return float(index)
        return index + (at - ends_ns[index]) / (ends_ns[index + 1] - ends_ns[index])

    return done(end_ns) - done(begin_ns)


def best_effort_row(ends_ns: list, begin_ns: int, end_ns: int, client: str, policy: str, before, after) -> dict:
    """before, after: the client of `sluice status --json` at both ends of the window, or None."""
    seconds = (end_ns - begin_ns) / 1e9
    jobs = jobs_between(ends_ns, begin_ns, end_ns)
    row = {
        "client": client,
        "role": BEST_EFFORT,
        "policy": policy,
        "window_s": seconds,
        "jobs": int(jobs),
        "per_s": jobs / seconds,
        "unit": "jobs",
    }
    return row | counted(before, after)


def counted(before: dict | None, after: dict | None) -> dict:
    """What the interposer counted between two looks at a client; empty where nothing is hooked."""
    if before is None or after is None:
        return {}
    first, last = _counters(before), _counters(after)
    more = {name: last[name] - first[name] for name in last}
    more["held_ms"] = more.pop("held_total_ns") / 1e6
    return more | {"longest_us": after["longest_ns"] / 1e3, "ungated_graph_us": after["ungated_graph_ns"] / 1e3}


def _counters(client: dict) -> dict:
    """Over all launch entries."""
    sums = {name: sum(entry[name] for entry in client["coverage"]) for name in _SUMMED}
    # Held time is that of the client: a device policy holds nobody on the host, so its launches count none.
    names = ("launches", "bypassed", "max_hold_opened", "unknown_launches", "held_total_ns")
    return sums | {name: client[name] for name in names}
