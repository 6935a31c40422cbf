"""Everything around the job that is explained."""

from collections import Counter
from collections.abc import Iterable

from sluice_tools.measure.plot import GREY, RED, Axis, Bar, Chart, Series, in_row
from sluice_tools.report import thin
from sluice_tools.report.texts import milliseconds, short_name

_STREAMS = 3  # rows of kernels for each client; the streams with the least work share the last one
_HOLDS = {1: "held: gate closed", 2: "held: event group", 3: "held: sync point"}
_AROUND = 0.12  # of the job's length, on either side


class _Rows:
    """Horizontal bars in rows, the top row first."""

    def __init__(self, zero: int, window: tuple, scale: float):
        self.zero, self.window, self.scale = zero, window, scale
        self.names: list[str] = []
        self.series: list[Series] = []

    def add(self, row: str, pieces: Iterable, colour: str, opacity: float = 1.0) -> None:
        """pieces: lists of (begin, end, text), each sorted by begin."""
        bars = [bar for piece in pieces for bar in self._bars(piece, len(self.names), opacity)]
        if bars:
            self.names.append(row)
            self.series.append(Series(row, [], colour, bars=bars))

    def _bars(self, piece: list, row: int, opacity: float) -> Iterable[Bar]:
        first_ns, last_ns = self.window
        groups = thin.joined([(begin, end) for begin, end, _ in piece], last_ns - first_ns)
        for number, (first, last) in enumerate(groups):
            begin, end = piece[first][0], max(one[1] for one in piece[first : last + 1])
            ends = (self.ms(max(begin, first_ns)), self.ms(min(end, last_ns)))
            text = f"{piece[first][2]}, {milliseconds((end - begin) / self.scale)} from {self.ms(begin):.4f} ms"
            if first < last:
                text = f"{last - first + 1} short ones together, the first: {text}"
            # Of neighbours that touch, each second one is paler.
            yield Bar(ends, in_row(row), text, opacity * (1 - 0.3 * (number % 2)))

    def ms(self, ns: int) -> float:
        return (ns - self.zero) / 1e6 / self.scale


def timeline(run, answer, colour: dict) -> list[Chart]:
    if answer.model is None:
        return []
    begin, end = answer.begin_ns, answer.end_ns
    margin = int(_AROUND * max(end - begin, 1)) or 1
    window = (begin - margin, end + margin)
    rows = _Rows(begin, window, run.scale)
    if answer.client is not None:
        for client in sorted(run.trace, key=lambda one: (one is not answer.client, -one.priority)):
            _traced(rows, client, colour.get(client.label, GREY))
    else:
        for model in sorted(run.models, key=lambda m: m is not answer.model):
            jobs = sorted(
                (start, stop, f"job {number} of {model.log}")
                for number, (start, stop) in enumerate(zip(model.start_ns, model.end_ns), 1)
                if stop > window[0] and start < window[1]
            )
            rows.add(f"{model.log}: jobs", [jobs], colour[model.log], 0.75)
    moments = [(begin, "job begins"), (end, "job ends")]
    if answer.closed_ns is not None and begin < answer.closed_ns < end:
        moments.insert(1, (answer.closed_ns, "gates close"))
    caption = (
        "Between the dotted lines: the job. Pale bars are jobs, red ones closed gates and holds, grey ones "
        "launch calls of the driver."
    )
    if answer.client is None:
        caption = "Jobs only, by the stamps of the job logs; the rest takes a trace (--trace)."
    x = Axis(f"ms since the job's begin{run.of_kind()}", rows.ms(window[0]), rows.ms(window[1]))
    title = f"Around job {answer.job} of {answer.model.log}"
    upright = [(rows.ms(at), text) for at, text in moments]
    return [Chart(x, Axis.of_rows(rows.names), rows.series, caption, title, upright=upright)]


def _traced(rows: _Rows, client, colour: str) -> None:
    label, window = client.label, rows.window
    rows.add(f"{label}: jobs", [_texts(client.jobs.within(*window), f"job of {label}")], colour, 0.35)
    rows.add(f"{label}: gate", [_texts(client.closed.within(*window), "gate closed")], RED, 0.55)
    held = (
        _listed(spans.begin, spans.end, (_HOLDS.get(why, "held") for why in spans["why"].tolist()))
        for spans in client.holds.pieces(*window)
    )
    rows.add(f"{label}: thread held", held, RED)
    calls = (
        [one for one in _named(spans, "returned", " (launch call)") if one[1] > window[0]]
        for spans in client.launches.pieces(*window)
    )
    rows.add(f"{label}: launch calls", calls, GREY)
    counts: Counter = Counter()
    for spans in client.execs.pieces(*window):
        counts.update(spans["stream"].tolist())
    streams = sorted(counts, key=lambda stream: (-counts[stream], stream))
    for place, stream in enumerate(streams[:_STREAMS]):
        last = place == _STREAMS - 1 and len(streams) > _STREAMS
        shown = set(streams[place:] if last else [stream])
        which = f"{len(shown)} more streams" if last else f"stream {stream}"
        pieces = (
            [one for one, of in zip(_named(spans), spans["stream"].tolist()) if of in shown]
            for spans in client.execs.pieces(*window)
        )
        rows.add(f"{label}: GPU" + (f", {which}" if len(streams) > 1 else ""), pieces, colour)


def _listed(begin, end, texts: Iterable[str]) -> list[tuple]:
    return list(zip(begin.tolist(), end.tolist(), texts))


def _texts(spans, text: str) -> list[tuple]:
    return _listed(spans.begin, spans.end, [text] * len(spans))


def _named(spans, end: str = "", more: str = "") -> list[tuple]:
    """end: the column that has it, if it is another than that of the intervals."""
    names = (short_name(str(name), 80) + more for name in spans["name"].tolist())
    return _listed(spans.begin, spans[end] if end else spans.end, names)
