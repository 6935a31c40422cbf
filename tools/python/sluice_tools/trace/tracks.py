"""What a viewer shows of a client: tracks of slices, and arrows from launches to kernels.

Times are ns since the run's first client began; on the simulated GPU in the GPU's time, as all
figures of a run.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from sluice_tools.common.progress import counted
from sluice_tools.trace import format as fmt
from sluice_tools.trace.client import Client
from sluice_tools.trace.lanes import Lanes
from sluice_tools.trace.reader import Run
from sluice_tools.trace.spill import Sorter, columns

_DETAILS = ("one", "two", "three")
_SLICE = np.dtype(
    [
        ("begin", "<i8"),
        ("end", "<i8"),
        ("arrow", "<i8"),
        ("track", "<i4"),
        ("label", "<i4"),
        *((name, "<i8") for name in _DETAILS),
    ]
)
_MOST_LANES = 10_000  # of a track, in the order of tracks


@dataclasses.dataclass
class Slices:
    """Some slices of a track by begin, none of which overlap each other or earlier ones."""

    track: str
    rank: int  # of the track among all of its client
    leaves: bool  # arrows leave here, and do not end
    begin: np.ndarray
    end: np.ndarray
    labels: list[str]
    arrow: list[int]  # its number, 0: none
    details: dict[str, list[int]]


@dataclasses.dataclass
class _Track:
    number: int
    title: str
    details: tuple[str, ...]
    leaves: bool
    lanes: Lanes = dataclasses.field(default_factory=Lanes)


Window = tuple[float, float]
ALL: Window = (float("-inf"), float("inf"))


class _Tracks:
    """Of a client: takes slices in any order, and gives them by begin."""

    def __init__(self, client: Client, zero_ns: int, window: Window):
        self._zero, self._scale, self._window = zero_ns, client.time_scale, window
        self._slices = Sorter(_SLICE, "begin")
        self._tracks: dict[tuple, _Track] = {}
        self._labels: dict[str, int] = {}

    def _shown(self, times) -> np.ndarray:
        since = np.asarray(times, np.int64) - self._zero
        return since if self._scale == 1 else np.round(since / self._scale).astype(np.int64)

    def within(self, rows):
        """The rows that reach into the window."""
        if self._window == ALL:
            return rows
        since, until = self._window
        return rows[(self._shown(rows["end_ns"]) > since) & (self._shown(rows["begin_ns"]) < until)]

    def add(
        self,
        key: tuple,
        title: str,
        rows,
        labels: pd.Categorical,
        arrow: np.ndarray | int = 0,
        leaves: bool = False,
        **details,
    ) -> None:
        """`key`: of its track, by which tracks are ordered."""
        track = self._tracks.setdefault(key, _Track(len(self._tracks), title, tuple(details), leaves))
        numbers = [self._labels.setdefault(str(text), len(self._labels)) for text in labels.categories]
        begin = self._shown(rows["begin_ns"])
        self._slices.add(
            columns(
                _SLICE,
                len(rows),
                begin=begin,
                end=np.maximum(self._shown(rows["end_ns"]), begin),
                arrow=arrow,
                track=track.number,
                label=np.array(numbers, np.int64)[labels.codes],
                **dict(zip(_DETAILS, details.values())),
            )
        )

    def slices(self, name: str) -> Iterator[Slices]:
        ranks = {self._tracks[key].number: rank for rank, key in enumerate(sorted(self._tracks))}
        tracks, labels = list(self._tracks.values()), np.array(list(self._labels), object)
        for rows in counted(f"writing {name}", len(self._slices), self._slices.chunks()):
            for number in np.unique(rows["track"]):
                mine, track = rows[rows["track"] == number], tracks[number]
                lane = track.lanes.place(mine["begin"], mine["end"])
                for place in range(lane.max() + 1):
                    if (chosen := lane == place).any():
                        yield self._of(track, ranks[number], place, mine[chosen], labels)

    @staticmethod
    def _of(track: _Track, rank: int, place: int, rows: np.ndarray, labels: np.ndarray) -> Slices:
        return Slices(
            f"{track.title} ({place + 1})" if place else track.title,
            1 + rank * _MOST_LANES + place,
            track.leaves,
            rows["begin"],
            rows["end"],
            labels[rows["label"]].tolist(),
            rows["arrow"].tolist(),
            {name: rows[column].tolist() for name, column in zip(track.details, _DETAILS)},
        )


def client_slices(run: Run, client: Client, index: int, window: Window = ALL) -> Iterator[Slices]:
    """`index` tells the arrows of clients apart."""
    tracks = _Tracks(client, run.begin_ns, window)
    labels = {other.pid: other.label for other in run.clients}

    def label(pid: int) -> str:
        return labels.get(pid, f"process {pid}")

    jobs = tracks.within(client.jobs())
    tracks.add(
        (0,),
        "jobs",
        jobs,
        pd.Categorical(
            [
                f"job {number}" + ("" if finished else " (killed)")
                for number, finished in zip(jobs["job"], jobs["finished"])
            ]
        ),
    )
    if len(steps := tracks.within(client.steps())):
        tracks.add((0, 1), "steps", steps, pd.Categorical([f"step of kind {kind}" for kind in steps["kind"]]))
    gates = tracks.within(client.gates())
    tracks.add((1,), "gate closed", gates, pd.Categorical([f"by {label(pid)}" for pid in gates["holder_pid"]]))
    for holds in map(tracks.within, client.iter_holds()):
        # gate: resnet50 (4711)
        told = pd.Categorical(
            [f"{reason}: {label(pid)}" if pid else reason for reason, pid in zip(holds["reason"], holds["holder_pid"])]
        )
        for tid, rows in holds.groupby("tid").indices.items():
            tracks.add(
                (2, tid),
                f"held, thread {tid}",
                holds.iloc[rows],
                told[rows],
                correlation=holds["correlation"].iloc[rows],
            )
    _add_work(tracks, client, index << 40)
    waits = tracks.within(client.waits())
    for stream, rows in waits.groupby("stream").indices.items():
        tracks.add(
            (4, stream, 0), f"GPU stream {stream}: waits", waits.iloc[rows], pd.Categorical(["wait"] * len(rows))
        )
    return tracks.slices(client.label)


def _add_work(tracks: _Tracks, client: Client, base: int) -> None:
    """Launches and executions."""
    for rows in map(tracks.within, client.by_launch()):
        arrow = _arrows(rows, base)
        names = client.names.categorical(
            rows["name"], np.where((rows["kind"] == fmt.LAUNCH) & (rows["a"] == 1), "(graph)", "?")
        )
        for tid, chosen in _groups(rows, fmt.LAUNCH, "thread"):
            mine = rows[chosen]
            tracks.add(
                (3, tid),
                f"thread {tid}: launches",
                mine,
                names[chosen],
                arrow[chosen],
                True,
                correlation=mine["correlation"],
                stream=mine["stream"],
                result=mine["b"],
            )
        for stream, chosen in _groups(rows, fmt.EXEC, "stream"):
            mine = rows[chosen]
            tracks.add(
                (4, stream, 1),
                f"GPU stream {stream}",
                mine,
                names[chosen],
                arrow[chosen],
                correlation=mine["correlation"],
                node=mine["a"],
            )


def _groups(rows: np.ndarray, kind: int, column: str) -> Iterator[tuple[int, np.ndarray]]:
    """The places of rows of a kind, by what they have in a column."""
    of_kind = rows["kind"] == kind
    for value in np.unique(rows[column][of_kind]):
        yield int(value), np.flatnonzero(of_kind & (rows[column] == value))


def _arrows(rows: np.ndarray, base: int) -> np.ndarray:
    """An arrow has two ends: to the first kernel of a graph, and none for a launch without a kernel."""
    launches = np.flatnonzero(rows["kind"][:-1] == fmt.LAUNCH)
    paired = launches[
        (rows["kind"][launches + 1] == fmt.EXEC) & (rows["correlation"][launches + 1] == rows["correlation"][launches])
    ]
    arrow = np.zeros(len(rows), np.int64)
    arrow[paired] = arrow[paired + 1] = base + rows["correlation"][paired].astype(np.int64)
    return arrow
