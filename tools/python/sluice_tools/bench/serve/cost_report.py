"""What the part `cost` says: a table for each model and client, and what became of the goals."""

from collections.abc import Iterator
from statistics import median

from sluice_tools.bench.serve.lines import Lines, failures
from sluice_tools.measure import table
from sluice_tools.measure.summary import measured_on

SLUICE, TRITON, EMPTY = "sluice serve", "tritonserver", "empty server"
WORKLOAD, OVER_HTTP, ANALYZER = "hybrid_workload", "hybrid_workload over HTTP", "perf_analyzer"
OWN_CLIENTS = (WORKLOAD, OVER_HTTP)
MOST_ADDED_MS = 0.15
_BACKENDS = {
    "identity": "C++ identity backend",
    "echo": "Python backend",
    "torch_script": "Python backend with PyTorch, the same TorchScript file, a CUDA graph for each batch size",
}
_HEAD = ("outstanding", "server", "p50 ms", "p99 ms", "requests/s", "CPU s per 1000", "batch", "compute ms",
         "receive ms", "added ms", "own ms")  # fmt: skip
_LEGEND = (
    "Closed loop on the same machine; both servers join up to 8 requests. CPU: processor time of all "
    "processes of the server. Means by the servers' own counters: batch, items of an execution; compute, with the "
    "copies of inputs and outputs; receive, from the headers until the request is complete, parsed and checked (only "
    "sluice serve counts it). added: mean latency of the client minus compute. own: minus that of the empty server "
    "too, which only reads the same request and answers as many bytes. The answer of echo is as large as its request."
)


def cell_name(client: str, concurrency: int) -> str:
    return f"{client}, {concurrency} outstanding"


class _Cell:
    """One server, model, client and number of outstanding requests, with all repeats."""

    def __init__(self, rows: list[dict]):
        self.rows = rows
        self.floor: float | None = None  # mean latency of the empty server
        self.server = rows[0]["mode"]
        self.concurrency = rows[0]["concurrency"]
        self.echo = rows[0]["echo"]

    def values(self, name: str) -> list[float]:
        """One of each repeat that has the figure."""
        return [row[name] for row in self.rows if row.get(name) is not None]

    def middle(self, name: str) -> float | None:
        values = self.values(name)
        return median(values) if values else None

    @property
    def added(self) -> list[float]:
        """The mean latency minus the mean time in the model. Medians would not add up."""
        rows = [row for row in self.rows if None not in (row.get("mean_ms"), row.get("compute_ms"))]
        return [row["mean_ms"] - row["compute_ms"] for row in rows]

    @property
    def own(self) -> list[float]:
        """What the server adds to the time of the client and of the way."""
        return [] if self.floor is None else [ms - self.floor for ms in self.added]


def _cells(rows: list[dict]) -> dict[tuple, list[_Cell]]:
    """By (subject, client); ours first where the number of requests is the same."""
    found: dict[tuple, list[dict]] = {}
    for row in rows:
        key = (row["subject"], row["client"], row["concurrency"], row["mode"])
        found.setdefault(key, []).append(row)
    cells: dict[tuple, list[_Cell]] = {}
    for key in found:
        cells.setdefault(key[:2], []).append(_Cell(found[key]))
    for several in cells.values():
        floors = {cell.concurrency: cell.middle("mean_ms") for cell in several if cell.server == EMPTY}
        for cell in several:
            cell.floor = floors.get(cell.concurrency)
        several.sort(key=lambda cell: (cell.concurrency, cell.server != SLUICE))
    return cells


def _ms(values: list[float]) -> str:
    return table.spread(values, lambda value: f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}")


def _line(cell: _Cell) -> tuple[str, ...]:
    return (
        str(cell.concurrency),
        cell.server,
        _ms(cell.values("p50_ms")),
        _ms(cell.values("p99_ms")),
        table.spread(cell.values("per_s"), lambda value: f"{value:.0f}"),
        table.spread(cell.values("processor_s_per_1000"), lambda value: f"{value:.3f}"),
        table.spread(cell.values("batch"), lambda value: f"{value:.1f}"),
        _ms(cell.values("compute_ms")),
        _ms(cell.values("receive_ms")),
        _ms(cell.added),
        _ms(cell.own),
    )


def one_line(rows: list[dict], _all: list[dict]) -> str:
    """Of a cell that has just been measured."""
    cell = _Cell(rows)
    cpu = table.spread(cell.values("processor_s_per_1000"), lambda value: f"{value:.3f} CPU s per 1000")
    return f"p50 {_ms(cell.values('p50_ms'))} ms, {cell.middle('per_s'):.0f} requests/s, {cpu}"


def tables(lines: Lines) -> list[str]:
    """Markdown, a paragraph each. Empty if nothing was measured."""
    if not (rows := lines.rows):
        return failures(lines)
    found = ["## Cost of the server", _LEGEND, *measured_on(rows)]
    for (subject, client), cells in _cells(rows).items():
        backends = {_BACKENDS[row["backend"]] for cell in cells for row in cell.rows if row["backend"]}
        title = f"### {subject}, {client}"
        notes = [f"{TRITON}: {', '.join(sorted(backends))}."] if backends else []
        text = table.as_markdown(_HEAD, [_line(cell) for cell in cells])
        found += [title, *notes, text]
    return [*found, *goals(rows), *failures(lines)]


def goals(rows: list[dict]) -> list[str]:
    """A sentence for each goal that the measured cells can judge."""
    cells = _cells(rows).items()
    return [
        f"{subject}, {client}: {sentence}."
        for judge in (_added_goal, _speed_goal)
        for (subject, client), several in cells
        for sentence in judge(several)
    ]


def _added_goal(cells: list[_Cell]) -> Iterator[str]:
    """Of a model whose answer is small: the goal is for a request of 600 KB."""
    for cell in cells:
        if cell.server == SLUICE and cell.concurrency == 1 and not cell.echo and cell.own:
            ms = median(cell.own)
            says = "holds" if ms <= MOST_ADDED_MS else "is missed"
            yield f"{ms:.3f} ms beyond computing and the empty server; the goal of {MOST_ADDED_MS} {says}"


def _speed_goal(cells: list[_Cell]) -> Iterator[str]:
    """Of every number of outstanding requests that both servers were measured with."""
    speeds = {(cell.server, cell.concurrency): cell.middle("per_s") for cell in cells}
    ratios = {
        concurrency: ours / theirs
        for (server, concurrency), ours in speeds.items()
        if server == SLUICE and ours and (theirs := speeds.get((TRITON, concurrency)))
    }
    if ratios:
        fewer = [f"{concurrency} outstanding: {ratio:.2f}" for concurrency, ratio in ratios.items() if ratio < 1]
        says = f"is missed ({', '.join(fewer)})" if fewer else "holds"
        least, most = min(ratios.values()), max(ratios.values())
        yield f"{least:.2f} to {most:.2f} times tritonserver's requests/s; the goal of 1 {says}"
