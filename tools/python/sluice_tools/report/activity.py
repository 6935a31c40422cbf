"""What a traced run recorded, per client: the only place that knows the reader."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sluice_tools.common.errors import CommandError
from sluice_tools.common.progress import counted
from sluice_tools.report import thin
from sluice_tools.report.runs import Model, is_traced
from sluice_tools.report.stored import Spans, Stored
from sluice_tools.trace import format as fmt
from sluice_tools.trace.depth import Depth

if TYPE_CHECKING:
    from sluice_tools.trace.client import Client as Traced


@dataclass
class Client:
    label: str
    pid: int
    priority: int
    policy: str
    launches: Stored  # from the begin of the call to done; extra: returned (end of the call), name
    execs: Stored  # extra: stream, name, issued (begin of its launch)
    holds: Stored  # extra: why (1 gate, 2 event group, 3 sync point), holder (pid or 0)
    jobs: Spans  # extra: finished, closed (when the gates below closed; the end if never)
    closed: Spans  # while its gate was closed
    clock: object = None  # trace.clock.Clock
    scale: float = 1.0  # real time per time of the GPU
    simulated: bool = False

    @property
    def has_execs(self) -> bool:
        return len(self.execs) > 0


def outstanding(client: Client, since_ns: int = 0) -> Depth:
    """How many launches are not done; only those that begin from `since_ns` on."""
    found = Depth()
    for rows in counted(f"counting {client.label}", len(client.launches), client.launches.chunks()):
        rows = rows[rows["begin"] >= since_ns]
        found.add(rows["begin"], rows["end"])
    return found


def depth_curve(intervals: Depth, limit: int = thin.DEPTH_POINTS) -> tuple[list, list]:
    """Times and how many intervals hold each: a step curve, the largest of each stretch kept."""
    if len(intervals) <= limit:
        parts = [(times, level) for times, level, _ in intervals.steps()]
        at, highest = (np.concatenate(column) for column in zip(*parts))
        return at.tolist(), highest.tolist()
    edges = np.linspace(intervals.first, intervals.last, limit + 1)[:-1]
    at, highest = np.full((2, limit), np.iinfo(np.int64).min)
    for times, level, _ in intervals.steps():
        stretch = np.maximum(np.searchsorted(edges, times, "right") - 1, 0)
        np.maximum.at(highest, stretch, level)
        begun, first = np.unique(stretch, return_index=True)
        at[begun] = np.where(at[begun] < 0, times[first], at[begun])
    return at[at >= 0].tolist(), highest[at >= 0].tolist()


def overlap(left: Spans, right: Spans) -> Spans:
    """The time in both; within neither of them do intervals overlap."""
    first = np.searchsorted(left.end, right.begin, side="right")
    count = np.maximum(np.searchsorted(left.begin, right.end) - first, 0)
    of_right = np.repeat(np.arange(len(right)), count)
    of_left = np.arange(len(of_right)) + np.repeat(first - np.cumsum(count) + count, count)
    found = Spans(
        np.maximum(left.begin[of_left], right.begin[of_right]), np.minimum(left.end[of_left], right.end[of_right])
    )
    return found.chosen(found.begin < found.end)


def gate_waits(client: Client) -> Spans:
    """Each wait for a closed gate: of a thread on the host; under `device`, which holds the streams
    and not the thread, work outstanding while the gate was closed."""
    if client.policy.startswith("device"):
        parts = [overlap(client.closed, Spans(*busy)) for busy in outstanding(client).busy()]
    else:
        parts = [rows[rows["why"] == 1] for rows in client.holds.chunks()]
        parts = [Spans(rows["begin"], rows["end"]) for rows in parts]
    nothing = Spans()
    return Spans(
        np.concatenate([nothing.begin, *(part.begin for part in parts)]),
        np.concatenate([nothing.end, *(part.end for part in parts)]),
    )


def _told_of_steps(label: str, one: "Traced") -> str:
    """Of a program that is never idle: what its steps took, by kind, the most frequent kinds first."""
    steps = one.steps()
    took = (steps["end_ns"] - steps["begin_ns"]) / one.time_scale / 1e6
    kinds = took.groupby(steps["kind"]).agg(["size", "median", lambda times: times.quantile(0.99)])
    kinds = kinds.sort_values("size", ascending=False)
    parts = [
        f"{count / len(steps):.0%} take {median:.3g} ms (p99 {p99:.3g} ms)"
        for count, median, p99 in kinds.head(4).itertuples(index=False)
    ]
    return f"{label} was not idle between its {len(steps)} steps: {', '.join(parts)}."


def read(folder: Path, models: list, notes: list) -> list:
    """The clients of a run; none where it was not traced. Says in `notes` what a trace lacks."""
    if not is_traced(folder):
        return []
    from sluice_tools.trace.reader import read_run

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
        if len(one.steps()):
            notes.append(_told_of_steps(label, one))
        if one.lost:
            notes.append(f"The trace of {label} lacks {one.lost} records, because there was no room for them.")
        if not clients[-1].has_execs:
            notes.append(
                f"The trace of {label} has no times of execution on the GPU" + (f": {one.note}." if one.note else ".")
            )
        if model is None and models:
            notes.append(f"pid {one.pid} ({one.command}) was traced and is not a model of this run.")
    hidden = {model.log for model in models} - {client.label for client in clients}
    for log in sorted(hidden) if clients else ():
        notes.append(
            f"{log} wrote no trace because it ran without Sluice: while its kernels had the GPU, the "
            "GPU counts as idle here."
        )
    return clients


def _client(one: "Traced", label: str, model) -> Client:
    jobs, closed = one.jobs(), one.gates()
    client = Client(
        label,
        one.pid,
        model.priority if model else one.priority,
        model.policy if model and model.policy != "no hook" else one.policy,
        Stored("returned", "name", names=one.names),
        Stored("stream", "name", "issued", names=one.names),
        Stored("why", "holder"),
        Spans(*_times(jobs), {"finished": jobs["finished"].to_numpy(), "closed": jobs["closed_ns"].to_numpy(np.int64)}),
        Spans(*_times(closed)),
        one.clock,
        one.time_scale,
        one.simulated,
    )
    (graph,) = one.names.add(["(graph)"])
    for rows in one.by_launch():
        _add_work(client, rows, graph)
    for holds in one.iter_holds():
        client.holds.add(*_times(holds), why=holds["flags"], holder=holds["holder_pid"])
    return client


def _times(frame) -> tuple[np.ndarray, np.ndarray]:
    return frame["begin_ns"].to_numpy(np.int64), frame["end_ns"].to_numpy(np.int64)


def _add_work(client: Client, rows: np.ndarray, graph: int) -> None:
    from sluice_tools.trace.client import launch_places

    places = launch_places(rows)
    is_launch = rows["kind"] == fmt.LAUNCH
    launches = rows[is_launch]
    # When the last of its kernels ended; the end of the call where none is known.
    done = rows["end_ns"].copy()
    np.maximum.at(done, places[places >= 0], rows["end_ns"][places >= 0])
    client.launches.add(
        launches["begin_ns"],
        done[is_launch],
        returned=launches["end_ns"],
        name=np.where(launches["a"] == 1, graph, launches["name"]),
    )
    execs = rows[~is_launch]
    issued = np.where(places >= 0, rows["begin_ns"][places], rows["begin_ns"])[~is_launch]
    client.execs.add(execs["begin_ns"], execs["end_ns"], stream=execs["stream"], name=execs["name"], issued=issued)


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
        model.start_ns, model.end_ns = one.clock.to_real(begin).tolist(), one.clock.to_real(end).tolist()
        model.jct_ms = ((end - begin) / 1e6 / run.scale).tolist()
        run.models.append(model)
