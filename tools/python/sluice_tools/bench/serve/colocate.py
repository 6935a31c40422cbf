"""The part `colocate`: many models and one training job on one GPU, under every mode, MPS and static partitions."""

import contextlib
import csv
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.bench.serve import colocate_plan, colocate_report, store
from sluice_tools.bench.serve.colocate_plan import INFER_ONLY, LOADS, SYSTEMS, System
from sluice_tools.bench.serve.lines import Lines, machine_of, measure
from sluice_tools.bench.serve.server import READY_S, Server
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.programs import mps
from sluice_tools.measure.rows import Cell
from sluice_tools.measure.sitting import CellError, Group

FILE = "colocate.jsonl"
_ALONE = "no requests"  # the load of training alone
_CLIENTS = 4  # processes that send: a connection carries large requests one after another
_JOB = "job"
_FOREVER = 1_000_000  # epochs
_FIRST_EPOCH_S = 300  # loading a framework, and measuring its memory
_LOAD_S = 10  # of a model, at most
_LONGER_S = 60  # than a client sends
_EPOCH = re.compile(r"\[PyTorch backend\] Train: \[.* epoch \d+\] .*\| batch cnt (\d+) .*\| batch-size (\d+) \|")


def run(setting: Setting) -> int:
    lines = Lines(setting.out / FILE)
    groups = [
        _group(setting, lines, pool, system)
        for pool in setting.pools_gb or [None]
        for system in SYSTEMS
        if _wanted(setting, system)
    ]
    return measure(setting, lines, groups, machine_of(setting), colocate_report.one_line)


def tables(folder: Path) -> list[str]:
    return colocate_report.tables(Lines(folder / FILE))


def _wanted(setting: Setting, system: System) -> bool:
    if system.mps and setting.tiny:
        return False
    return not setting.systems or system.name in setting.systems or not (system.trains and system.infers)


def _group(setting: Setting, lines: Lines, pool: float | None, system: System) -> Group:
    cells = {}
    mode = f"pool {pool:g} GB" if pool else ""
    for repeat in range(1, setting.repeats + 1):
        for load in setting.traffic or LOADS if system.infers else [_ALONE]:
            cells[Cell(load, mode, system.name, repeat, setting.seconds + 2)] = load

    @contextlib.contextmanager
    def opened() -> Iterator:
        _export(setting)
        with mps(setting.sluice, system.mps) as environment:
            stage = _Stage(setting, lines, system, pool, environment(False))
            try:
                stage.start()
                yield lambda cell: stage.measure(cells[cell], cell)
            finally:
                stage.close()

    return Group(list(cells), opened)


def _export(setting: Setting) -> None:
    if not setting.tiny:
        store.export(setting, list(colocate_plan.kinds_of(setting)))
        store.export(setting, [colocate_plan.training_of(setting).model], train=True)


class _Stage:
    """A server with all models and, if the system trains, a job that runs until the end."""

    def __init__(self, setting: Setting, lines: Lines, system: System, pool: float | None, environment: dict):
        self._setting = setting
        self._lines = lines
        self._system = system
        self._training = colocate_plan.training_of(setting)
        self._models = colocate_plan.models_of(setting, setting.models)
        self._client: subprocess.Popen | None = None
        name = re.sub(r"\W+", "-", f"{system.name} {pool or ''}").strip("-")
        folder = setting.out / "servers" / f"train-{name}"
        self._write_job(folder)
        options = ["-m", system.mode, "--train-store", folder, "--profile", folder.with_suffix(".profile")]
        if pool:
            # A static partition is one of memory, too.
            options += ["--cuda-memory-pool-gb", pool * (system.share or 100) / 100]
        if system.share:
            environment = environment | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(system.share)}
        entries = {model: {"path": kind, "max-queue": 100000} for model, kind in self._models.items()}
        session = f"colocate-{os.getpid()}-{SYSTEMS.index(system)}"
        self._server = Server(
            setting, f"colocate-{name}", entries, tuple(options), session=session, environment=environment
        )

    def _write_job(self, folder: Path) -> None:
        """The train store: one script, which starts the trainer as the system wants it."""
        folder.mkdir(parents=True, exist_ok=True)
        root = Path(self._setting.sluice).resolve().parents[1]
        if self._setting.tiny:
            words = [root / "libexec/sluice/sluice-example-train"]
        else:
            words = [self._setting.sluice, "train", self._training.model, "--store", self._setting.store]
            words += ["--device", "cuda"]
        lines = ["#!/bin/sh"]
        if self._system.mps:
            lines.append("export CUDA_MPS_CLIENT_PRIORITY=1")
        if self._system.share:
            lines.append(f"export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={100 - self._system.share}")
        lines.append(f'exec {shlex.join(map(str, words))} --steps-per-epoch {self._training.steps} "$@"')
        script = folder / _JOB
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)

    def start(self) -> None:
        self._server.wait_ready(READY_S + _LOAD_S * len(self._models))
        if not self._system.trains:
            return
        batch = self._training.batch
        if self._system.share:  # the memory of the rest of the GPU takes a smaller batch
            batch = max(1, batch * (100 - self._system.share) // 100)
        words = ["--no-infer", "--train-model", _JOB, "--num-epoch", _FOREVER, "--batch-size", batch]
        self._client = self._start_client(words)
        deadline = time.monotonic() + _FIRST_EPOCH_S
        while not self._epochs():
            self._server.check()
            if self._client.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"training does not begin: {self._server.said()}")
            time.sleep(0.05)

    def _start_client(self, words: list) -> subprocess.Popen:
        command = [self._setting.sluice, "hybrid_workload", "-p", self._server.port, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen([str(word) for word in command], stdout=pipe, stderr=pipe, text=True, errors="replace")

    def close(self) -> None:
        self._server.end()  # which ends its trainer
        if self._client:
            self._client.kill()
            self._client.communicate()

    def _epochs(self) -> list[int]:
        """The samples of each epoch so far."""
        return [int(found[1]) * int(found[2]) for found in _EPOCH.finditer(self._server.log_text())]

    def measure(self, load: str, cell: Cell) -> list[dict]:
        before, began = self._server.status()["training"], time.monotonic()
        epochs = len(self._epochs())
        if self._system.infers:
            row = self._send(load, cell)
        else:
            time.sleep(self._setting.seconds)
            row = {}
        took = time.monotonic() - began
        after = self._server.status()["training"]
        if self._system.trains:
            row["samples_per_s"] = sum(self._epochs()[epochs:]) / took
            row |= {name: after[name] - before[name] for name in ("orders", "kills", "launches")}
        return [row | {"load": load, "seconds": took, "models_served": len(self._models)}]

    def _send(self, load: str, cell: Cell) -> dict:
        limits = self._limits(cell)
        due = colocate_plan.arrivals(load, limits, self._setting.seconds, cell.repeat)
        if not due:
            raise CellError("no request is due in so short a time; give more --seconds")
        by_model = self._latencies(due)
        return {
            "limits_ms": limits,
            "requests": len(due),
            "latency_ms": {
                model: [latency for latency in all if latency is not None] for model, all in by_model.items()
            },
            "unanswered": {model: sum(latency is None for latency in all) for model, all in by_model.items()},
        }

    def _limits(self, cell: Cell) -> dict[str, float]:
        """The same for all systems, so that they get the same arrivals: those of infer only."""
        if self._system.name == INFER_ONLY:
            return {row["name"]: row["limit_ms"] for row in self._server.status()["models"]}
        rows = self._lines.of(Cell(cell.subject, cell.mode, INFER_ONLY, cell.repeat))
        if not rows:
            raise CellError(f"{INFER_ONLY} has not been measured with this load")
        return rows[0]["limits_ms"]

    def _latencies(self, due: list[tuple[float, str]]) -> dict[str, list[float | None]]:
        """ms from the due time to the answer, by model; None: no good answer."""
        folder = self._setting.out / "servers"
        place = {model: index % _CLIENTS for index, model in enumerate(sorted(self._models))}
        started = []
        for number in range(_CLIENTS):
            own = [f"{at:.3f},{model}\n" for at, model in due if place[model] == number]
            if own:
                trace, answers = folder / f"due-{number}.csv", folder / f"answers-{number}.csv"
                trace.write_text("".join(own))
                words = ["--no-train", "--trace", trace, "--csv", answers, "--max-outstanding", 100000, "--json"]
                started.append((self._start_client(words), answers))
        found: dict[str, list[float | None]] = {}
        try:
            for client, answers in started:
                _, err = client.communicate(timeout=self._setting.seconds + _LONGER_S)
                if client.returncode != 0:
                    self._server.check()
                    raise CellError(f"hybrid_workload: {err.strip()[-300:]}")
                for row in csv.DictReader(answers.open()):
                    good = row["result"] == "OK"
                    found.setdefault(row["model"], []).append(float(row["latency_ms"]) if good else None)
        finally:
            for client, _ in started:
                client.kill()
                client.communicate()
        return found
