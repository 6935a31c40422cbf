"""Runs and what their traces hold, as pandas frames. For `sluice trace`, `parse` and `report`.

Times are CLOCK_MONOTONIC, real ns: Client.time_scale tells by how much the simulated GPU's time is
slower. Frames are made when asked for, and not kept.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.errors import run_error, usage_error
from sluice_tools.trace import format as fmt
from sluice_tools.trace import simulated
from sluice_tools.trace.clock import Clock
from sluice_tools.trace.records import CHUNK_RECORDS, Names, iter_chunks, select


def _texts_of(codes: np.ndarray, texts: dict[int, str]):
    """Categorical of codes that stand for texts; '?' for others."""
    words = [*texts.values(), "?"]
    table = np.full(max(texts) + 2, len(words) - 1, np.int8)
    table[list(texts)] = range(len(texts))
    return pd.Categorical.from_codes(table[np.minimum(codes, max(texts) + 1)], words)


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
        self.simulated = header.simulated
        self.time_scale = header.time_scale
        self.exec_source = header.exec_source
        self.note = header.note
        self.lost = header.lost
        self.device_uuid = header.device_uuid
        self._gpu_log = gpu_log
        self._rivals: list[Client] = []

    @property
    def label(self) -> str:
        """model (pid): two clients may run the same model."""
        return f"{self.model or Path(self.command.split(' ')[0]).name or 'process'} ({self.pid})"

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def iter_chunks(self, chunk_records: int = CHUNK_RECORDS) -> Iterator[np.ndarray]:
        """The raw records (trace.format.RECORD), for what needs more than memory holds."""
        return iter_chunks(self.path, chunk_records)

    @functools.cached_property
    def names(self) -> Names:
        return Names(self.path)

    @functools.cached_property
    def clock(self) -> Clock:
        """(monotonic, real) pairs, the first from the header."""
        pairs = [(self.header.begin_monotonic_ns, self.header.begin_realtime_ns)]
        for records in select(self.path, (fmt.CLOCK,)):
            pairs += zip(records["begin_ns"].tolist(), records["end_ns"].tolist())
        return Clock(pairs)

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """How many records the file has; `unwritten`: holes before its last record, each a record
        that a killed thread was about to write."""
        kinds = np.zeros(max(fmt.KINDS) + 1, np.int64)
        position, last, written = 0, -1, 0
        for chunk in iter_chunks(self.path):
            known = np.isin(chunk["kind"], fmt.KINDS)
            kinds += np.bincount(chunk["kind"][known], minlength=len(kinds))
            if known.any():
                last = position + int(np.flatnonzero(known)[-1])
            written += int(known.sum())
            position += len(chunk)
        return {"launches": int(kinds[fmt.LAUNCH]), "execs": int(kinds[fmt.EXEC]),
                "holds": int(kinds[fmt.HOLD]), "jobs": int(kinds[fmt.JOB_BEGIN]),
                "unwritten": last + 1 - written, "lost": self.lost}

    def _records(self, *kinds: int) -> np.ndarray:
        parts = list(select(self.path, kinds))
        return np.concatenate(parts) if parts else np.empty(0, fmt.RECORD)

    def iter_launches(self, chunk_records: int = CHUNK_RECORDS) -> Iterator[pd.DataFrame]:
        """launches(), some at a time."""
        for records in select(self.path, (fmt.LAUNCH,), chunk_records):
            yield self._launches_of(records)

    def launches(self) -> pd.DataFrame:
        """The driver's calls on the host, after any hold: begin_ns, end_ns, tid, correlation (the
        number of the launch in its process, from 1), stream, name, flags (which entry: see
        trace.format.ENTRIES), graph, result (CUresult; 0 unless the launch failed)."""
        return self._launches_of(self._records(fmt.LAUNCH))

    def _launches_of(self, records: np.ndarray) -> pd.DataFrame:
        graph = records["a"] == 1
        return pd.DataFrame({
            "begin_ns": records["begin_ns"], "end_ns": records["end_ns"], "tid": records["tid"],
            "correlation": records["correlation"].astype(np.int64),
            "stream": records["stream"].astype(np.int64),
            "name": self.names.categorical(records["name"], np.where(graph, "(graph)", "?")),
            "flags": records["flags"], "graph": graph, "result": records["b"].astype(np.int64)})

    def execs(self) -> pd.DataFrame:
        """The executions on the GPU: begin_ns, end_ns, correlation (of the launch), stream, name,
        node (of the launched graph, or 0). Empty where exec_source is 0; note says why.

        Those of the simulated GPU come from gpu.log beside the trace (trace.simulated)."""
        if self.exec_source == fmt.EXEC_SIMULATOR:
            if not self._has_gpu_log:
                return _execs(np.empty(0, fmt.RECORD), pd.Categorical([]))
            return simulated.executions(self._gpu_log, self.pid, self.launches())
        records = self._records(fmt.EXEC)
        return _execs(records, self.names.categorical(records["name"], "?"))

    @property
    def _has_gpu_log(self) -> bool:
        return (self.exec_source == fmt.EXEC_SIMULATOR and self._gpu_log is not None
                and self._gpu_log.exists())

    def waits(self) -> pd.DataFrame:
        """Where a stream of the simulated GPU stood at a wait, under device:N for a gate: begin_ns,
        end_ns, stream. Empty on a real GPU, which does not tell."""
        if self._has_gpu_log:
            return simulated.waits(self._gpu_log, self.pid)
        return pd.DataFrame({name: np.empty(0, np.int64) for name in ("begin_ns", "end_ns", "stream")})

    def kernels(self) -> pd.DataFrame:
        """execs() with its launch: issue_begin_ns, issue_end_ns, tid, flags, graph. Without those
        of which the launch was not recorded."""
        kernels = join(self.execs(), self.launches())
        return kernels.sort_values("begin_ns", kind="stable", ignore_index=True)

    def iter_kernels(self, chunk_records: int = CHUNK_RECORDS) -> Iterator[pd.DataFrame]:
        """kernels(), some at a time by time of issue, and in little memory but on the simulated GPU.

        Executions are collected some time after their launches: a launch is kept until one has come,
        and two chunks longer, as those of a graph may come in parts. One that comes before the record
        of its launch, which a thread writes when the call has returned, is kept for a chunk."""
        if self.exec_source == fmt.EXEC_SIMULATOR:
            yield self.kernels().sort_values("issue_begin_ns", kind="stable", ignore_index=True)
            return
        launches = execs = np.empty(0, fmt.RECORD)
        matched_ago = np.empty(0, np.int8)  # chunks; -1: not yet
        for records in select(self.path, (fmt.LAUNCH, fmt.EXEC), chunk_records):
            fresh = records[(records["kind"] == fmt.LAUNCH) & (records["b"] == 0)]
            launches = np.concatenate([launches, fresh])
            matched_ago = np.r_[matched_ago, np.full(len(fresh), -1, np.int8)]
            new = records[records["kind"] == fmt.EXEC]
            execs = np.concatenate([execs, new])
            found = np.isin(execs["correlation"], launches["correlation"])
            mine, execs = execs[found], new[~found[len(execs) - len(new):]]
            matched_ago[matched_ago >= 0] += 1
            matched_ago[np.isin(launches["correlation"], mine["correlation"])] = 0
            if len(mine):
                kernels = join(_execs(mine, self.names.categorical(mine["name"], "?")),
                               self._launches_of(launches))
                yield kernels.sort_values("issue_begin_ns", kind="stable", ignore_index=True)
            kept = matched_ago < 2
            launches, matched_ago = launches[kept], matched_ago[kept]

    def holds(self) -> pd.DataFrame:
        """What held a launching thread on the host: begin_ns, end_ns, tid, correlation (of the
        launch; of the last one for a sync point), flags, reason, gate (the set of those who held
        it, a bit for each slot), holder_pid (one of them; 0: none)."""
        records = self._records(fmt.HOLD)
        return pd.DataFrame({
            "begin_ns": records["begin_ns"], "end_ns": records["end_ns"], "tid": records["tid"],
            "correlation": records["correlation"].astype(np.int64), "flags": records["flags"],
            "reason": _texts_of(records["flags"], fmt.HOLDS), "gate": records["a"],
            "holder_pid": records["b"].astype(np.int64)})

    def jobs(self) -> pd.DataFrame:
        """job (from 1), begin_ns, end_ns, tid, flags (1: explicit, 2: transparent), finished. A job
        in which the process died ends with the last record of its file."""
        begins = _jobs(self._records(fmt.JOB_BEGIN))
        ends = _jobs(self._records(fmt.JOB_END))
        jobs = begins.merge(ends, on="job", how="outer", suffixes=("", "_of_end"))
        finished = jobs["end_ns_of_end"].notna()
        open_end = self.last_ns if not finished.all() else 0
        frame = pd.DataFrame({
            "job": jobs["job"],
            # The record of the end knows the begin too.
            "begin_ns": jobs["begin_ns"].fillna(jobs["begin_ns_of_end"]).astype(np.int64),
            "end_ns": jobs["end_ns_of_end"].fillna(open_end).astype(np.int64),
            "tid": jobs["tid"].fillna(jobs["tid_of_end"]).astype(np.int64),
            "flags": jobs["flags"].fillna(0).astype(np.int64), "finished": finished})
        return frame.sort_values("begin_ns", kind="stable", ignore_index=True)

    @functools.cached_property
    def last_ns(self) -> int:
        """The latest time in the file."""
        last = self.header.begin_monotonic_ns
        for records in select(self.path, tuple(k for k in fmt.KINDS if k != fmt.NAME_KIND)):
            # The second time of a clock record is of another clock.
            ends = np.where(records["kind"] == fmt.CLOCK, records["begin_ns"], records["end_ns"])
            last = max(last, int(ends.max()))
        return last

    def gates(self) -> pd.DataFrame:
        """When this client's gate was closed: begin_ns, end_ns, holder_pid (who closed it). Made of
        the jobs of traced clients of higher priority on the same device; joined where they
        overlap."""
        parts = [rival.jobs().assign(holder_pid=rival.pid) for rival in self._rivals]
        parts = [part for part in parts if len(part)]
        if not parts or self.policy == "none":
            return pd.DataFrame({name: np.empty(0, np.int64)
                                 for name in ("begin_ns", "end_ns", "holder_pid")})
        jobs = pd.concat(parts).sort_values("begin_ns", kind="stable")
        begin, end = jobs["begin_ns"].to_numpy(), jobs["end_ns"].to_numpy()
        closed_until = np.maximum.accumulate(end)
        first = np.flatnonzero(np.r_[True, begin[1:] > closed_until[:-1]])
        return pd.DataFrame({
            "begin_ns": begin[first], "end_ns": closed_until[np.r_[first[1:] - 1, len(end) - 1]],
            "holder_pid": jobs["holder_pid"].to_numpy()[first]})


def join(execs: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """The executions with the columns of kernels(); without those of other launches."""
    # By hand: a merge of pandas takes four times the memory.
    launches = launches.sort_values("correlation", kind="stable")
    kernels = execs[np.isin(execs["correlation"], launches["correlation"])].copy()
    place = np.searchsorted(launches["correlation"], kernels["correlation"])
    for name, column in (("issue_begin_ns", "begin_ns"), ("issue_end_ns", "end_ns"), ("tid", "tid"),
                         ("flags", "flags"), ("graph", "graph")):
        kernels[name] = launches[column].to_numpy()[place]
    return kernels


def _execs(records: np.ndarray, names) -> pd.DataFrame:
    return pd.DataFrame({
        "begin_ns": records["begin_ns"], "end_ns": records["end_ns"],
        "correlation": records["correlation"].astype(np.int64),
        "stream": records["stream"].astype(np.int64), "name": names,
        "node": records["a"].astype(np.int64)})


def _jobs(records: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({
        "job": records["correlation"].astype(np.int64), "begin_ns": records["begin_ns"],
        "end_ns": records["end_ns"], "tid": records["tid"].astype(np.int64),
        "flags": records["flags"].astype(np.int64)}).drop_duplicates("job")


class Run:
    """What a run left behind. `clients` is empty for a run without a trace, `results` (results.json)
    None for a trace of `sluice exec --trace`."""

    def __init__(self, folder: Path, clients: list[Client], results: dict | None,
                 models: list[tuple[str, int]]):
        self.folder = folder
        self.clients = clients
        self.results = results
        self.models = models
        for client in clients:
            client._rivals = [other for other in clients if other.priority > client.priority
                              and other.device_uuid == client.device_uuid]

    @property
    def begin_ns(self) -> int:
        """Where the viewer file and the CSV have their zero."""
        return min((c.header.begin_monotonic_ns for c in self.clients), default=0)

    @functools.cached_property
    def clock(self) -> Clock:
        """Of all clients: they ran on one machine."""
        return Clock([pair for client in self.clients for pair in client.clock])


def _json(path: Path, kind: type):
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise run_error(f"cannot read {path}: {error}")
    if not isinstance(content, kind):
        raise run_error(f"{path} is no JSON {'list' if kind is list else 'object'}")
    return content


def read_models_pid(path: Path) -> list[tuple[str, int]]:
    """models_pid.json: pairs of a model and the pid of its process. None where there is no file."""
    pairs = _json(path, list)
    if pairs is None:
        return None
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
                and isinstance(pair[1], int)):
            raise run_error(f'{path}: {json.dumps(pair)} is no pair of a model and a pid, like '
                            '["resnet50", 4711]')
    return [(name, pid) for name, pid in pairs]


def _trace_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sltrace"), key=lambda path: (len(path.name), path.name))


def _places(given: Path) -> tuple[Path, Path]:
    """The folder of the run, and that of its traces."""
    if _trace_files(given) or given.name == "trace":
        of_run = given.name == "trace" and (
            (given.parent / "results.json").exists() or (given.parent / "models_pid.json").exists())
        return (given.parent if of_run else given), given
    return given, given / "trace"


def read_run(folder: Path) -> Run:
    """The run in a folder that `sluice run` or `sluice exec --trace` wrote; its trace/ will do."""
    given = Path(folder)
    if not given.is_dir():
        raise usage_error(f"{given} is no folder; name the one a run wrote its results into")
    run_folder, trace_folder = _places(given.absolute())
    results = _json(run_folder / "results.json", dict)
    models = read_models_pid(run_folder / "models_pid.json")
    if models is None:
        models = [(m["model"], m["pid"]) for m in (results or {}).get("models", [])
                  if "model" in m and "pid" in m]
    files = _trace_files(trace_folder)
    if not files and results is None and not models:
        raise usage_error(f"{given} holds no run: neither results.json nor trace/*.sltrace")
    by_pid = {pid: name for name, pid in models}
    clients = []
    for path in files:
        client = Client(path, None, trace_folder / "gpu.log")
        client.model = by_pid.get(client.pid)
        clients.append(client)
    return Run(run_folder, clients, results, models)
