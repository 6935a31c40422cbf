"""The clients of a measured server: `sluice hybrid_workload`, a process for each model.

A process for each model has a connection of its own, so that a large request of one model does not delay those of
another on the way to the server.
"""

import json
import subprocess
from dataclasses import dataclass

from sluice_tools.bench.serve.server import Server
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.sitting import CellError

_LONGER_S = 60  # than it sends: hybrid_workload waits 30 s for the last answers


@dataclass(frozen=True)
class Load:
    """What one client sends. words: the options of hybrid_workload that make its arrivals."""

    model: str
    words: tuple
    seconds: float
    http: bool = False


def poisson(model: str, gap_ms: float, seconds: float, seed: int, batch: int = 1, law: str = "poisson", *more) -> Load:
    words = ("--lambda", f"{gap_ms:.4f}", "--arrival", law, "--seed", seed, "--batch", batch, *more)
    return Load(model, ("--max-outstanding", 100000, *words), seconds)


def closed_loop(model: str, concurrency: int, seconds: float, batch: int = 1) -> Load:
    return Load(model, ("-c", concurrency, "--batch", batch), seconds)


def send(setting: Setting, server: Server, loads: list[Load]) -> dict[str, dict]:
    """Runs a client for each load at the same time. Gives the report of each model.

    Raises CellError if a client fails, and RuntimeError if the server has ended.
    """
    return {load.model: report for load, report in zip(loads, send_all(setting, server, loads))}


def send_all(setting: Setting, server, loads: list[Load]) -> list[dict]:
    """The same for several clients of one model, and for any server with `port`, `http_port` and `check`. Gives the
    report of each load."""
    started = [(load, _start(setting, server, load)) for load in loads]
    try:
        return [_report(load, process) for load, process in started]
    except CellError:
        server.check()
        raise
    finally:
        for _, process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def _start(setting: Setting, server, load: Load) -> subprocess.Popen:
    port = ("--http", "-p", server.http_port) if load.http else ("-p", server.port)
    command = [setting.sluice, "hybrid_workload", *port, "--infer-model", load.model, "--json"]
    command += ["-d", f"{load.seconds:g}", *load.words]
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def _report(load: Load, process: subprocess.Popen) -> dict:
    """latency_ms, send_lag_ms, sent, answered and so on, of the one model."""
    try:
        out, err = process.communicate(timeout=load.seconds + _LONGER_S)
    except subprocess.TimeoutExpired:
        raise CellError(f"hybrid_workload {load.model}: no end after {load.seconds + _LONGER_S:.0f} s") from None
    if process.returncode != 0 and not out.strip().startswith("{"):
        raise CellError(f"hybrid_workload {load.model}: {err.strip()[-300:]}")
    (report,) = json.loads(out)["models"]
    if process.returncode != 0:
        raise CellError(f"hybrid_workload {load.model}: {err.strip()[-300:]} {report['errors'] or ''}")
    return report
