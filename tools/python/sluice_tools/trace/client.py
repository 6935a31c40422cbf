"""What the trace of a process holds. For `sluice trace`, `parse` and `report`.

Times are CLOCK_MONOTONIC, real ns: Client.time_scale tells by how much the simulated GPU's time is
slower. Frames are made when asked for, and not kept. A long trace has more launches, executions and
holds than memory should hold: take by_launch() and iter_holds() for them.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.common.progress import counted
from sluice_tools.trace import format as fmt
from sluice_tools.trace import simulated
from sluice_tools.trace.clock import Clock
from sluice_tools.trace.records import Names, Overview, select
from sluice_tools.trace.spill import Sorter, columns


def _texts_of(codes: np.ndarray, texts: dict[int, str]):
    """Categorical of codes that stand for texts; '?' for others."""
    words = [*texts.values(), "?"]
    table = np.full(max(texts) + 2, len(words) - 1, np.int8)
    table[list(texts)] = range(len(texts))
    return pd.Categorical.from_codes(table[np.minimum(codes, max(texts) + 1)], words)


# The simulated GPU writes it only if its process has started with the run.
_NO_GPU_LOG = "no times of kernels: there is no gpu.log, because the simulated GPU of the session ran already"


class Client:
    """One traced process."""

    def __init__(self, path: Path, model: str | None = None, gpu_log: Path | None = None):
        header = fmt.read_header(path)
        self.path = path
        self.header = header
        self.pid = header.pid
        self.priority = header.priority
        self.policy = header.policy
        self.command = header.command
        self.model = model
        self.log: str | None = None  # the name of its log, without the ending
        self.simulated = header.simulated
        self.time_scale = header.time_scale
        self.lost = header.lost
        self.device_uuid = header.device_uuid
        self._gpu_log = gpu_log
        self._rivals: list[Client] = []

    @property
    def label(self) -> str:
        """name (pid): two clients may run the same model. The name is that of the run's log, as in
        `sluice report`, else the model's or the program's."""
        return f"{self.log or self.model or Path(self.command.split(' ')[0]).name or 'process'} ({self.pid})"

    @property
    def _lacks_gpu_log(self) -> bool:
        log = self._gpu_log
        return self.header.exec_source == fmt.EXEC_SIMULATOR and (log is None or not log.exists())

    @property
    def exec_source(self) -> int:
        """Where times of execution come from: EXEC_NONE, EXEC_CUPTI or EXEC_SIMULATOR."""
        return fmt.EXEC_NONE if self._lacks_gpu_log else self.header.exec_source

    @property
    def note(self) -> str:
        """Why there are no times of execution, or not all; else empty."""
        return _NO_GPU_LOG if self._lacks_gpu_log else self.header.note

    @functools.cached_property
    def _overview(self) -> Overview:
        return Overview(self.path, self.header)

    @property
    def last_ns(self) -> int:
        """When the last record ends."""
        return self._overview.last_ns

    @functools.cached_property
    def names(self) -> Names:
        return Names(self._overview.few(fmt.NAME_KIND), self.header.schema)

    @functools.cached_property
    def clock(self) -> Clock:
        """(monotonic, real) pairs, the first from the header."""
        records = self._overview.few(fmt.CLOCK)
        return Clock(
            [
                (self.header.begin_monotonic_ns, self.header.begin_realtime_ns),
                *zip(records["begin_ns"].tolist(), records["end_ns"].tolist()),
            ]
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many records the file has; `unwritten`: holes before its last record, each a record
        that a killed thread was about to write."""
        kinds = self._overview.counts
        return {
            "launches": int(kinds[fmt.LAUNCH]),
            "execs": int(kinds[fmt.EXEC]),
            "holds": int(kinds[fmt.HOLD]),
            "jobs": int(kinds[fmt.JOB_BEGIN]),
            "unwritten": self._overview.unwritten,
            "lost": self.lost,
        }

    @property
    def _record(self) -> np.dtype:
        return self.header.schema.record

    def _select(self, kinds: tuple[int, ...]) -> Iterator[np.ndarray]:
        return select(self.path, self.header.schema, kinds)

    def _records(self, kind: int) -> np.ndarray:
        parts = list(self._select((kind,)))
        return np.concatenate(parts) if parts else np.empty(0, self._record)

    def launches(self) -> pd.DataFrame:
        """The driver's calls on the host, after any hold: begin_ns, end_ns, tid, correlation (the
        number of the launch in its process, from 1), stream, name, flags (which entry: see
        header.schema.entries), graph, result (CUresult; 0 unless the launch failed)."""
        records = self._records(fmt.LAUNCH)
        graph = records["a"] == 1
        return pd.DataFrame(
            {
                "begin_ns": records["begin_ns"],
                "end_ns": records["end_ns"],
                "tid": records["thread"],
                "correlation": records["correlation"].astype(np.int64),
                "stream": records["stream"].astype(np.int64),
                "name": self.names.categorical(records["name"], np.where(graph, "(graph)", "?")),
                "flags": records["flags"],
                "graph": graph,
                "result": records["b"].astype(np.int64),
            }
        )

    def execs(self) -> pd.DataFrame:
        """The executions on the GPU: begin_ns, end_ns, correlation (of the launch), stream, name,
        node (of the launched graph, or 0). Empty where exec_source is 0; note says why.

        Executions on the simulated GPU come from gpu.log next to the trace (trace.simulated)."""
        if self.exec_source == fmt.EXEC_SIMULATOR:
            assert self._gpu_log is not None
            return simulated.executions(self._gpu_log, self.pid, self.launches())
        records = self._records(fmt.EXEC)
        return _execs(records, self.names.categorical(records["name"], "?"))

    def waits(self) -> pd.DataFrame:
        """Where a stream of the simulated GPU stood at a wait, under device for a gate: begin_ns,
        end_ns, stream. Empty on a real GPU, which does not tell."""
        if self.exec_source == fmt.EXEC_SIMULATOR:
            assert self._gpu_log is not None
            return simulated.waits(self._gpu_log, self.pid)
        return pd.DataFrame({name: np.empty(0, np.int64) for name in ("begin_ns", "end_ns", "stream")})

    def by_launch(self) -> Iterator[np.ndarray]:
        """The records of launches and executions by correlation, a launch before its executions and
        these by begin, all of a launch in one piece. Those of the simulated GPU are joined in memory."""
        rows = Sorter(self._record, "correlation", "kind", "begin_ns")
        for records in self._select((fmt.LAUNCH, fmt.EXEC)):
            rows.add(records)
        if self.exec_source == fmt.EXEC_SIMULATOR:
            execs = self.execs()
            rows.add(
                columns(
                    self._record,
                    len(execs),
                    kind=fmt.EXEC,
                    begin_ns=execs["begin_ns"],
                    end_ns=execs["end_ns"],
                    correlation=execs["correlation"],
                    stream=execs["stream"],
                    a=execs["node"],
                    name=self.names.add(execs["name"].cat.categories)[execs["name"].cat.codes],
                )
            )
        return counted(f"joining {self.path.name}", len(rows), rows.chunks())

    def kernels(self) -> pd.DataFrame:
        """execs(), by begin, with what is told of their launches: issue_begin_ns, issue_end_ns, tid,
        flags, graph. Without those of which the launch was not recorded."""
        parts = [kernels_of(rows) for rows in self.by_launch()] or [kernels_of(np.empty(0, self._record))]
        execs, launches = (np.concatenate(part) for part in zip(*parts))
        frame = _execs(execs, self.names.categorical(execs["name"], "?")).assign(
            issue_begin_ns=launches["begin_ns"],
            issue_end_ns=launches["end_ns"],
            tid=launches["thread"],
            flags=launches["flags"],
            graph=launches["a"] == 1,
        )
        return frame.sort_values("begin_ns", kind="stable", ignore_index=True)

    def iter_holds(self) -> Iterator[pd.DataFrame]:
        """holds(), some at a time."""
        return map(_holds, self._select((fmt.HOLD,)))

    def holds(self) -> pd.DataFrame:
        """What held a launching thread on the host: begin_ns, end_ns, tid, correlation (of the
        launch; of the last one for a sync point), flags, reason, gate (the set of those who held
        it, a bit for each slot), holder_pid (one of them; 0: none)."""
        return _holds(self._records(fmt.HOLD))

    def jobs(self) -> pd.DataFrame:
        """job (from 1), begin_ns, end_ns, tid, flags (1: explicit, 2: transparent), finished. A job
        in which the process died ends with the last record of its file. closed_ns: when the gates
        below closed; before begin_ns if the job was announced or predicted, after it if a target left
        them open, and end_ns if they never closed."""
        jobs = self._closings()
        jobs["closed_ns"] = jobs["begin_ns"]
        jobs["begin_ns"] = jobs.pop("began_ns")
        jobs = jobs[jobs["begin_ns"] != fmt.NO_JOB]
        return jobs.sort_values("begin_ns", kind="stable", ignore_index=True)

    def _closings(self) -> pd.DataFrame:
        """From the closing of the gates below to their opening: as jobs(), and began_ns."""
        begins = _jobs(self._overview.few(fmt.JOB_BEGIN))
        ends = _jobs(self._overview.few(fmt.JOB_END))
        jobs = begins.merge(ends, on="job", how="outer", suffixes=("", "_of_end"))
        finished = jobs["end_ns_of_end"].notna()
        open_end = self._overview.last_ns if not finished.all() else 0
        # The record of the end knows when the gates closed, and alone knows if they never did.
        begin = jobs["begin_ns_of_end"].fillna(jobs["begin_ns"]).astype(np.int64)
        began = jobs["began_ns_of_end"].fillna(0).astype(np.int64)
        frame = pd.DataFrame(
            {
                "job": jobs["job"],
                "begin_ns": begin,
                "began_ns": began.where(began != 0, begin),  # 0: written by an older build
                "end_ns": jobs["end_ns_of_end"].fillna(open_end).astype(np.int64),
                "tid": jobs["tid"].fillna(jobs["tid_of_end"]).astype(np.int64),
                "flags": jobs["flags"].fillna(0).astype(np.int64),
                "finished": finished,
            }
        )
        return frame.sort_values("begin_ns", kind="stable", ignore_index=True)

    def steps(self) -> pd.DataFrame:
        """Of a program that is never idle: begin_ns, end_ns, kind (steps of one kind did the same
        work; from 1)."""
        records = self._overview.few(fmt.STEP)
        return pd.DataFrame({name: records[name] for name in ("begin_ns", "end_ns")} | {"kind": records["a"]})

    def _closed(self) -> pd.DataFrame:
        """_closings() without the windows in which the gates were open."""
        jobs, windows = self._closings(), self._overview.few(fmt.WINDOW)
        windows = windows[np.isin(windows["correlation"], jobs["job"])]
        if not len(windows):
            return jobs
        # The n-th closing of a job begins at the end of the window before it, and ends at the next one.
        number = np.concatenate([jobs["job"].to_numpy(np.int64), windows["correlation"].astype(np.int64)])
        begin = np.concatenate([jobs["begin_ns"].to_numpy(), windows["end_ns"]])
        end = np.concatenate([jobs["end_ns"].to_numpy(), windows["begin_ns"]])
        places = np.lexsort((begin, number))
        finished = dict(zip(jobs["job"], jobs["finished"]))
        return pd.DataFrame(
            {
                "begin_ns": begin[places],
                "end_ns": end[np.lexsort((end, number))],
                "finished": [finished[job] for job in number[places].tolist()],
            }
        )

    def gates(self) -> pd.DataFrame:
        """When this client's gate was closed: begin_ns, end_ns, holder_pid (who closed it). Made of
        the jobs of traced clients of higher priority on the same device; joined where they
        overlap."""
        parts = [rival._closed().assign(holder_pid=rival.pid) for rival in self._rivals]
        parts = [part[(part["begin_ns"] < part["end_ns"]) | ~part["finished"]] for part in parts]
        parts = [part for part in parts if len(part)]
        if not parts or self.policy == "none":
            return pd.DataFrame({name: np.empty(0, np.int64) for name in ("begin_ns", "end_ns", "holder_pid")})
        jobs = pd.concat(parts).sort_values("begin_ns", kind="stable")
        begin, end = jobs["begin_ns"].to_numpy(), jobs["end_ns"].to_numpy()
        closed_until = np.maximum.accumulate(end)
        first = np.flatnonzero(np.r_[True, begin[1:] > closed_until[:-1]])
        return pd.DataFrame(
            {
                "begin_ns": begin[first],
                "end_ns": closed_until[np.r_[first[1:] - 1, len(end) - 1]],
                "holder_pid": jobs["holder_pid"].to_numpy()[first],
            }
        )


def launch_places(rows: np.ndarray) -> np.ndarray:
    """Of rows of by_launch(): where the launch of each is; -1 where it was not recorded."""
    places = np.where(rows["kind"] == fmt.LAUNCH, np.arange(len(rows)), -1)
    places = np.maximum.accumulate(places)
    return np.where(rows["correlation"][places] == rows["correlation"], places, -1)


def kernels_of(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of rows of by_launch(): the executions whose launch is known, each with its launch."""
    places = launch_places(rows)
    chosen = (rows["kind"] == fmt.EXEC) & (places >= 0)
    return rows[chosen], rows[places[chosen]]


def _holds(records: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "begin_ns": records["begin_ns"],
            "end_ns": records["end_ns"],
            "tid": records["thread"],
            "correlation": records["correlation"].astype(np.int64),
            "flags": records["flags"],
            "reason": _texts_of(records["flags"], fmt.HOLDS),
            "gate": records["a"],
            "holder_pid": records["b"].astype(np.int64),
        }
    )


def _execs(records: np.ndarray, names) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "begin_ns": records["begin_ns"],
            "end_ns": records["end_ns"],
            "correlation": records["correlation"].astype(np.int64),
            "stream": records["stream"].astype(np.int64),
            "name": names,
            "node": records["a"].astype(np.int64),
        }
    )


def _jobs(records: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "job": records["correlation"].astype(np.int64),
            "begin_ns": records["begin_ns"],
            "end_ns": records["end_ns"],
            "tid": records["thread"].astype(np.int64),
            "began_ns": records["a"].astype(np.int64),
            "flags": records["flags"].astype(np.int64),
        }
    ).drop_duplicates("job")
