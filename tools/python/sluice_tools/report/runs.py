"""A run as its folder tells it: results.json where there is one, and the job logs."""

import csv
import itertools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from sluice_tools.common.errors import usage_error
from sluice_tools.measure.rows import LOCK
from sluice_tools.measure.statistics import percentile
from sluice_tools.report.targets import Target

_RESOLVED = "experiment.resolved.json"
_JOB = {"start_timestamp_ns": int, "end_timestamp_ns": int, "jct_ms": float}
_STEP_NS = 5_000_000  # Stamps and JCT differ by less than this, unless the clock was stepped.


@dataclass
class Model:
    log: str
    name: str
    pid: int | None
    priority: int
    policy: str
    on_cpu: bool = False
    died: str | None = None
    start_ns: list[int] = field(default_factory=list)  # CLOCK_REALTIME, the warm-up left out
    end_ns: list[int] = field(default_factory=list)
    jct_ms: list[float] = field(default_factory=list)
    held_ns: int | None = None  # real time, from status.json
    target: Target | None = None

    @property
    def jobs(self) -> int:
        return len(self.jct_ms)

    def figure(self, name: str):
        """p50, p99 or mean in ms; None where no job ended."""
        if not self.jobs:
            return None
        if name == "mean":
            return fmean(self.jct_ms)
        return percentile(self.jct_ms, float(name[1:]) / 100)


@dataclass
class Run:
    folder: Path
    label: str
    kind: str  # simulated, time-sliced, MPS, CPU; or traced: a real GPU shared one way or the other
    gpu: str
    scale: float
    duration_s: float | None
    models: list  # the highest priority first
    notes: list = field(default_factory=list)
    trace: list = field(default_factory=list)  # clients

    @property
    def zero_ns(self) -> int:
        """CLOCK_REALTIME of the first job's start: zero of every time axis."""
        starts = [model.start_ns[0] for model in self.models if model.jobs]
        return min(starts, default=0)

    def kind_text(self) -> str:
        if self.kind == "simulated":
            return f"Simulated GPU: no NVIDIA GPU took part; times are real times / {self.scale:g}."
        if self.kind == "CPU":
            return "On the CPU: nothing was gated, and no figure here says anything about a GPU."
        if self.kind == "traced":
            return "A real GPU; a trace alone does not tell time slices from MPS."
        return f"{self.gpu}, {'under MPS' if self.kind == 'MPS' else 'time-sliced'}."

    def of_kind(self) -> str:
        """For the titles of axes."""
        return {"simulated": ", simulated", "CPU": ", on the CPU"}.get(self.kind, "")

    def critical(self) -> list:
        """The models of the highest priority, where there are several priorities; else all."""
        top = max((model.priority for model in self.models), default=0)
        return [model for model in self.models if model.priority == top]


def find_runs(folders: list) -> list:
    """The folders of runs: those given, and those right below one that is none itself."""
    found = []
    for folder in folders:
        if not folder.is_dir():
            raise usage_error(f"{folder} is not a folder; give the --out folder of a `sluice run`")
        below = [folder] if _is_run(folder) else sorted(filter(_is_run, _folders_below(folder)), key=_when)
        if not below:
            raise usage_error(
                f"{folder} has neither results.json of a run nor {_RESOLVED}; give the --out folder of a `sluice run`"
            )
        found += [one for one in below if one.resolve() not in {f.resolve() for f in found}]
    return found


def is_ours(folder: Path) -> bool:
    """Whether a page may be put into the folder unasked: a run, or what demo, sweep or bench made. Any
    other folder may hold runs of strangers. A folder without runs is find_runs()'s to refuse."""
    return _is_run(folder) or (folder / LOCK).exists() or not any(map(_is_run, _folders_below(folder)))


def _folders_below(folder: Path) -> list:
    """Children and their children. The trace folder of a run is not another run."""
    if not folder.is_dir():
        return []
    children = [child for child in folder.iterdir() if child.is_dir()]
    return children + [below for child in children if not _is_run(child) for below in child.iterdir() if below.is_dir()]


def _when(folder: Path) -> float:
    """So that the phases of a demo come in its order."""
    files = [folder / name for name in (_RESOLVED, "results.json")]
    return min((file.stat().st_mtime for file in files if file.exists()), default=0)


def _is_run(folder: Path) -> bool:
    if (folder / _RESOLVED).is_file() or any(folder.glob("*.sltrace")):
        return True
    return isinstance(_read_json(folder / "results.json").get("models"), list)


def _read_json(file: Path) -> dict:
    """Empty where the file is missing or is not a JSON object, as after a kill."""
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def labels(folders: list) -> list:
    """The shortest ends of the paths that tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts), default=1) + 1):
        short = [os.sep.join(path[-length:]) for path in parts]
        if len(set(short)) == len(short):
            return short
    return [str(folder) for folder in folders]


def is_traced(folder: Path) -> bool:
    return (folder / "trace").is_dir() or any(folder.glob("*.sltrace"))


def read_run(folder: Path, label: str) -> Run:
    if any(folder.glob("*.sltrace")):
        return Run(folder, label, "traced", "GPU", 1.0, None, [])
    results = _read_json(folder / "results.json")
    run = _from_results(folder, label, results) if results else _from_logs(folder, label)
    clients = {client.get("pid"): client for client in _read_json(folder / "status.json").get("clients", [])}
    run.models.sort(key=lambda model: -model.priority)
    for model in run.models:
        _read_jobs(run, model)
        client = clients.get(model.pid, {})
        model.held_ns = client.get("held_total_ns")
        if made := client.get("predicted"):
            paid_ms = client["predicted_paid_ns"] / made / 1e6 / run.scale
            run.notes.append(
                f"The jobs of {model.log} come regularly and were predicted: "
                f"{client['predicted_hits'] * 100 // made} % of {made} came in their time, for "
                f"{paid_ms:.2f} ms of closed gates each."
            )
        if model.died:
            run.notes.append(f"{model.log} ended before its time: {model.died}")
    if not any(model.jobs for model in run.models):
        run.notes.append("No job ended in this run: there is nothing to draw (--duration).")
    names = [model.name for model in run.models]
    for name in sorted({name for name in names if names.count(name) > 1}):
        run.notes.append(
            f"{names.count(name)} models are called {name}; they are told apart by the names of their logs."
        )
    return run


def _from_results(folder: Path, label: str, results: dict) -> Run:
    gpu = results.get("gpu") or {}
    models = [
        Model(
            m.get("log", ""),
            m.get("model", ""),
            m.get("pid"),
            int(m.get("priority", 0)),
            m.get("policy") or "no hook",
            bool(m.get("on_cpu")),
            m.get("died"),
            target=Target.read(m.get("target")),
        )
        for m in results["models"]
    ]
    on_cpu = bool(models) and all(model.on_cpu for model in models)
    kind = "CPU" if on_cpu else "simulated" if results.get("simulated") else gpu.get("sharing")
    run = Run(
        folder,
        label,
        kind or "time-sliced",
        gpu.get("name", "GPU"),
        1.0 if on_cpu else float(results.get("time_scale") or 1),
        results.get("real_duration_s"),
        models,
    )
    if results.get("stopped_by") not in (None, "time"):
        run.notes.append(f"The run was stopped by {results['stopped_by']}, before its time.")
    return run


def _from_logs(folder: Path, label: str) -> Run:
    """Of a run whose runner was killed: what it was to do, and what its logs' headers say."""
    resolved = _read_json(folder / _RESOLVED)
    try:
        pids = [pid for _, pid in json.loads((folder / "models_pid.json").read_text())]
    except (OSError, ValueError, TypeError):
        pids = []
    pids += [None] * len(resolved.get("models", []))
    models, header = [], ""
    for entry, pid in zip(resolved.get("models", []), pids):
        name = entry.get("model_name", "")
        if entry.get("resize"):
            name += f"_{entry['resize_size'][0]}"
        log = entry.get("output_file_name", "")
        models.append(Model(log, name, pid, int(entry.get("priority", 0)), _policy(entry)))
        try:
            with (folder / f"{log}.log").open(errors="replace") as text:
                header = text.readline()
        except OSError:
            continue
    scale = re.search(r"real time / ([\d.]+)", header)
    kind = "simulated" if scale else "MPS" if resolved.get("mps") else "time-sliced"
    run = Run(
        folder,
        label,
        kind,
        re.sub(r"^device: \d+ |\(simulated.*", "", header).strip() or "GPU",
        float(scale[1]) if scale else 1.0,
        None,
        models,
    )
    run.notes.append("results.json is missing, so the runner was killed: figures are from the job logs.")
    return run


def _policy(entry: dict) -> str:
    control = entry.get("control") or {}
    limits = control.get("queue_limit") or {}
    if not control.get("control"):
        return "no hook"
    if control.get("policy"):
        return control["policy"]
    if control.get("controlEvent"):
        return f"event:{limits.get('event_group')}"
    return f"sync:{limits.get('sync')}" if control.get("controlsync") else "gate"


def _read_jobs(run: Run, model: Model) -> None:
    """The model's CSV without the warm-up. A line that was being written at the kill is left out."""
    rows = []
    file = run.folder / f"{model.log}.csv"
    try:
        with file.open(newline="", errors="replace") as text:
            for line in itertools.islice(csv.DictReader(text), 1, None):
                try:
                    rows.append(tuple(kind(line[name]) for name, kind in _JOB.items()))
                except (KeyError, TypeError, ValueError):
                    run.notes.append(f"{file.name}: a line that is no job was left out: {list(line.values())[:3]}")
    except OSError:
        run.notes.append(f"{file.name} is missing: no job of {model.log} is shown.")
    model.start_ns, model.end_ns, model.jct_ms = (list(column) for column in zip(*rows)) if rows else ([], [], [])
    _note_clock_steps(run, model)


def _note_clock_steps(run: Run, model: Model) -> None:
    scale = 1.0 if model.on_cpu else run.scale
    before = 0
    for job, (start, end, jct) in enumerate(zip(model.start_ns, model.end_ns, model.jct_ms), 1):
        real = jct * 1e6 * scale
        if abs(end - start - real) > max(_STEP_NS, 0.2 * real) or start < before - _STEP_NS:
            run.notes.append(
                f"The machine's clock was stepped about job {job} of "
                f"{model.log}: JCTs hold, positions in time after it are off by the step."
            )
            return
        before = end
