"""What rows say together: each cell against both clients alone, over the repeats."""

import math
import statistics
from dataclasses import dataclass, field

from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number

ALONE, BEST_EFFORT_ALONE = "alone", "best effort alone"
# Above this share of time with an active critical job, the ideal says nothing.
_MOST_ACTIVE = 0.9
_LATENCIES = ("p50", "p99", "mean", "max")


@dataclass
class Entry:
    """One cell of a subject. Every figure is a list with a value per repeat, empty if not measured.

    ms: latency of the critical client by figure (p50, p99, mean, max). x: the same, times alone.
    speed: best-effort jobs (or launches) per second. share: speed against best effort alone.
    of_ideal: share against the part of time in which no critical job was active.
    counted: what `jobs` and the latency are of (ends.chosen). jobs: infinite where nobody says how many.
    wait_ms, wait_share: time in calls that wait for the GPU, for each job; the same as parts of the latency alone.
    in_time, limit_ms: of a cell in which the critical client had a target, the share of its jobs that kept it.
    """

    subject: str
    mode: str
    cell: str
    repeats: int = 0
    jobs: list = field(default_factory=list)
    best_effort_jobs: list = field(default_factory=list)
    ms: dict = field(default_factory=lambda: {name: [] for name in _LATENCIES})
    x: dict = field(default_factory=lambda: {name: [] for name in _LATENCIES})
    speed: list = field(default_factory=list)
    share: list = field(default_factory=list)
    of_ideal: list = field(default_factory=list)
    wait_ms: list = field(default_factory=list)
    wait_share: list = field(default_factory=list)
    in_time: list = field(default_factory=list)
    limit_ms: list = field(default_factory=list)
    dropped: int = 0
    notes: list = field(default_factory=list)
    counted: str = "jobs"

    @property
    def together(self) -> bool:
        return self.cell not in (ALONE, BEST_EFFORT_ALONE)

    def in_all(self, figure: str, relative: bool = False) -> list:
        """ms or x of a figure; empty if a repeat lacks it: the repeat with too few jobs may be the slow one."""
        values = (self.x if relative else self.ms)[figure]
        return values if len(values) == len(self.jobs) else []

    @property
    def fewest_jobs(self) -> int:
        return min(self.jobs, default=0)

    @property
    def known_jobs(self) -> list:
        return [jobs for jobs in self.jobs if jobs < math.inf]


@dataclass(frozen=True)
class Height:
    """Where a chart has the latencies of a condition: both times the p50 alone, so that one axis holds them. last: the
    p99, or the slowest job where fewer than 100 were measured."""

    p50: float
    last: float


def heights(block: list[Entry]) -> dict[str, Height]:
    """By cell; empty if the critical client was not measured alone. block: the entries of one subject and mode."""
    alone = next((entry for entry in block if entry.cell == ALONE and entry.ms["p50"]), None)
    if alone is None:
        return {}
    unit = statistics.median(alone.ms["p50"])
    return {
        entry.cell: Height(
            statistics.median(entry.ms["p50"]) / unit,
            statistics.median(entry.in_all("p99") or entry.ms["max"] or entry.ms["p50"]) / unit,
        )
        for entry in block
        if entry.ms["p50"]
    }


def middle(values: list) -> float | None:
    return statistics.median(values) if values else None


def summarize(rows: list, counted: str = "jobs") -> list[Entry]:
    """One entry per subject, mode and cell, in the order in which they were first measured. rows, counted: as
    ends.chosen() gives them."""
    found: dict[tuple, Entry] = {}
    repeats: dict[tuple, set] = {}
    for row in rows:
        key = (row["subject"], row["mode"], row["cell"])
        entry = found.setdefault(key, Entry(*key, counted=counted))
        repeats.setdefault(key, set()).add(row["repeat"])
        entry.repeats = len(repeats[key])
        if row["role"] == CRITICAL:
            _add_critical(entry, row, rows)
        elif row["role"] == BEST_EFFORT:
            _add_best_effort(entry, row, rows)
        if row["note"] and row["note"] not in entry.notes:
            entry.notes.append(row["note"])
    return list(found.values())


def how_many(row: dict) -> float:
    """Ended jobs, or what counts instead; infinite where nobody says how many."""
    jobs = number(row, "jobs")
    if jobs is None:
        return math.inf if row.get("latency_of") == "requests" else 0
    return int(jobs)


def wait_of(row: dict) -> float | None:
    """ms in calls that wait for the GPU, for each job; None where nobody counts it, or the jobs."""
    waits_ms, jobs = number(row, "waits_ms"), how_many(row)
    return waits_ms / jobs if waits_ms is not None and 0 < jobs < math.inf else None


def usual_alone_ms(row: dict, rows: list) -> float | None:
    """The p50 alone, median over the repeats: that of one repeat has the noise of the host."""
    same = [
        other
        for other in rows
        if other["cell"] == ALONE and all(other.get(name) == row.get(name) for name in ("subject", "mode", "role"))
    ]
    return middle([value for other in same if (value := number(other, "p50_ms")) is not None])


def _add_critical(entry: Entry, row: dict, rows: list) -> None:
    entry.jobs.append(how_many(row))
    entry.dropped += int(number(row, "dropped") or 0)
    if judged := number(row, "target_jobs"):
        entry.in_time.append((number(row, "target_kept") or 0) / judged)
    if limit := number(row, "limit_ms"):
        entry.limit_ms.append(limit)
    if (wait_ms := wait_of(row)) is not None:
        entry.wait_ms.append(wait_ms)
        if alone := usual_alone_ms(row, rows):
            entry.wait_share.append(wait_ms / alone)
    for name in _LATENCIES:
        ms = number(row, f"{name}_ms")
        if ms is None:
            continue
        entry.ms[name].append(ms)
        alone = _reference(row, rows, ALONE, lambda other, name=name: number(other, f"{name}_ms"))
        if alone:
            entry.x[name].append(ms / alone)


def _add_best_effort(entry: Entry, row: dict, rows: list) -> None:
    jobs, speed = number(row, "jobs"), number(row, "per_s")
    if jobs is not None:
        entry.best_effort_jobs.append(int(jobs))
    if speed is None:
        return
    entry.speed.append(speed)
    alone = _reference(row, rows, BEST_EFFORT_ALONE, lambda other: number(other, "per_s"))
    if not alone:
        return
    share = speed / alone
    entry.share.append(share)
    active = _active_share(row, rows)
    if active is not None and active <= _MOST_ACTIVE:
        entry.of_ideal.append(share / (1 - active))


def _active_share(row: dict, rows: list) -> float | None:
    for other in rows:
        same = all(other[name] == row[name] for name in ("subject", "mode", "cell", "repeat"))
        if same and other["role"] == CRITICAL:
            return number(other, "active_share")
    return None


def _reference(row: dict, rows: list, cell: str, figure) -> float | None:
    """The figure of the cell `cell`: of the same repeat, else the median over the repeats."""
    same = [
        other
        for other in rows
        if other["cell"] == cell and all(other[name] == row[name] for name in ("subject", "mode", "role"))
    ]
    same = [other for other in same if other["repeat"] == row["repeat"]] or same
    return middle([value for other in same if (value := figure(other)) is not None])


def one_line(measured: list, rows: list, counted: str = "jobs") -> str:
    """For the progress: what has just been measured."""
    parts = []
    for row in measured:
        entry = Entry("", "", row["cell"])
        if row["role"] == CRITICAL:
            _add_critical(entry, row, rows)
            last = "p99" if entry.ms["p99"] else "max"
            parts.append(
                f"critical: {', '.join(f'{jobs} {counted}' for jobs in entry.known_jobs) or counted}"
                + "".join(
                    f", {name} {value[0]:.3g} ms{times(entry.x[name])}"
                    for name in ("p50", last)
                    if (value := entry.ms[name])
                )
                + (f", waits {entry.wait_ms[0]:.3g} ms" if entry.wait_ms else "")
            )
        elif row["role"] == BEST_EFFORT:
            _add_best_effort(entry, row, rows)
            if entry.share and row["cell"] != BEST_EFFORT_ALONE:
                parts.append(f"best effort: {entry.share[0]:.0%} of alone")
            elif entry.speed:
                parts.append(f"best effort: {entry.speed[0]:.3g} {row['unit']}/s")
    return "; ".join(parts)


def times(values: list) -> str:
    value = middle(values)
    return "" if value is None else f" ({value:.2f} × alone)"


def measured_on(rows: list[dict]) -> list[str]:
    """A line for each machine that rows are from, with the days."""
    machines = dict.fromkeys(
        (row["gpu"], row["driver"], row["torch"], row["sluice"], row.get("commit", "")) for row in rows
    )
    days = sorted({row["date"][:10] for row in rows})
    return [
        ", ".join(
            [
                f"{gpu}, driver {driver or '-'}, PyTorch {torch or '-'}, Sluice {sluice}",
                *([f"commit {commit}"] if commit else []),
                *days[:1],
            ]
        )
        + (f" to {days[-1]}" if len(days) > 1 else "")
        for gpu, driver, torch, sluice, commit in machines
    ]
