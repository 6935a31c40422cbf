"""What is said on standard error while `sluice bench programs` measures."""

import sys

from sluice_tools.bench.programs.results import Result, summarize
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, times


def say(text: str) -> None:
    print(f"sluice bench: {text}", file=sys.stderr, flush=True)


def one_line(measured: list, rows: list) -> str:
    """What has just been measured: rows of one cell."""
    key = [measured[0][name] for name in ("subject", "mode", "cell", "repeat")]
    same = [row for row in rows if [row["subject"], row["mode"]] == key[:2]]
    latest = [row for row in same if row["cell"].startswith(ALONE) or row["cell"] in (BEST_EFFORT_ALONE, key[2])]
    latest = [row for row in latest if row["cell"] != key[2] or row["repeat"] == key[3]]
    result = next(result for result in summarize(latest) if result.cell == key[2])
    return _of(result, measured)


def _of(result: Result, measured: list) -> str:
    parts = []
    if result.jobs:
        tail = "p99" if result.ms["p99"] else "p90"
        parts.append(
            f"critical: {result.jobs[0]} requests"
            + "".join(
                f", {name} {value[0]:.3g} ms{times(result.x[name]) if result.together else ''}"
                for name in ("p50", tail)
                if (value := result.ms[name])
            )
            + (f", waits {result.wait_ms[0]:.3g} ms" if result.wait_ms else "")
            + (f", {result.dropped} dropped" if result.dropped else "")
        )
    if result.share:
        parts.append(f"best effort: {result.share[0]:.0%} of alone")
    if result.cell == BEST_EFFORT_ALONE:
        parts += [f"{row['client']}: {float(row['per_s']):.3g} {row['unit']}/s" for row in measured]
    return "; ".join(parts)
