"""What the rows of `sluice bench programs` say together: each cell against the programs alone."""

from dataclasses import dataclass, field

from sluice_tools.bench.programs.figures import MIDDLE
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, number
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, middle

_LATENCIES = ("p50", "p90", "p99", "mean", "max")
_WORK = ("p50", "p90", "p99")


@dataclass
class Result(Entry):
    """One cell. Also as in Entry, lists have a value per repeat; `share` is the sum over all best-effort programs.

    work: time of the critical program's requests without their time in its queue, ms, by figure. shares: by
    best-effort program. below: p50 in ms of each program between the critical one and best effort.
    """

    work: dict[str, list] = field(default_factory=lambda: {name: [] for name in _WORK})
    shares: dict[str, list] = field(default_factory=dict)
    below: dict[str, list] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)

    @property
    def together(self) -> bool:
        return self.cell not in (ALONE, BEST_EFFORT_ALONE)


def summarize(rows: list[dict]) -> list[Result]:
    """One result per mix, mode and cell, in the order in which they were first measured."""
    cells: dict[tuple, list] = {}
    for row in rows:
        cells.setdefault((row["subject"], row["mode"], row["cell"]), []).append(row)
    return [_result(key, own, cells) for key, own in cells.items()]


def _result(key: tuple, rows: list[dict], cells: dict) -> Result:
    subject, mode, cell = key
    result = Result(subject, mode, cell, rows=rows)
    result.ms["p90"], result.x["p90"] = [], []
    repeats = sorted({row["repeat"] for row in rows})
    result.repeats = len(repeats)
    for repeat in repeats:
        own = [row for row in rows if row["repeat"] == repeat]
        for row in own:
            if row["role"] == CRITICAL:
                _add_critical(result, row, cells.get((subject, mode, ALONE), []))
            elif row["role"] == MIDDLE:
                result.below.setdefault(row["client"], []).append(number(row, "p50_ms"))
        stepping = [row for row in own if row["role"] == BEST_EFFORT]
        if result.together and stepping:
            _add_speed(result, stepping, cells.get((subject, mode, BEST_EFFORT_ALONE), []))
    return result


def _add_critical(result: Result, row: dict, alone: list[dict]) -> None:
    result.jobs.append(int(number(row, "jobs") or 0))
    result.dropped += int(number(row, "dropped") or 0)
    for name in _LATENCIES:
        if (ms := number(row, f"{name}_ms")) is None:
            continue
        result.ms[name].append(ms)
        if base := _middle_of(alone, f"{name}_ms"):
            result.x[name].append(ms / base)
    for name in _WORK:
        if (ms := number(row, f"work_{name}_ms")) is not None:
            result.work[name].append(ms)


def _add_speed(result: Result, rows: list[dict], alone: list[dict]) -> None:
    """Adds no sum where a program has no speed alone: the sum would be that of fewer programs."""
    shares = {}
    for row in rows:
        base = _middle_of([other for other in alone if other["client"] == row["client"]], "per_s")
        if base and (speed := number(row, "per_s")) is not None:
            shares[row["client"]] = speed / base
            result.shares.setdefault(row["client"], []).append(speed / base)
    if len(shares) == len(rows):
        result.share.append(sum(shares.values()))


def _middle_of(rows: list[dict], name: str) -> float | None:
    """The median over rows of serving programs, or of one program that makes steps."""
    return middle([value for row in rows if (value := number(row, name)) is not None])


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
