"""What a viewer shows of a client: tracks of slices, and arrows from launches to kernels.

Times are ns since the run's first client began; on the simulated GPU in the GPU's time, as all
figures of a run.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from sluice_tools.trace.reader import Client, Run


@dataclasses.dataclass
class Track:
    """Slices by begin, of which no two overlap. `arrow`: numbers of arrows, 0 for none, that leave
    here (`leaves`) or end here. `details`: more columns to show."""

    name: str
    begin: np.ndarray
    end: np.ndarray
    label: pd.Categorical
    arrow: np.ndarray | None = None
    leaves: bool = False
    details: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def lanes(begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For slices by begin, the number of a lane in which they overlap no other: 0 where it can be.
    Kernels of one graph, or jobs of several threads, may run at the same time."""
    lane = np.zeros(len(begin), np.int64)
    if len(begin) < 2 or (begin[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return lane
    ends: list[int] = []
    for index, (first, last) in enumerate(zip(begin.tolist(), end.tolist())):
        place = next((i for i, until in enumerate(ends) if until <= first), len(ends))
        if place == len(ends):
            ends.append(last)
        else:
            ends[place] = last
        lane[index] = place
    return lane


Window = tuple[float, float]
ALL: Window = (float("-inf"), float("inf"))


class _Times:
    def __init__(self, client: Client, zero_ns: int, window: Window):
        self._zero, self._scale, self._window = zero_ns, client.time_scale, window

    def within(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows that reach into the window."""
        if self._window == ALL:
            return frame
        since, until = self._window
        chosen = (self(frame["end_ns"]) > since) & (self(frame["begin_ns"]) < until)
        return frame[chosen].reset_index(drop=True)

    def __call__(self, times: pd.Series) -> np.ndarray:
        since = times.to_numpy(np.int64) - self._zero
        return since if self._scale == 1 else np.round(since / self._scale).astype(np.int64)


def _tracks(title: str, frame: pd.DataFrame, label: pd.Categorical, times: _Times, leaves: bool = False,
            details: tuple[str, ...] = ()) -> Iterator[Track]:
    """One track, or more where slices overlap. An `arrow` column makes arrows."""
    begin, end = times(frame["begin_ns"]), times(frame["end_ns"])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum(end[order], begin[order])
    lane = lanes(begin, end)
    for number in range(lane.max() + 1 if len(lane) else 0):
        mine = lane == number
        rows = order[mine]
        yield Track(
            title if number == 0 else f"{title} ({number + 1})", begin[mine], end[mine], label[rows],
            frame["arrow"].to_numpy()[rows] if "arrow" in frame else None, leaves,
            {name: frame[name].to_numpy()[rows] for name in details})


def _same(text: str, count: int) -> pd.Categorical:
    return pd.Categorical.from_codes(np.zeros(count, np.int8), [text])


def _held(labels: dict[int, str], holds: pd.DataFrame) -> pd.Categorical:
    """gate closed by resnet50 (4711)."""
    reasons = holds["reason"].to_numpy(str)
    texts = [f"{reason}: {labels.get(pid, f'process {pid}')}" if pid else reason
             for reason, pid in zip(reasons, holds["holder_pid"].tolist())]
    return pd.Categorical(texts)


def client_tracks(run: Run, client: Client, index: int, window: Window = ALL) -> Iterator[Track]:
    """From top to bottom. `index` tells the arrows of clients apart."""
    times = _Times(client, run.begin_ns, window)
    labels = {other.pid: other.label for other in run.clients}

    jobs = times.within(client.jobs())
    texts = [f"job {number}" + ("" if finished else " (killed)")
             for number, finished in zip(jobs["job"], jobs["finished"])]
    yield from _tracks("jobs", jobs, pd.Categorical(texts), times)
    gates = times.within(client.gates())
    closers = [labels.get(pid, f"process {pid}") for pid in gates["holder_pid"]]
    yield from _tracks("gate closed", gates, pd.Categorical([f"by {c}" for c in closers]), times)
    holds = times.within(client.holds())
    for tid, rows in holds.groupby("tid").indices.items():
        mine = holds.iloc[rows]
        yield from _tracks(f"held, thread {tid}", mine, _held(labels, mine), times,
                           details=("correlation",))

    launches, execs = times.within(client.launches()), times.within(client.execs())
    # An arrow has two ends: to the first kernel of a graph, and none for a launch without a kernel.
    first = ~execs.sort_values("begin_ns", kind="stable").duplicated("correlation").sort_index()
    both = np.intersect1d(launches["correlation"], execs["correlation"])
    base = index << 40
    starts = np.isin(launches["correlation"], both)
    launches["arrow"] = np.where(starts, base + launches["correlation"], 0)
    ends = first.to_numpy(bool) & np.isin(execs["correlation"], both)
    execs["arrow"] = np.where(ends, base + execs["correlation"], 0)
    for tid, rows in launches.groupby("tid").indices.items():
        mine = launches.iloc[rows]
        yield from _tracks(f"thread {tid}: launches", mine, mine["name"].array, times, True,
                           ("correlation", "stream", "result"))
    waits = times.within(client.waits())
    for stream in sorted({*execs["stream"], *waits["stream"]}):
        mine = waits[waits["stream"] == stream]
        yield from _tracks(f"GPU stream {stream}: waits", mine, _same("wait", len(mine)), times)
        mine = execs[execs["stream"] == stream]
        yield from _tracks(f"GPU stream {stream}", mine, mine["name"].array, times, False,
                           ("correlation", "node"))
