"""The part `colocate`: many models and one training job on one GPU, under every mode, MPS and static partitions."""

import contextlib
import csv
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.bench.serve import colocate_plan, colocate_report, store
from sluice_tools.bench.serve.colocate_plan import INFER_ONLY, LOADS, SYSTEMS, TRAIN_ONLY, System
from sluice_tools.bench.serve.lines import Lines, machine_of, measure
from sluice_tools.bench.serve.server import READY_S, Server
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.programs import mps
from sluice_tools.measure.rows import Cell
from sluice_tools.measure.sitting import CellError, Group

FILE = "colocate.jsonl"
_ALONE = "no requests"  # the load of training alone
_CLIENTS = 4  # processes that send: a connection carries large requests one after another
_FOREVER = 1_000_000  # epochs
_FIRST_EPOCH_S = 60  # loading a framework, and measuring its memory
_FIRST_EPOCHS = 3  # in which training learns what memory it needs
_STOP_S = 20
_LOAD_S = 10  # of a model, at most
_PATIENCE_S = 5  # of a request: so a system that cannot keep up ends its cell
_LONGER_S = 60  # than a client sends
_TINY_WEIGHTS_MB = 32
_WARM_UP_MS = 10  # between the requests of two models before a cell
_EPOCH = re.compile(
    r"\[PyTorch backend\] Train: \[.* epoch \d+\] .*\| batch cnt (\d+) .*\| batch-size (\d+) \| micro-batch-size (\d+)"
)
_LOST = "the device is unusable from now on"
_COUNTERS = {"loads": "weight_loads", "evictions": "evictions", "handovers": "handovers"}


def run(setting: Setting) -> int:
    lines = Lines(setting.out / FILE)
    groups = [
        _group(setting, lines, pool, systems)
        for pool in setting.pools_gb or [None]
        for of_server in colocate_plan.servers()
        if (systems := [system for system in of_server if _wanted(setting, system)])
    ]
    return measure(setting, lines, groups, machine_of(setting), colocate_report.one_line)


def tables(folder: Path) -> list[str]:
    return colocate_report.tables(Lines(folder / FILE))


def _wanted(setting: Setting, system: System) -> bool:
    if system.mps and setting.tiny:
        return False
    return not setting.systems or system.name in setting.systems or not (system.trains and system.infers)


def _group(setting: Setting, lines: Lines, pool: float | None, systems: list[System]) -> Group:
    cells = {}
    mode = f"pool {pool:g} GB" if pool else ""
    for system in systems:
        for repeat in range(1, setting.repeats + 1):
            for load in setting.traffic or LOADS if system.infers else [_ALONE]:
                cells[Cell(load, mode, system.name, repeat, setting.seconds + 3)] = load, system

    @contextlib.contextmanager
    def opened() -> Iterator:
        _export(setting)
        with mps(setting.sluice, systems[0].mps) as environment:
            stage = _Stage(setting, lines, systems[-1], pool, environment(False))
            try:
                stage.start()
                yield lambda cell: stage.measure(cell, *cells[cell])
            finally:
                stage.close()

    return Group(list(cells), opened)


def _export(setting: Setting) -> None:
    if not setting.tiny:
        store.export(setting, list(colocate_plan.kinds_of(setting)))
        store.export(setting, [colocate_plan.training_of(setting).model], train=True)


class _Stage:
    """A server with all models, and a job that runs from the first cell with training on."""

    def __init__(self, setting: Setting, lines: Lines, system: System, pool: float | None, environment: dict):
        self._setting = setting
        self._lines = lines
        self._system = system
        self._training = colocate_plan.training_of(setting)
        self._models = colocate_plan.models_of(setting, setting.models)
        self._client: subprocess.Popen | None = None  # asks for the job
        self._job = ""  # that runs
        self._ready_s = 0.0
        name = re.sub(r"\W+", "-", f"{system.name} {pool or ''}").strip("-")
        self._jobs = setting.out / "servers" / f"train-{name}"
        self._jobs.mkdir(parents=True, exist_ok=True)
        profile = setting.out / "servers" / f"train-{name}.profile"
        options = ["-m", system.mode, "--train-store", self._jobs, "--profile", profile]
        self._pool = pool
        if pool:
            options += ["--cuda-memory-pool-gb", pool]
        if system.idle_ms is not None:
            options += ["--infer-model-max-idle-ms", system.idle_ms]
        if system.share:
            environment = environment | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(system.share)}
        keys = {"max-queue": 100000, "timeout-us": int(_PATIENCE_S * 1e6)}
        if setting.tiny:
            keys["weights-mb"] = _TINY_WEIGHTS_MB  # recordings have none of their own
        entries = {model: {"path": kind} | keys for model, kind in self._models.items()}
        self._session = f"colocate-{os.getpid()}-{SYSTEMS.index(system)}"
        self._server = Server(
            setting, f"colocate-{name}", entries, tuple(options), session=self._session, environment=environment
        )

    def _write_job(self, job: str, micro_batch: int) -> None:
        """Into the train store: a script that starts the trainer as the system wants it."""
        root = Path(self._setting.sluice).resolve().parents[1]
        if self._setting.tiny:
            words = [root / "libexec/sluice/sluice-example-train"]
        else:
            words = [self._setting.sluice, "train", self._training.model, "--store", self._setting.store]
            words += ["--device", "cuda", "--micro-batch-size", micro_batch]
        lines = ["#!/bin/sh"]
        if self._system.mps:
            lines.append("export CUDA_MPS_CLIENT_PRIORITY=1")
        if self._system.share:
            lines.append(f"export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={100 - self._system.share}")
        steps = colocate_plan.steps_of(self._system)
        lines.append(f'exec {shlex.join(map(str, words))} --steps-per-epoch {steps} "$@"')
        script = self._jobs / job
        script.write_text("\n".join(lines) + "\n")
        script.chmod(0o755)

    def start(self) -> None:
        began = time.monotonic()
        self._server.wait_ready(READY_S + _LOAD_S * len(self._models))
        self._ready_s = time.monotonic() - began
        self._warm_up()

    def _warm_up(self) -> None:
        """A request for each model. Libraries and models do some of their work at a first request; and in a service
        that has run for long, each model has been used shortly before."""
        self._latencies([(place * _WARM_UP_MS, model) for place, model in enumerate(self._models)])

    def _start_training(self, system: System, cell: Cell) -> None:
        """Unless it runs. A job that has failed begins again."""
        job = re.sub(r"\W+", "-", system.name)
        if self._client and self._job == job and self._client.poll() is None:
            return
        self._stop_training()
        self._write_job(job, self._micro_batch(system, cell))
        words = ["--no-infer", "--train-model", job, "--num-epoch", _FOREVER, "--batch-size", self._training.batch]
        epochs = len(self._epochs())
        self._client, self._job = self._start_client(words), job
        deadline = time.monotonic() + _FIRST_EPOCH_S
        while len(self._epochs()) < epochs + _FIRST_EPOCHS:
            self._server.check()
            if self._client.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"training does not begin: {self._server.said()}")
            time.sleep(0.05)

    def _stop_training(self) -> None:
        if self._client:
            self._client.send_signal(signal.SIGINT)  # stops its job
            try:
                self._client.communicate(timeout=_STOP_S)
            finally:
                self._client.kill()

    def _micro_batch(self, system: System, cell: Cell) -> int:
        batch = self._training.batch
        if not (system.fixed and self._pool) or self._setting.tiny:
            return batch
        rows = self._lines.of(Cell(_ALONE, cell.mode, TRAIN_ONLY))
        if not rows or not rows[0].get("slope_bytes"):
            raise CellError(f"{TRAIN_ONLY} has not been measured: it says how much memory a micro-batch needs")
        inference = self._memory(self._server.pid)["held_bytes"] - self._weights(resident=True) + self._weights()
        needs = colocate_plan.Needs(inference, rows[0]["base_bytes"], rows[0]["slope_bytes"])
        return colocate_plan.micro_batch(system, self._pool, needs, batch)

    def _start_client(self, words: list) -> subprocess.Popen:
        command = [self._setting.sluice, "hybrid_workload", "-p", self._server.port, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen([str(word) for word in command], stdout=pipe, stderr=pipe, text=True, errors="replace")

    def close(self) -> None:
        self._server.end()  # which ends its trainer
        if self._client:
            self._client.kill()
            self._client.communicate()

    def _epochs(self) -> list[tuple[int, int]]:
        """Of each epoch so far: its samples, and the size of its last micro-batch."""
        found = _EPOCH.finditer(self._server.log_text())
        return [(int(one[1]) * int(one[2]), int(one[3])) for one in found]

    def measure(self, cell: Cell, load: str, system: System) -> list[dict]:
        if system.trains:
            self._start_training(system, cell)
        if system.infers:
            self._warm_up()
        before, began = self._counts(), time.monotonic()
        epochs = len(self._epochs())
        if system.infers:
            row = self._send(load, cell)
        else:
            time.sleep(self._setting.seconds)
            row = {}
        took = time.monotonic() - began
        if _LOST in self._server.log_text():
            raise RuntimeError(f"the server has lost its device: {self._server.said()}")
        after = self._counts()
        row |= {name: after[name] - before[name] for name in after}
        if system.trains:
            row["samples_per_s"] = sum(samples for samples, _ in self._epochs()[epochs:]) / took
            row["micro_batch"] = self._epochs()[-1][1]
            row |= self._memory(self._server.status()["training"].get("pid", -1))
        row |= {"load": load, "seconds": took, "models_served": len(self._models), "ready_s": self._ready_s}
        return [row]

    def _counts(self) -> dict:
        """Of the server, since its start."""
        training = self._server.status()["training"]
        counts = {name: training[name] for name in ("orders", "kills", "launches", "failed")}
        return counts | self._server.counters(_COUNTERS)

    def _memory(self, pid: int) -> dict:
        """What `sluice status` says of the memory of a process. Empty if that is not known."""
        command = [self._setting.sluice, "status", "--json", "--session", self._session]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode != 0:
            return {}
        clients = {client["pid"]: client["memory"] for client in json.loads(said.stdout)["clients"]}
        return clients.get(pid, {})

    def _weights(self, resident: bool = False) -> float:
        """Bytes of all models; resident: of those on the device."""
        rows = self._server.status()["models"]
        return sum(row.get("weights_mb", 0) for row in rows if row.get("resident") or not resident) * (1 << 20)

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
        if cell.name == INFER_ONLY:
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
                answers.unlink(missing_ok=True)
                words = ["--no-train", "--trace", trace, "--csv", answers, "--max-outstanding", 100000, "--json"]
                started.append((self._start_client(words), answers))
        found: dict[str, list[float | None]] = {}
        try:
            for client, answers in started:
                try:
                    _, err = client.communicate(timeout=self._setting.seconds + _LONGER_S)
                except subprocess.TimeoutExpired:
                    raise CellError(f"hybrid_workload: no end {_LONGER_S} s after its last request") from None
                if not answers.exists():  # it is also written if no request was answered
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
