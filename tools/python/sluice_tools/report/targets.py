"""What a page says about targets: how many jobs kept one, and what it gave to best effort."""

from dataclasses import dataclass

from sluice_tools.report.texts import milliseconds, percent

STATES = {"learning": "learning", "kept": "can be kept", "missed": "cannot be kept"}


@dataclass(frozen=True)
class Target:
    """Of a model, from results.json. Times in ms of the GPU's time; None if unknown."""

    text: str
    state: str | None = None  # as in `sluice status --json`
    limit_ms: float | None = None
    alone_ms: float | None = None
    open_share: float | None = None  # of the time of the jobs, in which the gates below were open

    @classmethod
    def read(cls, entry: dict | None) -> "Target | None":
        """The target object of a model in results.json."""
        if not entry:
            return None
        return cls(entry["target"], *(entry.get(key) for key in ("state", "limit_ms", "alone_ms", "open_share")))

    @property
    def name(self) -> str:
        """With the limit, also where it is a multiple."""
        known = self.limit_ms is not None and self.text.endswith("x")
        return f"{self.text} ({_ms(self.limit_ms)})" if known else self.text


def in_time_share(model) -> float | None:
    """Of all jobs of the log, also those of the time of learning; None if unknown."""
    if model.target is None or model.target.limit_ms is None or not model.jobs:
        return None
    return sum(ms <= model.target.limit_ms for ms in model.jct_ms) / model.jobs


def open_gates(place: tuple, target: Target | None, scale: float) -> list:
    """Of a traced job that began with open gates: until when, and whether it kept its limit. place: its begin
    and end, and when the gates closed."""
    begin, end, closed = place
    if closed <= begin:
        return []
    after = milliseconds((closed - begin) / scale)
    because = f"because of its target {target.name}" if target else "because of its target"
    text = f"The gates were open until {after} after its begin, {because}"
    if closed >= end:
        text = f"The gates were open until it ended, {because}"
    if target is None or target.limit_ms is None:
        return [text + "."]
    beyond = (end - begin) / scale - target.limit_ms * 1e6
    return [text + (f"; it was {milliseconds(beyond)} late." if beyond > 0 else "; it was in time.")]


def sentences(rows: list) -> list:
    """rows: those of the summary of one run. A sentence per model with a target."""
    return [_sentence(row, rows) for row in rows if row["target"]]


def _sentence(row: dict, rows: list) -> str:
    target = row["target"]
    text = f"{row['model']} has the target {target.name}"
    if row["in_time"] is not None:
        text += f": {percent(row['in_time'])} of its {row['jobs']} jobs were in time"
    if target.state == "learning":
        text += "; Sluice was still learning how long its jobs take alone, so the gates closed at once"
    elif target.open_share is not None:
        text += f"; the gates were open for {100 * target.open_share:.0f} % of their time"
    if target.state == "missed":
        alone = f" (its jobs take {_ms(target.alone_ms)} alone)" if target.alone_ms is not None else ""
        text += f"; it cannot be kept{alone}, so the gates close at once, as without one"
    below = [_best_effort(other) for other in rows if other["priority"] < row["priority"] and other["throughput_per_s"]]
    return ". ".join([text, *(["Next to it, " + " and ".join(below)] if below else [])]) + "."


def _best_effort(row: dict) -> str:
    text = f"{row['model']} did {row['throughput_per_s']:.3g} jobs/s"
    return text + (f" ({100 * row['kept']:.0f} % of alone)" if row["kept"] is not None else "")


def _ms(value) -> str:
    return milliseconds(value * 1e6)
