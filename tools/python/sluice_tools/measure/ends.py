"""Of what the latency of a critical command is: its jobs, its steps, or the requests of its load generator.

A job that Sluice finds ends when the GPU has nothing to do. So a server that is never idle has a job without an end,
and one that is hardly ever idle has jobs of some steps, of other numbers of steps in each cell
(docs/reference/steps.md). Cells are compared by what is the same in all of them.
"""

from sluice_tools.measure.rows import CRITICAL, number
from sluice_tools.measure.statistics import ENOUGH_TO_JUDGE

JOBS, STEPS, REQUESTS = "jobs", "steps", "requests"
_SAME = 1.2  # steps in a job, of the most to the fewest: the jobs are alike
_LATENCY = ("p50_ms", "p99_ms", "mean_ms", "max_ms")
# Columns of a critical row, next to those of its jobs: `latency_of` is REQUESTS where the load generator says the
# latency, `seen_share` the share of the window in which a job was seen to run, and `waits_ms` the time of the window in
# calls that wait for the GPU.
END_FIELDS = ("latency_of", "steps", *(f"step_{name}" for name in _LATENCY), "seen_share", "waits_ms")


def step_columns(figures: dict) -> dict:
    """figures: of statistics.latency_figures(), by the durations of steps."""
    return {"steps": figures["jobs"]} | {f"step_{name}": figures[name] for name in _LATENCY}


def chosen(rows: list[dict]) -> tuple[str, list[dict]]:
    """What the latency of these rows is of, and the rows with that in the columns of jobs. rows: of one mode."""
    critical = [row for row in rows if row["role"] == CRITICAL]
    if any(row.get("latency_of") == REQUESTS for row in critical):
        return REQUESTS, rows
    jobs, steps = ([int(number(row, name) or 0) for row in critical] for name in (JOBS, STEPS))
    fewest_jobs, fewest_steps = min(jobs, default=0), min(steps, default=0)
    enough = fewest_jobs >= ENOUGH_TO_JUDGE or fewest_steps < ENOUGH_TO_JUDGE
    if fewest_steps == 0 or (enough and fewest_jobs > 0 and _are_alike(jobs, steps)):
        return JOBS, rows
    return STEPS, [_by_steps(row) if row["role"] == CRITICAL else row for row in rows]


def _are_alike(jobs: list[int], steps: list[int]) -> bool:
    each = [ended / of for ended, of in zip(steps, jobs)]
    return max(each) <= _SAME * min(each)


def _by_steps(row: dict) -> dict:
    figures = {name: row[f"step_{name}"] for name in _LATENCY}
    return row | figures | {"jobs": row["steps"], "active_share": row["seen_share"]}
