"""The folder that a parse makes (docs/guide/traces.md)."""

import datetime
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd

from sluice_tools.common.errors import run_error
from sluice_tools.measure.statistics import percentile
from sluice_tools.parse import job_logs
from sluice_tools.parse.models import Model, Models
from sluice_tools.parse.queue_depth import queue_depth
from sluice_tools.parse.source import Source


def _make_folder(out: Path, name: str) -> Path:
    """A new one: two calls may fall into one second."""
    moment = datetime.datetime.now()
    while True:
        folder = out / f"{name}_{moment:%Y%m%d%H%M%S}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            moment += datetime.timedelta(seconds=1)
        except OSError as error:
            raise run_error(f"cannot make {folder}: {error.strerror}") from error


def _write_summary(models: list[Model], path: Path) -> None:
    lines = [
        "NumKernels:",
        *(f"{m.label} {m.count}" for m in models),
        "MedianKernelDur:",
        *(f"{m.label} {m.durations.percentile(50)}" for m in models),
    ]
    path.write_text("\n".join(lines) + "\n")


def _depths(models: list[Model]) -> list[pd.DataFrame]:
    begin, end = min(m.begin for m in models), max(m.end for m in models)
    return [queue_depth(m.outstanding(), begin, end) for m in models]


def _write_frames(frames: list[tuple[str, int, pd.DataFrame]], path: Path) -> None:
    for index, (name, pid, frame) in enumerate(frames):
        frame = frame.copy()
        frame.insert(0, "Model", name)
        frame.insert(1, "Pid", pid)
        frame.to_csv(path, mode="a" if index else "w", header=not index, index=False, lineterminator="\n")


def _figures(model: Model, depth: pd.DataFrame, jobs: pd.DataFrame | None) -> dict:
    width = (depth["BinEnd"] - depth["BinStart"]).to_numpy()
    figures = {
        "model": model.name,
        "pid": model.pid,
        "kernels": model.count,
        "median_kernel_ns": model.durations.percentile(50),
        "queue_delay_p50_ns": model.delays.percentile(50),
        "queue_delay_p99_ns": model.delays.percentile(99),
        "queue_depth_mean": round(float(np.average(depth["MeanDepth"], weights=width)), 6),
        "queue_depth_max": int(depth["MaxDepth"].max()),
    }
    if jobs is not None and len(jobs):
        jct = jobs["JCT"].tolist()
        figures |= {"jobs": len(jobs), "jct_p50_ms": percentile(jct, 0.5), "jct_p99_ms": percentile(jct, 0.99)}
    return figures


def parse(path: Path, pids: Path | None, out: Path, with_pictures: bool) -> dict:
    """Makes the folder, or nothing of it. Returns what --json prints."""
    began = time.monotonic()
    source = Source(path, pids)
    folder = _make_folder(out, source.name)
    try:
        result = _fill(folder, source, path, with_pictures)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return result | {"seconds": round(time.monotonic() - began, 3)}


def _fill(folder: Path, source: Source, path: Path, with_pictures: bool) -> dict:
    models = Models(source.models, folder)
    try:
        source.feed(models)
    finally:
        models.close()
    found = list(models)
    if not found:
        raise run_error(f"{path} holds no kernel")
    _write_summary(found, folder / "summary.log")
    depths = _depths(found)
    _write_frames([(m.name, m.pid, d) for m, d in zip(found, depths)], folder / "queue_depth.csv")
    jobs = {pid: frame for pid, frame in job_logs.find_jobs(source.models, source.near).items() if len(frame)}
    names = {pid: name for name, pid in source.models}
    if jobs:
        _write_frames([(names[pid], pid, frame) for pid, frame in jobs.items()], folder / "jct.csv")
    if with_pictures:
        from sluice_tools.parse import pictures

        note = ", simulated" if source.simulated else ""
        pictures.kernel_durations(found, note, folder / "cdf.png")
        pictures.queue_depths({m.label: d for m, d in zip(found, depths)}, note, folder / "queue_depth.png")
        pictures.queue_delays(found, note, folder / "queue_delay.png")
        if jobs:
            pictures.completion_times(
                {f"{names[pid]}_{pid}": frame for pid, frame in jobs.items()}, note, folder / "jct.png"
            )
    return {
        "folder": str(folder),
        "simulated": source.simulated,
        "models": [_figures(m, d, jobs.get(m.pid)) for m, d in zip(found, depths)],
        "unknown_pids": {str(pid): count for pid, count in models.unknown().items()},
        "rows_left_out": source.rows_left_out,
    }
