"""Cells that are experiment files, run by `sluice run`: a process of its own per model."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.measure.statistics import latency_figures


class RunFailed(RuntimeError):
    """`sluice run` ended with `code`; the text is its last line, and where the rest is."""

    def __init__(self, code: int, log: Path):
        said = log.read_text(errors="replace").strip().splitlines()[-1:]
        super().__init__(f"sluice run exited with {code}: {' '.join(said)} ({log})")
        self.code = code


@dataclass(frozen=True)
class How:
    """How experiments are run. seconds: real time that is measured."""

    sluice: str
    gpu: str
    device: int
    seconds: float


def run_models(how: How, folder: Path, content: dict, *flags: str) -> None:
    """Runs the experiment `content` in `folder`. Exports the models that it lacks first.

    What the run printed is in run.txt. Raises RunFailed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.json").write_text(json.dumps(content, indent=2))
    command = [
        how.sluice,
        "run",
        "experiment.json",
        "--out",
        ".",
        "--gpu",
        how.gpu,
        "--device",
        str(how.device),
        "--duration",
        f"{how.seconds:g}",
        "--export",
        *flags,
    ]
    with (folder / "run.txt").open("w") as log, _child(command, folder, log) as process:
        code = process.wait()
    if code != 0:
        raise RunFailed(code, folder / "run.txt")


@contextlib.contextmanager
def _child(command: list, folder: Path, log) -> Iterator[subprocess.Popen]:
    """Ends with this block. Ctrl-C in the terminal comes to us alone, and from us to it once."""
    with subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def clients_of(folder: Path) -> list:
    """What `sluice status` said at the end of the run; empty where nothing was hooked."""
    try:
        return json.loads((folder / "status.json").read_text())["clients"]
    except (OSError, ValueError, KeyError):
        return []


def counters(client: dict) -> dict:
    """The counters of a client of `sluice status --json`, over all launch entries."""
    coverage = client.get("coverage", ())
    found = {name: sum(entry[name] for entry in coverage) for name in ("gated", "captured", "waited")}
    return found | {
        "launches": client["launches"],
        "bypassed": client["bypassed"],
        "held_ms": client["held_total_ns"] / 1e6,
        "max_hold_opened": client["max_hold_opened"],
        "unknown_launches": client["unknown_launches"],
        "longest_us": client["longest_ns"] / 1e3,
        "ungated_graph_us": client["ungated_graph_ns"] / 1e3,
    }


def measure(how: How, folder: Path, content: dict, roles: dict) -> list:
    """Runs the experiment and returns a row per model. roles: by log name, CRITICAL or BEST_EFFORT."""
    run_models(how, folder, content)
    results = json.loads((folder / "results.json").read_text())
    clients = {client["pid"]: client for client in clients_of(folder)}
    return [_row(model, results, clients.get(model["pid"]), folder, roles) for model in results["models"]]


def _row(model: dict, results: dict, client: dict | None, folder: Path, roles: dict) -> dict:
    latency_ms = _latencies(folder / model["log_file"])
    gpu_s = results["real_duration_s"] / (1 if model["on_cpu"] else results["time_scale"])
    row = {
        "client": model["log"],
        "role": roles.get(model["log"], ""),
        "policy": model["policy"],
        "gpu": results["gpu"]["name"],
        "window_s": gpu_s,
        "unit": "jobs",
        "per_s": model["throughput_per_s"],
        "active_share": sum(latency_ms) / 1e3 / gpu_s,
        "dropped": 0,
    } | latency_figures(latency_ms)
    for part in ("collided", "uncollided"):
        row[f"{part}_ms"] = (model[part] or {}).get("mean_ms")
    return row | (counters(client) if client else {})


def _latencies(log_file: Path) -> list:
    """Completion times of the jobs in ms, without the warm-up, which is the first row."""
    with log_file.with_suffix(".csv").open(newline="") as text:
        return [float(row["jct_ms"]) for row in csv.DictReader(text)][1:]


def sluice_word() -> str:
    """What to type to run it: a build need not be in PATH."""
    program = Path(sluice_program()).resolve()
    found = shutil.which("sluice")
    if found and Path(found).resolve() == program:
        return "sluice"
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)


def sluice_program() -> str:
    """The `sluice` that started this tool."""
    return os.environ["SLUICE_PROGRAM"]
