"""From what was seen in a cell to the figures of its row."""

from bisect import bisect_right

# With fewer jobs, the 99th percentile is one of the two or three slowest: the slowest stands in.
ENOUGH_FOR_P99 = 300

_COUNTS = ("gated", "captured", "waited", "held_ns")
_BYPASSES = ("failed_open", "unattached", "foreign_capture")


def quantile(values: list, share: float):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def tail(values: list) -> tuple:
    """The 99th percentile, and whether the maximum stands in for it."""
    if len(values) < ENOUGH_FOR_P99:
        return max(values, default=None), True
    return quantile(values, 0.99), False


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


def counters(client: dict) -> dict:
    """Of all launch entries of a client of `sluice status --json` together."""
    sums = {name: sum(entry.get(name, 0) for entry in client["coverage"]) for name in _COUNTS}
    for name in _BYPASSES:
        sums[name] = sum(entry["bypassed"].get(name, 0) for entry in client["coverage"])
    sums |= {name: client.get(name, 0) for name in ("launches", "max_hold_opened",
                                                    "unknown_launches")}
    return sums


def rounded(value, digits: int):
    return "" if value is None else round(value, digits)


def critical_figures(done: dict) -> dict:
    """done: the answer `done` of the critical program."""
    latency = done["latency_ms"]
    window_ms = (done["end_ns"] - done["begin_ns"]) / 1e6
    p99, is_max = tail(latency)
    return {
        "n": len(latency), "window_s": round(window_ms / 1e3, 3),
        "p50_ms": rounded(quantile(latency, 0.5), 4), "p99_ms": rounded(p99, 4),
        "p99_is_max": int(is_max), "max_ms": rounded(max(latency, default=None), 4),
        "mean_ms": rounded(sum(latency) / len(latency) if latency else None, 4),
        "late_p99_ms": rounded(quantile(done["late_ms"], 0.99), 4), "dropped": done["dropped"],
        "active_share": rounded(done["active_ms"] / window_ms, 5),
    }


def best_effort_figures(ends_ns: list, begin_ns: int, end_ns: int, before, after) -> dict:
    """before, after: (monotonic seconds, counters(), client) at both ends of the window, or None."""
    seconds = (end_ns - begin_ns) / 1e9
    figures = {"be_jobs_per_s": round(jobs_between(ends_ns, begin_ns, end_ns) / seconds, 5)}
    if before is None or after is None:
        return figures
    (at, first, _), (until, last, client) = before, after
    more = {name: last[name] - first[name] for name in last}
    return figures | {
        "be_launches": more["launches"],
        "be_launches_per_s": round(more["launches"] / (until - at), 2),
        "be_gated": more["gated"], "be_captured": more["captured"], "be_waited": more["waited"],
        "be_held_ms": round(more["held_ns"] / 1e6, 3), "be_failed_open": more["failed_open"],
        "be_unattached": more["unattached"], "be_foreign_capture": more["foreign_capture"],
        "be_max_hold_opened": more["max_hold_opened"],
        "be_unknown_launches": more["unknown_launches"],
        "be_longest_us": client.get("longest_ns", 0) / 1e3,
        "be_bare_graph_us": client.get("bare_graph_ns", 0) / 1e3,
    }
