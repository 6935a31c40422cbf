"""What the part `order` says: tables of its lines, and what limited a cell."""

from dataclasses import dataclass, field
from statistics import fmean, median, pstdev

from sluice_tools.bench.serve import plan
from sluice_tools.bench.serve.lines import Lines, failures
from sluice_tools.measure import table
from sluice_tools.measure.statistics import ENOUGH_FOR_P99, percentile
from sluice_tools.measure.summary import measured_on

_LATE = (2, 4)  # multiples of the limit
# With a load above 1, a device that works less than this part of what it can was not what limited the answers.
_IDLE = 0.92
_LATE_CLIENT = 0.1  # of the gap: a client that sends later than this was not on time
_HEAD = ("scheduler", "ratio avg", "max", "std", *(f">{times}x %" for times in _LATE), "p99 ms", "answers/s", "busy %")
_LEGEND = (
    "A ratio is the latency of a request divided by the time of its whole model alone, at least 1; latency is from the "
    "complete request to its answer, in the server. >2x, >4x: share of the requests with a latency above 2 and 4 times "
    "that time. Load: time of the device that the requests need, if all models run whole, divided by the time. busy: "
    "share of the time in which a model ran."
)


@dataclass
class Summary:
    """One scheduler at one load, with all repeats."""

    load: str
    law: str
    scheduler: str
    rows: list[dict] = field(default_factory=list)  # one for each model and repeat

    @property
    def ratios(self) -> list[float]:
        return [max(1.0, ms / row["limit_ms"]) for row in self.rows for ms in row["latency_ms"]]

    def late(self, times: float) -> float:
        """Share of the requests that were sent. One without an answer is late."""
        late = sum(ms > times * row["limit_ms"] for row in self.rows for ms in row["latency_ms"])
        sent = sum(row["sent"] for row in self.rows)
        return (late + self.lost) / sent if sent else 0.0

    @property
    def lost(self) -> int:
        return sum(row["lost"] for row in self.rows)

    @property
    def answers_per_s(self) -> float:
        runs = [row for row in self.rows if row["model"] == self.rows[0]["model"]]
        return sum(len(row["latency_ms"]) for row in self.rows) / sum(row["seconds"] for row in runs)

    def of_repeats(self, name: str) -> float:
        return fmean(row[name] for row in self.rows)

    def pooled(self, name: str, model: str = "") -> list[float]:
        return [ms for row in self.rows if model in ("", row["model"]) for ms in row[name]]


def summarize(rows: list[dict]) -> list[Summary]:
    """In the order of the loads, then of the schedulers."""
    found: dict[tuple, Summary] = {}
    for row in rows:
        if row["subject"].startswith("load "):
            key = (row["mode"], float(row["subject"].split()[1]), plan.SCHEDULERS.index(row["cell"]))
            found.setdefault(key, Summary(row["subject"], row["mode"], row["cell"])).rows.append(row)
    return [found[key] for key in sorted(found)]


def _p99(values: list[float]) -> str:
    if not values:
        return "-"
    few = len(values) < ENOUGH_FOR_P99
    return f"{max(values):.1f} max" if few else f"{percentile(values, 0.99):.1f}"


def _line(one: Summary) -> tuple[str, ...]:
    ratios = one.ratios
    if not ratios:
        return (one.scheduler, *["-"] * (len(_HEAD) - 1))
    return (
        one.scheduler,
        f"{fmean(ratios):.2f}",
        f"{max(ratios):.1f}",
        f"{pstdev(ratios):.2f}",
        *(f"{100 * one.late(times):.1f}" for times in _LATE),
        _p99(one.pooled("latency_ms")),
        f"{one.answers_per_s:.0f}",
        f"{100 * one.of_repeats('busy'):.0f}",
    )


def _by_model(found: list[Summary]) -> str:
    """p99 of each model, and what the client saw."""
    models = list(dict.fromkeys(row["model"] for one in found for row in one.rows))
    head = ("p99 ms, server (client)", *(f"{model}" for model in models))
    lines = []
    for one in found:
        texts = []
        for model in models:
            seen = [row["client_p99_ms"] for row in one.rows if row["model"] == model and row["client_p99_ms"]]
            texts.append(_p99(one.pooled("latency_ms", model)) + (f" ({median(seen):.1f})" if seen else ""))
        lines.append((one.scheduler, *texts))
    return table.as_markdown(head, lines)


def limits(one: Summary) -> list[str]:
    """What else than the device limited the answers of a cell; empty if nothing did."""
    found = []
    lag_ms, gap_ms = max(row["send_lag_p99_ms"] for row in one.rows), one.rows[0]["gap_ms"]
    if lag_ms > _LATE_CLIENT * gap_ms:
        found.append(f"the clients sent late (p99 {lag_ms:.1f} ms, gap {gap_ms:.1f} ms)")
    load, busy = float(one.load.split()[1]), one.of_repeats("busy")
    if load > 1 and busy < _IDLE:
        found.append(f"a model ran in only {100 * busy:.0f} % of the time, so the front end was the limit")
    if one.lost:
        found.append(f"{one.lost} requests had no answer")
    return [f"{one.load}, {one.scheduler}: {text}." for text in found]


def _front_end(found: list[Summary]) -> str:
    receive = [ms for one in found for ms in one.pooled("receive_ms")]
    cores = max(one.of_repeats("processor_s") / one.of_repeats("seconds") for one in found)
    return (
        f"From the headers of a request to the complete request: p50 {percentile(receive, 0.5):.2f} ms, p99 "
        f"{percentile(receive, 0.99):.2f} ms (not in the ratios). The server used at most {cores:.1f} processor cores."
    )


def _alone(rows: list[dict]) -> list[str]:
    whole = [row for row in rows if row["subject"] == "alone" and row["blocks"] == 1]
    head = ("model", "alone ms", "one client ms", "receive ms", "server CPU ms")
    names = ("execute_ms", "service_ms", "receive_ms", "processor_ms")
    lines = [(row["model"], *(f"{row[name]:.2f}" for name in names)) for row in whole]
    return ["### Models alone", table.as_markdown(head, lines), _ALONE_LEGEND] if lines else []


_ALONE_LEGEND = (
    "alone: median time of the model on an idle device, from the input in host memory; the limit of the ratios, and "
    "what loads are made of. one client: time between two answers of one client of which a request always waits."
)


def _splitting(rows: list[dict]) -> list[str]:
    """The cost of blocks: the whole model against its blocks, alone."""
    whole = {row["model"]: row["execute_ms"] for row in rows if row["subject"] == "alone" and row["blocks"] == 1}
    lines = []
    for row in rows:
        if row["subject"] == "alone" and row["blocks"] > 1 and row["model"] in whole:
            uncut, one_by_one = whole[row["model"]], row["execute_ms"]
            steps = " + ".join(f"{ms:.2f}" for ms in row["steps_ms"])
            cost = 100 * (one_by_one / uncut - 1)
            searched = 100 * (sum(row["searched_ms"]) / row["searched_whole_ms"] - 1)
            together = f"{row['together_ms']:.2f}"
            figures = (steps, f"{one_by_one:.2f}", f"{cost:+.1f}", f"{searched:+.1f}", together)
            lines.append((row["model"], f"{uncut:.2f}", *figures))
    head = ("model", "whole ms", "blocks ms", "sum ms", "cost %", "by split %", "as one step ms")
    return ["### Cost of splitting", table.as_markdown(head, lines)] if lines else []


def tables(lines: Lines) -> list[str]:
    """Markdown."""
    if not (rows := lines.rows):
        return failures(lines)
    parts = ["## Order of requests", *measured_on(rows), *_alone(rows), *_splitting(rows)]
    found = summarize(rows)
    if found:
        parts += [_LEGEND, _front_end(found)]
    for law, load in dict.fromkeys((one.law, one.load) for one in found):
        own = [one for one in found if (one.law, one.load) == (law, load)]
        gap = own[0].rows[0]["gap_ms"]
        parts += [f"### {load.capitalize()} ({law}, a request of each model every {gap:.1f} ms)"]
        parts += [table.as_markdown(_HEAD, [_line(one) for one in own]), _by_model(own)]
    if said := [text for one in found for text in limits(one)]:
        parts.append("\n".join(f"- {text}" for text in said))
    return [*parts, *failures(lines)]


def one_line(measured: list[dict], _rows: list[dict]) -> str:
    """What has just been measured: the rows of one cell."""
    if measured[0]["subject"] == "alone":
        return ", ".join(f"{row['model']} {row['execute_ms']:.2f} ms" for row in measured)
    one = Summary(measured[0]["subject"], measured[0]["mode"], measured[0]["cell"], measured)
    line = dict(zip(_HEAD, _line(one)))
    text = f"ratio {line['ratio avg']}, max {line['max']}, >4x {line['>4x %']} %, busy {line['busy %']} %"
    return "; ".join([text, *limits(one)])
