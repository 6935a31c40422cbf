"""The jobs of a run from the logs of its models (docs/reference/experiment-file.md)."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd

_COLUMNS = ["start_timestamp_ns", "end_timestamp_ns", "jct_ms"]


def read_log(path: Path) -> pd.DataFrame:
    """model_X.log: End (CLOCK_REALTIME ns) and JCT (ms; of the GPU's time on a simulated one), of
    every whole line. Its jobs are all measured ones."""
    ends, jcts = [], []
    with path.open(errors="replace") as lines:
        for line in lines:
            words = line.split()
            # SIGKILL may have cut the last line off.
            if len(words) == 4 and words[0] == "JCT" and line.endswith("\n"):
                try:
                    end, jct = int(words[1]), float(words[3])
                except ValueError:
                    continue
                ends.append(end)
                jcts.append(jct)
    return pd.DataFrame({"End": np.array(ends, np.int64), "JCT": np.array(jcts, float)})


def read_csv(path: Path) -> pd.DataFrame:
    """model_X.csv: Arrival, End (CLOCK_REALTIME ns) and JCT, without the first job, a warm-up."""
    jobs = []
    with path.open(newline="", errors="replace") as file:
        for row in csv.DictReader(file):
            try:
                jobs.append((int(row[_COLUMNS[0]]), int(row[_COLUMNS[1]]), float(row[_COLUMNS[2]])))
            except (KeyError, TypeError, ValueError):
                continue  # cut off, or of another program
    return pd.DataFrame(jobs[1:], columns=["Arrival", "End", "JCT"])


def read_jobs(log: Path, time_scale: float = 1.0) -> pd.DataFrame:
    """Arrival, End, JCT. From the CSV next to the log, which has both times, or from the log."""
    table = log.with_suffix(".csv")
    if table.exists():
        jobs = read_csv(table)
        if len(jobs):
            return jobs
    jobs = read_log(log)
    jobs.insert(0, "Arrival", jobs["End"] - (jobs["JCT"] * 1e6 * time_scale).round().astype(np.int64))
    return jobs


def _log_of(results: dict, folder: Path, pid: int) -> Path | None:
    for model in results.get("models", []):
        if model.get("pid") == pid and model.get("log"):
            # Beside results.json also where the folder was moved or copied.
            for log in (folder / f"{model['log']}.log", Path(model.get("log_file", ""))):
                if log.is_file():
                    return log
    return None


def _model_in(log: Path) -> str | None:
    """The model that a log's fourth line tells of, named as in models_pid.json."""
    with log.open(errors="replace") as lines:
        for _, line in zip(range(10), lines):
            if line.startswith("{"):
                try:
                    model = json.loads(line)
                except ValueError:
                    continue
                name = model.get("model_name")
                size = model.get("resize_size")
                return f"{name}_{size[0]}" if model.get("resize") and size else name
    return None


def find_jobs(models: list[tuple[str, int]], near: Path) -> dict[int, pd.DataFrame]:
    """By pid, of those of which a log is found in `near` or its logs/: by results.json, or by the
    model's name where only one log and one process have it."""
    for folder in (near, near / "logs"):
        try:
            results = json.loads((folder / "results.json").read_text())
            scale = float(results.get("time_scale", 1.0))
        except (OSError, ValueError, AttributeError):
            results, scale = {}, 1.0
        logs = {pid: _log_of(results, folder, pid) for _, pid in models}
        if not any(logs.values()):
            named = [(log, _model_in(log)) for log in sorted(folder.glob("*.log"))]
            for name, pid in models:
                mine = [log for log, model in named if model == name]
                if len(mine) == 1 and [n for n, _ in models].count(name) == 1:
                    logs[pid] = mine[0]
        jobs = {pid: read_jobs(log, scale) for pid, log in logs.items() if log}
        if jobs:
            return jobs
    return {}
