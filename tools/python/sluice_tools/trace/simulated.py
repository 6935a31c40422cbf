"""Executions on the simulated GPU: its log (simgpu/README.md) joined with the launches of a process.

The log does not know launches, but a stream is in order: the k-th launch of a stream in the trace is
the k-th launch of that stream in the log. Where launches are missing in the trace that would give
all later ones the wrong execution. If the process launched into one stream only, the numbers missing
among its launches say where; else the join goes by what cannot be: work that began before its launch,
or of another name, is of a launch that is not in the trace.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.common.errors import run_error

_TYPES = {
    "kind": "category",
    "pid": "int64",
    "stream": "int64",
    "sequence": "int64",
    "begin_ns": "int64",
    "end_ns": "int64",
    "name": "category",
}
_BLOCK_BYTES = 32 << 20


def _iter_log(path: Path) -> Iterator[pd.DataFrame]:
    """The lines of the log, some at a time. One that was cut off at the end is left out."""
    with path.open("rb") as file:
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if not newline:
                continue
            try:
                yield pd.read_csv(
                    io.BytesIO(whole + newline),
                    sep=" ",
                    names=list(_TYPES),
                    dtype=_TYPES,
                    engine="c",
                    quoting=3,
                    keep_default_na=False,
                )
            except ValueError as error:
                raise run_error(
                    f"{path} is no log of the simulated GPU: {str(error).strip()}; remove it to read the rest"
                ) from error


def _lines_of(path: Path, pid: int, kinds: tuple[str, ...]) -> pd.DataFrame:
    """Of a process, in the order of its streams."""
    parts = []
    for lines in _iter_log(path):
        part = lines[(lines["pid"] == pid) & lines["kind"].isin(kinds)]
        if len(part):
            parts.append(part.astype({"kind": str, "name": str}))
    if not parts:
        return pd.DataFrame({name: [] for name in _TYPES}).astype(
            dict.fromkeys(("stream", "sequence", "begin_ns", "end_ns"), "int64")
        )
    work = pd.concat(parts, ignore_index=True)
    return work.sort_values(["stream", "sequence", "begin_ns"], kind="stable", ignore_index=True)


def _possible(launches: pd.DataFrame, work: pd.DataFrame) -> np.ndarray:
    """Row by row: whether this work can be of this launch."""
    graph = launches["graph"].to_numpy()
    name = launches["name"].to_numpy(str)
    same = np.where(
        graph | work["graph"].to_numpy(),
        graph == work["graph"].to_numpy(),
        (name == "?") | (name == work["name"].to_numpy(str)),
    )
    return same & (work["begin_ns"].to_numpy() >= launches["begin_ns"].to_numpy())


def _by_number(launches: pd.DataFrame, work: pd.DataFrame) -> np.ndarray | None:
    """For each work the row of its launch, or -1: by the numbers of the launches, which must be all
    launches of the process, failed ones included."""
    fine = launches["result"].to_numpy() == 0
    numbers = launches["correlation"].to_numpy()
    place = numbers - 1 - (np.cumsum(~fine) - ~fine)
    rows = np.flatnonzero(fine & (place < len(work)))
    if (place[rows] < 0).any() or not _possible(launches.iloc[rows], work.iloc[place[rows]]).all():
        return None
    result = np.full(len(work), -1)
    result[place[rows]] = rows
    return result


def _in_order(launches: pd.DataFrame, work: pd.DataFrame) -> np.ndarray:
    """The same for launches of one stream that did not fail, of which some may be missing."""
    count = min(len(launches), len(work))
    if len(work) <= len(launches) and _possible(launches.iloc[:count], work.iloc[:count]).all():
        return np.arange(len(work))
    result = np.full(len(work), -1)
    graph, name = launches["graph"].to_numpy(), launches["name"].to_numpy(str)
    begin = launches["begin_ns"].to_numpy()
    works = zip(work["graph"].tolist(), work["name"].tolist(), work["begin_ns"].tolist())
    row = 0
    for index, (of_graph, work_name, work_begin) in enumerate(works):
        if row == len(launches):
            break
        alike = graph[row] == of_graph and (of_graph or name[row] in ("?", work_name))
        if alike and work_begin >= begin[row]:
            result[index] = row
            row += 1
    return result


def executions(path: Path, pid: int, launches: pd.DataFrame) -> pd.DataFrame:
    """As Client.execs(). `launches`: all that the trace of the process has."""
    lines = _lines_of(path, pid, ("kernel", "graph"))
    ordered = launches.sort_values("correlation", kind="stable", ignore_index=True)
    # A graph's nodes bear the number of its launch, and a line for the graph follows them.
    graphs = lines.loc[lines["kind"] == "graph", ["stream", "sequence"]].drop_duplicates()
    work = lines.drop_duplicates(["stream", "sequence"])[["stream", "sequence", "begin_ns", "name"]]
    work = work.merge(graphs.assign(graph=True), on=["stream", "sequence"], how="left")
    # One that the end of the run cut off has its nodes, and no line of its own.
    nodes = lines.groupby(["stream", "sequence"], sort=False)["kind"].transform("size") > 1
    several = lines.loc[nodes, ["stream", "sequence"]].drop_duplicates().assign(several=True)
    work = work.merge(several, on=["stream", "sequence"], how="left")
    work["graph"] = work["graph"].notna() | work["several"].notna()
    correlation = np.zeros(len(work), np.int64)
    only = ordered["stream"].nunique() == 1
    for stream, rows in work.groupby("stream").indices.items():
        mine = ordered[ordered["stream"] == stream]
        place = _by_number(mine, work.iloc[rows]) if only else None
        if place is None:
            mine = mine[mine["result"] == 0]
            place = _in_order(mine, work.iloc[rows])
        numbers = np.r_[mine["correlation"].to_numpy(), 0]
        correlation[rows] = numbers[place]
    work["correlation"] = correlation
    kernels = lines[lines["kind"] == "kernel"].merge(
        work[["stream", "sequence", "correlation", "graph"]], on=["stream", "sequence"]
    )
    kernels = kernels[kernels["correlation"] > 0]
    node = kernels.groupby(["stream", "sequence"], sort=False).cumcount().to_numpy() + 1
    return pd.DataFrame(
        {
            "begin_ns": kernels["begin_ns"],
            "end_ns": kernels["end_ns"],
            "correlation": kernels["correlation"],
            "stream": kernels["stream"],
            "name": pd.Categorical(kernels["name"]),
            "node": np.where(kernels["graph"], node, 0),
        }
    ).reset_index(drop=True)


def waits(path: Path, pid: int) -> pd.DataFrame:
    """As Client.waits()."""
    lines = _lines_of(path, pid, ("wait",))
    return lines[["begin_ns", "end_ns", "stream"]].sort_values("begin_ns", kind="stable", ignore_index=True)
