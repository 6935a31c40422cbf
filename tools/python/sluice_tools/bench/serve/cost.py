"""The part `cost`: what the server itself takes, next to tritonserver with the same model and the same client."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.bench.serve import cost_report, counters, empty, peers, store
from sluice_tools.bench.serve.cost_clients import Requests, closed_loop, perf_analyzer, perf_analyzer_command
from sluice_tools.bench.serve.lines import Lines, machine_of, measure
from sluice_tools.bench.serve.server import serving
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.rows import Cell
from sluice_tools.measure.sitting import Group

FILE = "cost.jsonl"
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64)
_ANALYZED = (1, 8, 64)  # by perf_analyzer too; with the empty server
_TINY = (1, 4)
_SHARE = 0.5  # of --seconds: there are many cells, with thousands of requests each
_ITEMS = 8  # the most of an execution, for both servers
_WARM_UP_S = 1.0
_NAME = "resnet50"
_TINY_NAME = "resnet18"


@dataclass(frozen=True)
class _Subject:
    """What is asked of the servers; it has another name and other tensors on each."""

    name: str
    model: str  # in the store, or dummy
    values: int | None  # in an input, if the model takes any number
    sent: int  # values in an input
    answered: int  # values in an output

    def requests(self, peer: peers.PeerModel | None) -> Requests:
        if peer:
            return Requests(peer.name, peer.input[0], self.values)
        return Requests(self.model, "input0", self.values)


_DUMMIES = (
    _Subject("echo, 1 KB", "dummy", 256, 256, 256),
    _Subject("echo, 600 KB", "dummy", 150_000, 150_000, 150_000),
)


def _models(setting: Setting) -> tuple[tuple[_Subject, ...], ...]:
    """What is asked of each model, model by model."""
    name = _TINY_NAME if setting.tiny else _NAME
    return _DUMMIES, (_Subject(f"{name}, batch 1", name, None, 3 * _side(setting) ** 2, 1000),)


def _side(setting: Setting) -> int:
    """Of an image."""
    return store.SIDE if setting.tiny else 224


def run(setting: Setting) -> int:
    found = peers.find(setting.triton)
    analyzer = perf_analyzer_command()
    if not found:
        print(f"sluice bench: {peers.WITHOUT}", file=sys.stderr, flush=True)
    if not analyzer:
        print("sluice bench: no perf_analyzer here, so hybrid_workload is the only client", file=sys.stderr, flush=True)
    groups = [
        _group(setting, found if peer else None, subjects, repeat, analyzer)
        for repeat in range(1, setting.repeats + 1)
        for subjects in _models(setting)
        for peer in ((False, True) if found else (False,))
    ]
    groups[:0] = [
        _empty_group(setting, subject, repeat)
        for repeat in range(1, setting.repeats + 1)
        for subjects in _models(setting)
        for subject in subjects
    ]
    return measure(setting, Lines(setting.out / FILE), groups, machine_of(setting), cost_report.one_line)


def tables(folder: Path) -> list[str]:
    return cost_report.tables(Lines(folder / FILE))


def _group(
    setting: Setting, found: peers.Installation | None, subjects: tuple, repeat: int, analyzer: list[str]
) -> Group:
    """All cells of one server with one model."""
    seconds = _seconds(setting)
    server_name = cost_report.TRITON if found else cost_report.SLUICE
    planned = {
        Cell(subject.name, server_name, cost_report.cell_name(client, concurrency), repeat, seconds + 0.5): (
            subject,
            client,
            concurrency,
        )
        for subject in subjects
        for client, many in _clients(setting, analyzer).items()
        for concurrency in many
    }

    @contextlib.contextmanager
    def opened() -> Iterator[Callable[[Cell], list[dict]]]:
        model = subjects[0].model
        if model != "dummy":
            store.export(setting, [model])
        with _serving(setting, found, model) as (server, peer):
            for subject in subjects:
                closed_loop(setting, server, subject.requests(peer), _ITEMS, _WARM_UP_S)

            def measured(cell: Cell) -> list[dict]:
                subject, client, concurrency = planned[cell]
                requests = subject.requests(peer)
                before = counters.read(server, requests.model)
                if client == cost_report.ANALYZER:
                    figures = perf_analyzer(analyzer, server, requests, concurrency, seconds)
                else:
                    http = client == cost_report.OVER_HTTP
                    figures = closed_loop(setting, server, requests, concurrency, seconds, http)
                server.check()
                counted = counters.read(server, requests.model).since(before)
                how = {"client": client, "concurrency": concurrency, "echo": requests.values is not None}
                return [figures | counted | how | {"backend": peer.backend if peer else ""}]

            yield measured

    return Group(list(planned), opened)


def _empty_group(setting: Setting, subject: _Subject, repeat: int) -> Group:
    """The same requests, answered by a server that does nothing."""
    seconds = _seconds(setting)
    planned = {
        Cell(subject.name, cost_report.EMPTY, cost_report.cell_name(client, concurrency), repeat, seconds + 0.5): (
            client,
            concurrency,
        )
        for client in cost_report.OWN_CLIENTS
        for concurrency in (_TINY if setting.tiny else _ANALYZED)
    }
    requests = Requests("empty", "input0", subject.sent)

    @contextlib.contextmanager
    def opened() -> Iterator[Callable[[Cell], list[dict]]]:
        with empty.running(setting, 4 * subject.answered) as server:

            def measured(cell: Cell) -> list[dict]:
                client, concurrency = planned[cell]
                http = client == cost_report.OVER_HTTP
                figures = closed_loop(setting, server, requests, concurrency, seconds, http)
                how = {"client": client, "concurrency": concurrency, "echo": subject.values is not None}
                return [figures | how | {"backend": ""}]

            yield measured

    return Group(list(planned), opened)


def _seconds(setting: Setting) -> float:
    return min(setting.seconds, 1.0) if setting.tiny else _SHARE * setting.seconds


def _clients(setting: Setting, analyzer: list[str]) -> dict[str, tuple]:
    own: dict[str, tuple] = dict.fromkeys(cost_report.OWN_CLIENTS, _TINY if setting.tiny else CONCURRENCY)
    if not analyzer:
        return own
    return own | {cost_report.ANALYZER: _TINY[:1] if setting.tiny else _ANALYZED}


@contextlib.contextmanager
def _serving(setting: Setting, found: peers.Installation | None, model: str) -> Iterator[tuple]:
    """A server with one model, and how the model is called there if it is tritonserver."""
    if found:
        peer = _peer_model(setting, found, model)
        device = None if setting.tiny else setting.device
        with peers.running(found, setting.out / "servers" / f"triton-{model}", [peer], device) as triton:
            yield triton, peer
        return
    place = {"device": "cpu"} if setting.tiny and model != "dummy" else {}
    config = {model: {"path": model, "batch-size": _ITEMS, "max-queue": 1024} | place}
    with serving(setting, f"cost-{model}", config, records=False) as server:
        yield server, None


def _peer_model(setting: Setting, found: peers.Installation, model: str) -> peers.PeerModel:
    if model == "dummy":
        backend = "identity" if found.has_identity else "echo"
        return peers.PeerModel("echo", backend, _ITEMS, ("INPUT0", (-1,)), ("OUTPUT0", (-1,)))
    side = _side(setting)
    parameters = (("file", str(setting.store / model / "model.pt")), ("device", "cpu" if setting.tiny else "cuda"))
    return peers.PeerModel(
        model,
        "torch_script",
        _ITEMS,
        ("INPUT__0", (3, side, side)),
        ("OUTPUT__0", (1000,)),
        parameters,
        gpu=not setting.tiny,
    )
