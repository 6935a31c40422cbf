"""What a traced run recorded, as plain arrays per client: the only place that knows the reader."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sluice_tools.errors import CommandError
from sluice_tools.report.runs import Model
from sluice_tools.trace.reader import read_run

_NONE = np.zeros(0, dtype=np.int64)


@dataclass
class Spans:
    """Intervals in real CLOCK_MONOTONIC ns, sorted by begin."""

    begin: np.ndarray = field(default_factory=lambda: _NONE)
    end: np.ndarray = field(default_factory=lambda: _NONE)
    extra: dict = field(default_factory=dict)  # further columns by name, of the same length

    def __post_init__(self):
        order = np.argsort(self.begin, kind="stable")
        self.begin, self.end = np.asarray(self.begin)[order], np.asarray(self.end)[order]
        self.extra = {name: np.asarray(column)[order] for name, column in self.extra.items()}

    def __len__(self) -> int:
        return len(self.begin)

    def within(self, begin: int, end: int) -> "Spans":
        """Those that overlap the window, whole."""
        chosen = (self.end > begin) & (self.begin < end)
        return Spans(
            self.begin[chosen],
            self.end[chosen],
            {name: column[chosen] for name, column in self.extra.items()},
        )

    def __getitem__(self, name: str) -> np.ndarray:
        return self.extra[name]


@dataclass
class Client:
    label: str
    pid: int
    priority: int
    policy: str
    launches: Spans  # extra: correlation, done (end of its last kernel), name
    execs: Spans  # extra: correlation, name, stream, issued (begin of its launch)
    holds: Spans  # extra: why (1 gate, 2 event group, 3 sync point), holder (pid or 0)
    jobs: Spans
    closed: Spans  # while its gate was closed
    has_execs: bool
    clock: object = None  # trace.clock.Clock
    scale: float = 1.0  # real time per time of the GPU
    simulated: bool = False

    def outstanding(self) -> Spans:
        return Spans(self.launches.begin, self.launches["done"])


def union(spans: Spans) -> Spans:
    """The same time without overlaps."""
    if not len(spans):
        return Spans()
    reach = np.maximum.accumulate(spans.end)
    first = np.concatenate(([True], spans.begin[1:] > reach[:-1]))
    last = np.concatenate((np.flatnonzero(first)[1:] - 1, [len(spans) - 1]))
    return Spans(spans.begin[first], reach[last])


def overlap(left: Spans, right: Spans) -> Spans:
    """The time in both of two unions."""
    begins, ends = [], []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left.begin[i], right.begin[j]), min(left.end[i], right.end[j])
        if begin < end:
            begins.append(begin)
            ends.append(end)
        if left.end[i] < right.end[j]:
            i += 1
        else:
            j += 1
    return Spans(np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64))


def gate_waits(client: Client) -> Spans:
    """Each wait for a closed gate: of a thread on the host; under `device`, which holds the streams
    and not the thread, work outstanding while the gate was closed."""
    if client.policy.startswith("device"):
        return overlap(client.closed, union(client.outstanding()))
    chosen = client.holds["why"] == 1 if len(client.holds) else slice(0)
    return Spans(client.holds.begin[chosen], client.holds.end[chosen])


def read(folder: Path, models: list, notes: list) -> list:
    """The clients of a run; none where it was not traced. Says in `notes` what a trace lacks."""
    if not (folder / "trace").is_dir() and not any(folder.glob("*.sltrace")):
        return []
    clients = []
    try:
        traced = read_run(folder).clients
    except CommandError as error:
        notes.append(f"The trace could not be read: {error}.")
        return []
    for one in traced:
        model = next((m for m in models if m.pid == one.pid), None)
        label = model.log if model else one.label
        clients.append(_client(one, label, model))
        if one.lost:
            notes.append(f"The trace of {label} lacks {one.lost} records, for which there was no room.")
        if not clients[-1].has_execs:
            notes.append(
                f"The trace of {label} has no times of execution on the GPU"
                + (f": {one.note}." if one.note else ".")
            )
        if model is None and models:
            notes.append(f"pid {one.pid} ({one.command}) was traced and is no model of this run.")
    return clients


def _columns(frame, *names: str) -> dict:
    return {name: frame[name].to_numpy().astype(np.int64) for name in names}


def _client(one, label: str, model) -> Client:
    launches, execs, holds, jobs = one.launches(), one.execs(), one.holds(), one.jobs()
    issued = _columns(launches, "begin_ns", "end_ns", "correlation")
    ran = _columns(execs, "begin_ns", "end_ns", "correlation", "stream")
    held = _columns(holds, "begin_ns", "end_ns", "flags", "holder_pid")
    job, shut = (_columns(frame, "begin_ns", "end_ns") for frame in (jobs, one.gates()))
    done, begun = _tie(issued, ran)
    names = [np.asarray(frame["name"], dtype=object) for frame in (launches, execs)]
    return Client(
        label,
        one.pid,
        model.priority if model else one.priority,
        model.policy if model and model.policy != "no hook" else one.policy,
        Spans(
            issued["begin_ns"],
            issued["end_ns"],
            {"correlation": issued["correlation"], "done": done, "name": names[0]},
        ),
        Spans(
            ran["begin_ns"],
            ran["end_ns"],
            {
                "correlation": ran["correlation"],
                "stream": ran["stream"],
                "name": names[1],
                "issued": begun,
            },
        ),
        Spans(held["begin_ns"], held["end_ns"], {"why": held["flags"], "holder": held["holder_pid"]}),
        Spans(job["begin_ns"], job["end_ns"], {"finished": jobs["finished"].to_numpy()}),
        Spans(shut["begin_ns"], shut["end_ns"]),
        len(execs) > 0,
        one.clock,
        one.time_scale,
        one.simulated,
    )


def _tie(issued: dict, ran: dict):
    """When each launch was done (its last kernel's end; the end of the call where none is known), and
    when the launch of each kernel began."""
    done = issued["end_ns"].copy()
    begun = ran["begin_ns"].copy()
    if not len(done) or not len(begun):
        return done, begun
    order = np.argsort(issued["correlation"], kind="stable")
    keys = issued["correlation"][order]
    at = np.minimum(np.searchsorted(keys, ran["correlation"]), len(keys) - 1)
    known = keys[at] == ran["correlation"]
    launch = order[at[known]]
    np.maximum.at(done, launch, ran["end_ns"][known])
    begun[known] = issued["begin_ns"][launch]
    return done, begun


def fill(run) -> None:
    """A run of which there is a trace only, as of `sluice exec --trace`: its models are its clients."""
    if any(client.simulated for client in run.trace):
        run.kind = "simulated"
        run.scale = next(client.scale for client in run.trace if client.simulated)
    run.notes.append("There is a trace only: jobs and their JCTs are those that Sluice saw in it.")
    for one in sorted(run.trace, key=lambda client: -client.priority):
        ended = one.jobs["finished"]
        begin, end = one.jobs.begin[ended], one.jobs.end[ended]
        model = Model(one.label, one.label, one.pid, one.priority, one.policy)
        model.start_ns, model.end_ns = one.clock.to_real(begin), one.clock.to_real(end)
        model.jct_ms = (end - begin) / 1e6 / run.scale
        run.models.append(model)
