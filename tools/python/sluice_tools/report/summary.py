"""The summary of runs: a row per run and model, with what sharing cost against running alone."""

import csv
import json
from pathlib import Path

from sluice_tools.report import targets


def alone_of(model, run, alone_runs: list):
    """The model of a run in which it ran alone, or None. Never one of another kind of GPU."""
    single = [
        (other, other.models[0])
        for other in alone_runs
        if len(other.models) == 1 and other.models[0].jobs and other.kind == run.kind
    ]
    same = [found for _, found in single if (found.log, found.name) == (model.log, model.name)]
    if same:
        return same[0]
    # By name alone only where neither side leaves a choice.
    twins = [found for _, found in single if found.name == model.name]
    unique = sum(other.name == model.name for other in run.models) == 1
    return twins[0] if len(twins) == 1 and unique else None


def _throughput(model, run):
    """Jobs per second of the GPU's time, from the first start to the last end; None if unknown."""
    if not model.jobs:
        return None
    real = int(model.end_ns[-1]) - int(model.start_ns[0])
    scale = 1.0 if model.on_cpu else run.scale
    return model.jobs * 1e9 * scale / real if real > 0 else None


def _ratio(value, base):
    return None if value is None or not base else value / base


def rows(runs: list, alone_runs: list) -> list:
    """A dict per run and model; None where a figure does not exist."""
    found = []
    for run in runs:
        for model in run.models:
            alone = alone_of(model, run, alone_runs)
            row = {
                "run": run.label,
                "model": model.log,
                "name": model.name,
                "kind": run.kind,
                "priority": model.priority,
                "policy": model.policy,
                "jobs": model.jobs,
            }
            for name in ("p50", "p99", "mean"):
                row[f"{name}_ms"] = model.figure(name)
                row[f"{name}_x_alone"] = _ratio(model.figure(name), alone and alone.figure(name))
            row["throughput_per_s"] = _throughput(model, run)
            base = next((other for other in alone_runs if alone in other.models), None)
            row["kept"] = _ratio(row["throughput_per_s"], alone and _throughput(alone, base))
            # No share of the run: the counter begins when the client attaches, so it holds the warm-up too.
            row["held_s"] = (
                model.held_ns / 1e9 / (1.0 if model.on_cpu else run.scale) if model.held_ns is not None else None
            )
            # For scripts that have it: it may exceed 1, for the same reason.
            row["held"] = model.held_ns / 1e9 / run.duration_s if model.held_ns is not None and run.duration_s else None
            row["target"] = model.target
            row["in_time"] = targets.in_time_share(model)
            row["has_alone"] = alone is not None
            row["is_alone"] = any(model is one for other in alone_runs for one in other.models)
            found.append(row)
    return found


def write_csv(file: Path, table: list) -> None:
    first = table[0] | _target(table[0]) if table else {"run": 0}
    fields = [name for name in first if name not in ("has_alone", "is_alone")]
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, fields, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in (row | _target(row)).items()} for row in table)


def _target(row: dict) -> dict:
    """The columns and keys of a target: all None without one."""
    target = row["target"]
    return {
        "target": target and target.text,
        "target_state": target and target.state,
        "limit_ms": target and target.limit_ms,
        "in_time": row["in_time"],
        "gates_open": target and target.open_share,
    }


def json_line(page: Path, runs: list, table: list, answers: dict) -> str:
    def models(run):
        keys = (
            "model",
            "name",
            "priority",
            "policy",
            "jobs",
            "p50_ms",
            "p50_x_alone",
            "p99_ms",
            "p99_x_alone",
            "mean_ms",
            "mean_x_alone",
            "throughput_per_s",
            "kept",
            "held_s",
            "held",
        )
        return [{key: row[key] for key in keys} | _target(row) for row in table if row["run"] == run.label]

    return json.dumps(
        {
            "page": str(page),
            "runs": [
                {
                    "run": run.label,
                    "kind": run.kind,
                    "notes": run.notes,
                    "answer": answers[run.label],
                    "models": models(run),
                }
                for run in runs
            ],
        }
    )
