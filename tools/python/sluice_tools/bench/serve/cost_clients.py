"""The clients that put a server under a closed loop: `sluice hybrid_workload`, and perf_analyzer where it runs."""

import csv
import io
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.bench.serve.clients import Load, send_all
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.sitting import CellError
from sluice_tools.measure.statistics import latency_figures

VARIABLE = "SLUICE_PERF_ANALYZER"  # its command, if it is not perf_analyzer
_CONNECTIONS = 4  # one connection of gRPC carries large messages one after another
_WINDOWS = 3  # perf_analyzer takes no fewer
_LONGER_S = 60


@dataclass(frozen=True)
class Requests:
    """Requests for one model of a server. values: in an input of any size, with its name; None: of the model's size."""

    model: str
    input: str
    values: int | None


def closed_loop(
    setting: Setting, server, requests: Requests, concurrency: int, seconds: float, http: bool = False
) -> dict:
    """Figures of `concurrency` requests that are always outstanding, by hybrid_workload. Raises RuntimeError."""
    processes = min(concurrency, _CONNECTIONS)
    words = ("--dim", requests.values) if requests.values else ()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        files = [Path(folder) / f"{number}.csv" for number in range(processes)]
        loads = [
            Load(requests.model, ("-c", _part(concurrency, processes, number), "--csv", file, *words), seconds, http)
            for number, file in enumerate(files)
        ]
        reports = send_all(setting, server, loads)
        latency_ms = [ms for file in files for ms in _latencies(file)]
    if errors := {code: count for report in reports for code, count in report["errors"].items()}:
        raise CellError(f"requests failed: {errors}")
    return latency_figures(latency_ms) | {"per_s": sum(report["throughput_per_s"] for report in reports)}


def _part(whole: int, parts: int, number: int) -> int:
    return whole // parts + (number < whole % parts)


def _latencies(file: Path) -> list[float]:
    with file.open(newline="") as text:
        return [float(row["latency_ms"]) for row in csv.DictReader(text) if row["result"] == "OK"]


def perf_analyzer_command() -> list[str]:
    """Empty if perf_analyzer does not run here."""
    command = shlex.split(os.environ.get(VARIABLE, "perf_analyzer"))
    try:
        runs = subprocess.run([*command, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return []
    return command if runs else []


def perf_analyzer(command: list[str], server, requests: Requests, concurrency: int, seconds: float) -> dict:
    """The same by perf_analyzer. Raises RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        file = Path(folder) / "result.csv"
        words = ["-m", requests.model, "-u", f"127.0.0.1:{server.port}", "-i", "grpc", "-f", file]
        words += ["--concurrency-range", concurrency, "--measurement-mode", "time_windows"]
        # Of any stability: the windows end after so many, as the other client's do.
        words += ["-p", round(1e3 * seconds / _WINDOWS), "-s", 999, "-r", _WINDOWS]
        words += ["--shape", f"{requests.input}:{requests.values}"] if requests.values else []
        said = subprocess.run(
            [*command, *map(str, words)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10 * seconds + _LONGER_S,
            check=False,
        )
        if said.returncode != 0 or not file.exists():
            last = (said.stderr.strip() or said.stdout.strip()).splitlines()[-1:] or ["it said nothing"]
            raise CellError(f"perf_analyzer: {last[0]}")
        return read_perf_analyzer(file.read_text())


def read_perf_analyzer(text: str) -> dict:
    """Figures of the CSV that perf_analyzer writes. It has no mean and no number of requests."""
    (row,) = csv.DictReader(io.StringIO(text))
    figures = {"p50_ms": "p50 latency", "p99_ms": "p99 latency"}
    return {name: float(row[head]) / 1e3 for name, head in figures.items()} | {"per_s": float(row["Inferences/Second"])}
