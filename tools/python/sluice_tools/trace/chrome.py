"""A run as Chrome's trace JSON, which ui.perfetto.dev and chrome://tracing open."""

import json
from collections.abc import Iterator

import numpy as np

from sluice_tools.trace.reader import Run
from sluice_tools.trace.tracks import ALL, Track, Window, client_tracks


def _microseconds(ns: int) -> str:
    # Exact, and shorter than a float.
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"{ns / 1000:.3f}"


def _meta(kind: str, pid: int, tid: int, **args) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})


def _details(track: Track) -> list[str]:
    if not track.details:
        return ["{}"] * len(track.begin)
    form = "{" + ",".join(f'"{name}":%d' for name in track.details) + "}"
    return [form % values for values in zip(*(v.tolist() for v in track.details.values()))]


def _slices(track: Track, pid: int, tid: int) -> Iterator[str]:
    names = [json.dumps(name) for name in track.label.categories]
    where = f'"pid":{pid},"tid":{tid}'
    arrow = track.arrow if track.arrow is not None else np.zeros(len(track.begin), np.int64)
    kind = '"ph":"s"' if track.leaves else '"ph":"f","bp":"e"'
    for begin, end, code, number, details in zip(
            track.begin.tolist(), track.end.tolist(), track.label.codes.tolist(), arrow.tolist(),
            _details(track)):
        at = _microseconds(begin)
        yield (f'{{"ph":"X","name":{names[code]},{where},"ts":{at},'
               f'"dur":{_microseconds(end - begin)},"args":{details}}}')
        if number:
            yield f'{{{kind},"cat":"launch","name":"launch","id":{number},{where},"ts":{at}}}'


def events(run: Run, window: Window) -> Iterator[str]:
    for index, client in enumerate(run.clients, 1):
        yield _meta("process_name", client.pid, 0, name=client.label)
        yield _meta("process_labels", client.pid, 0,
                    labels=f"priority {client.priority}, {client.policy}")
        # Higher priority above.
        yield _meta("process_sort_index", client.pid, 0, sort_index=-client.priority)
        for tid, track in enumerate(client_tracks(run, client, index, window), 1):
            yield _meta("thread_name", client.pid, tid, name=track.name)
            yield _meta("thread_sort_index", client.pid, tid, sort_index=tid)
            yield from _slices(track, client.pid, tid)


def write(run: Run, file, about: dict, window: Window = ALL) -> None:
    """To a file opened for text. `about` says what the times are."""
    file.write('{"displayTimeUnit":"ns","otherData":' + json.dumps(about) + ',"traceEvents":[\n')
    for index, event in enumerate(events(run, window)):
        file.write((",\n" if index else "") + event)
    file.write("\n]}\n")
