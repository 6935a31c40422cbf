"""A run as Chrome's trace JSON, which ui.perfetto.dev and chrome://tracing open."""

import itertools
import json
from collections.abc import Iterator

from sluice_tools.trace.reader import Run
from sluice_tools.trace.tracks import ALL, Slices, Window, client_slices


def _microseconds(ns: int) -> str:
    # Exact, and shorter than a float.
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"{ns / 1000:.3f}"


def _meta(kind: str, pid: int, tid: int, **args) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _details(slices: Slices) -> Iterator[str]:
    if not slices.details:
        return itertools.repeat("{}")
    form = "{" + ",".join(f'"{name}":%d' for name in slices.details) + "}"
    return (form % values for values in zip(*slices.details.values()))


def _events(slices: Slices, pid: int, texts: dict[str, str]) -> Iterator[str]:
    where = f'"pid":{pid},"tid":{slices.rank}'
    kind = '"ph":"s"' if slices.leaves else '"ph":"f","bp":"e"'
    for begin, end, label, arrow, details in zip(
        slices.begin.tolist(), slices.end.tolist(), slices.labels, slices.arrow, _details(slices)
    ):
        at = _microseconds(begin)
        text = texts.get(label) or texts.setdefault(label, json.dumps(label))
        yield (f'{{"ph":"X","name":{text},{where},"ts":{at},"dur":{_microseconds(end - begin)},"args":{details}}}')
        if arrow:
            yield f'{{{kind},"cat":"launch","name":"launch","id":{arrow},{where},"ts":{at}}}'


def events(run: Run, window: Window) -> Iterator[str]:
    for index, client in enumerate(run.clients, 1):
        yield _meta("process_name", client.pid, 0, name=client.label)
        yield _meta("process_labels", client.pid, 0, labels=f"priority {client.priority}, {client.policy}")
        # Higher priority above.
        yield _meta("process_sort_index", client.pid, 0, sort_index=-client.priority)
        told: set[int] = set()
        texts: dict[str, str] = {}
        for slices in client_slices(run, client, index, window):
            if slices.rank not in told:
                told.add(slices.rank)
                yield _meta("thread_name", client.pid, slices.rank, name=slices.track)
                yield _meta("thread_sort_index", client.pid, slices.rank, sort_index=slices.rank)
            yield from _events(slices, client.pid, texts)


def write(run: Run, file, about: dict, window: Window = ALL) -> int:
    """To a file opened for text. `about` says what the times are. Returns the number of slices."""
    slices = 0
    file.write('{"displayTimeUnit":"ns","otherData":' + json.dumps(about) + ',"traceEvents":[\n')
    for index, event in enumerate(events(run, window)):
        file.write((",\n" if index else "") + event)
        slices += event.startswith('{"ph":"X"')
    file.write("\n]}\n")
    return slices
