"""What the rows of `sluice bench programs` say together: each condition against the programs alone."""

from dataclasses import dataclass, field
from statistics import fmean

from sluice_tools.bench.programs.figures import MIDDLE
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry

_LATENCIES = ("p50", "p90", "p99", "mean", "max")
Key = tuple[str, str]  # of a round: which loading of the programs, and its number


@dataclass
class Round:
    """One window. ms, x: latency of the critical program by figure, and times the same process alone in this round.
    wait: its time in calls that wait for the GPU, for each request, as a part of the p50 alone; None where nobody
    counts it. wait_more: what that is above the same process alone in this round. below: p50 of programs between it and
    best effort. shares: of best-effort programs, of the speed alone."""

    jobs: int = 0
    wait: float | None = None
    wait_more: float | None = None
    ms: dict[str, float] = field(default_factory=dict)
    x: dict[str, float] = field(default_factory=dict)
    below: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)


@dataclass
class Result(Entry):
    """One condition of a mix. As in Entry, lists have a value per round; `share` is the sum over all best-effort
    programs. shares: the mean of each."""

    by_round: dict[Key, Round] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)

    @property
    def together(self) -> bool:
        return not self.cell.startswith(ALONE) and self.cell != BEST_EFFORT_ALONE

    @property
    def shares(self) -> dict[str, float]:
        names = dict.fromkeys(name for one in self.by_round.values() for name in one.shares)
        return {name: fmean(one.shares[name] for one in self.by_round.values() if name in one.shares) for name in names}


def summarize(rows: list[dict]) -> list[Result]:
    """One result per mix, mode and condition, in the order in which they were first measured."""
    cells: dict[tuple, list] = {}
    for row in rows:
        cells.setdefault((row["subject"], row["mode"], row["cell"]), []).append(row)
    return [_result(key, own, cells) for key, own in cells.items()]


def _result(key: tuple, rows: list[dict], cells: dict) -> Result:
    subject, mode, cell = key
    result = Result(subject, mode, cell, rows=rows)
    result.ms["p90"], result.x["p90"] = [], []
    alone = cells.get((subject, mode, f"{ALONE}, {cell}")) or cells.get((subject, mode, ALONE), [])
    speeds = cells.get((subject, mode, BEST_EFFORT_ALONE), [])
    for row in rows:
        one = result.by_round.setdefault((row["loaded"], row["repeat"]), Round())
        if row["role"] == CRITICAL:
            _add_critical(result, one, row, alone)
        elif row["role"] == MIDDLE and (p50 := number(row, "p50_ms")) is not None:
            one.below[row["client"]] = p50
        elif row["role"] == BEST_EFFORT and result.together:
            _add_speed(one, row, speeds)
    result.repeats = len(result.by_round)
    best_effort = {row["client"] for row in rows if row["role"] == BEST_EFFORT}
    # No sum where a program has no speed alone: it would be that of fewer programs.
    result.share = [sum(one.shares.values()) for one in result.by_round.values() if set(one.shares) == best_effort]
    result.share = result.share if best_effort else []
    return result


def _add_critical(result: Result, one: Round, row: dict, alone: list[dict]) -> None:
    one.jobs = int(number(row, "jobs") or 0)
    result.jobs.append(one.jobs)
    result.dropped += int(number(row, "dropped") or 0)
    same = [other for other in alone if (other["loaded"], other["repeat"]) == (row["loaded"], row["repeat"])]
    _add_waits(result, one, row, alone, same)
    for name in _LATENCIES:
        if (ms := number(row, f"{name}_ms")) is None:
            continue
        one.ms[name] = ms
        result.ms[name].append(ms)
        if base := _mean_of(same, f"{name}_ms"):
            one.x[name] = ms / base
            result.x[name].append(ms / base)


def _add_waits(result: Result, one: Round, row: dict, alone: list[dict], same: list[dict]) -> None:
    """Against the mean p50 alone of this process: that of one window has the noise of the host, and waits have not.
    same: those rows alone that are of this round."""
    if (wait_ms := number(row, "wait_ms")) is None:
        return
    result.wait_ms.append(wait_ms)
    if base := _mean_of([other for other in alone if other["loaded"] == row["loaded"]], "p50_ms"):
        one.wait = wait_ms / base
        result.wait_share.append(one.wait)
        if (own := _mean_of(same, "wait_ms")) is not None:
            one.wait_more = (wait_ms - own) / base


def _add_speed(one: Round, row: dict, alone: list[dict]) -> None:
    """Against the mean speed alone of these processes: that of one window has more noise than its drift."""
    base = _mean_of([o for o in alone if (o["client"], o["loaded"]) == (row["client"], row["loaded"])], "per_s")
    if base and (speed := number(row, "per_s")) is not None:
        one.shares[row["client"]] = speed / base


def _mean_of(rows: list[dict], name: str) -> float | None:
    found = [value for row in rows if (value := number(row, name)) is not None]
    return fmean(found) if found else None


def outputs_of(row: dict) -> dict[str, str]:
    """The digests of the row, by index of the input."""
    return dict(part.split(":", 1) for part in row["outputs"].split())


def cells_with_other_outputs(results: list[Result]) -> list[str] | None:
    """Of one mix and mode: the cells whose critical outputs are not those of the first. None if there are none."""
    first: dict[str, str] = {}
    other = []
    for result in results:
        for row in result.rows:
            if row["role"] != CRITICAL or not row["outputs"]:
                continue
            made = outputs_of(row)
            if any(first.setdefault(index, digest) != digest or "/" in digest for index, digest in made.items()):
                other.append(result.cell)
    return list(dict.fromkeys(other)) if first else None
