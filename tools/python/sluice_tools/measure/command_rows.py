"""The figures of a cell of commands: columns of its rows."""

from sluice_tools.measure.ends import JOBS, REQUESTS, step_columns
from sluice_tools.measure.rows import CRITICAL
from sluice_tools.measure.statistics import latency_figures
from sluice_tools.measure.watch import Judged, Watch


def target_figures(target: str, before: Judged, after: Judged, scale: float, waited_s: float) -> dict:
    """Of the critical row. waited_s: how long it waited in vain for Sluice to learn; 0 where it has learned."""
    figures: dict = {
        "target": target,
        "target_state": after.state,
        "limit_ms": after.limit_ns / 1e6 / scale if after.limit_ns else None,
        "target_jobs": after.jobs - before.jobs,
        "target_kept": after.kept - before.kept,
    }
    if waited_s:
        figures["note"] = (
            f"Under target {target} the critical command was still learning after {waited_s:g} s "
            "(--start-limit): fewer than 32 jobs had run, so its gates closed at once."
        )
    elif after.state == "missed":
        figures["note"] = f"Target {target} leaves no room for open gates, so they closed at once, as without it."
    return figures


def role_figures(
    role: str, watch: Watch, before: dict, seconds: float, scale: float, by_client: dict, waited_ns: int | None = None
) -> dict:
    """before: the counters at the begin of the window, which took `seconds` of real time. by_client: the latency that
    the load generator says, which counts instead of that of jobs and steps. waited_ns: in the window, in calls that
    wait for the GPU; None where nobody counts it."""
    seconds /= scale
    after = watch.counters(role)
    more = {name: after[name] - before[name] for name in before}
    row = {
        "role": role,
        "window_s": seconds,
        "launches": more["launches"],
        "waited": more["waits"],
        "held_ms": more["held_ns"] / 1e6 / scale,
    }
    if role != CRITICAL:
        # Jobs of a best-effort program are what it says they are, or nothing: launches are exact.
        return row | {"per_s": more["launches"] / seconds, "unit": "launches"}
    jobs_ms = [ms / scale for ms in watch.jobs_ms(role)]
    steps_ms = [ms / scale for ms in watch.steps_ms(role)]
    row |= latency_figures(jobs_ms) | step_columns(latency_figures(steps_ms)) | {"latency_of": JOBS}
    row |= {"per_s": len(jobs_ms) / seconds, "unit": "jobs", "active_share": sum(jobs_ms) / 1e3 / seconds}
    row["seen_share"] = watch.active_share(role)
    row["waits_ms"] = waited_ns / 1e6 / scale if waited_ns is not None else None
    if by_client:
        # A summary does not say how many requests it is of.
        row |= dict.fromkeys(("jobs", "p50_ms", "p99_ms", "mean_ms", "max_ms")) | by_client | {"latency_of": REQUESTS}
    if watch.missed:
        row["note"] = f"Jobs or steps too short to be seen one by one: {watch.missed}."
    if not jobs_ms and not steps_ms and not by_client:
        row["note"] = "No critical job or step ended within the measured time: it hangs, or starves."
    return row
