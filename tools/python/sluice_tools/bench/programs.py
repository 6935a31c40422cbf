"""Cells that are unmodified Python programs under `sluice exec`: serving beside training."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

CELLS = ("serve alone", "train alone", "none", "event:2", "device:4")
_LOADING_S = 120


class Program:
    """A program whose lines on standard error are read as they come, with their times."""

    def __init__(self, command: list, environment: dict, stdin=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = []  # (monotonic seconds, text)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))

    def wait_for(self, beginning: str):
        """Until a line begins so. Raises RuntimeError with the last lines if none comes."""
        deadline = time.monotonic() + _LOADING_S
        while not any(text.startswith(beginning) for _, text in list(self.lines)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no '{beginning}': " + self.said())
            time.sleep(0.05)

    def result(self) -> dict:
        """What it printed, once it has ended."""
        out = self.process.stdout.read()
        if self.process.wait() != 0:
            raise RuntimeError(f"exited with {self.process.returncode}: {self.said()}")
        return json.loads(out.splitlines()[-1])

    def said(self) -> str:
        self._reader.join(timeout=1)
        return " / ".join(text for _, text in self.lines[-5:])

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def mps(wanted: bool):
    """A private MPS daemon while it is open; gives the environment of its clients."""
    if not wanted:
        yield lambda below: {}
        return
    with tempfile.TemporaryDirectory(prefix="sluice-mps-") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": folder}
        os.mkdir(f"{folder}/pipe")
        daemon = subprocess.Popen(["nvidia-cuda-mps-control", "-f"], stdin=subprocess.DEVNULL,
                                  env={**os.environ, **places}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while not os.path.exists(f"{folder}/pipe/control"):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the MPS daemon did not start")
            time.sleep(0.05)
        try:
            yield lambda below: {**places, "CUDA_MPS_CLIENT_PRIORITY": "1" if below else "0"}
        finally:
            daemon.terminate()
            daemon.wait()


def _step_ms(training: Program, begin: float, end: float):
    """Mean time of a step between two moments, by the steps the program told of."""
    steps = [(at, int(found[1])) for at, text in training.lines
             if begin <= at <= end and (found := re.match(r"step (\d+):", text))]
    if len(steps) < 2:
        return None, 0
    (first_at, first), (last_at, last) = steps[0], steps[-1]
    return 1000 * (last_at - first_at) / (last - first), last - first


def run(sluice: str, examples: Path, cell: str, seconds: float, device: str, with_mps: bool) -> list:
    """Rows of one cell, a program each."""
    def program(name: str, arguments: list, priority: int, environment: dict) -> Program:
        command = [sys.executable, str(examples / name), "--device", device, *arguments]
        if cell in ("none", "event:2", "device:4"):
            policy = cell if priority == 0 else "gate"
            command = [sluice, "exec", "--priority", str(priority), "--policy", policy, "--",
                       *command]
        return Program(command, environment)

    graph = ["--cuda-graph"] if device.startswith("cuda") else []
    started, rows = [], []
    with mps(with_mps) as environment:
        try:
            training = serving = None
            if cell != "serve alone":
                training = program("train.py", ["--amp", "bf16", "--seconds", "600"], 0,
                                   environment(True))
                started.append(training)
                training.wait_for("training")
            begin = time.monotonic()
            if cell == "train alone":
                time.sleep(seconds)
            else:
                serving = program("serve.py", ["--seconds", str(seconds), *graph], 1,
                                  environment(False))
                started.append(serving)
                serving.wait_for("serving")
                begin = time.monotonic()
                result = serving.result()
                latency = result["latency_ms"]
                rows.append({"model": "serve", "jobs": result["requests"],
                             "mean_ms": latency["mean"], "p50_ms": latency["p50"],
                             "p99_ms": latency["p99"], "per_s": result["requests_per_second"]})
            if training:
                step, count = _step_ms(training, begin, time.monotonic())
                rows.append({"model": "train", "jobs": count, "mean_ms": step,
                             "per_s": 1000 / step if step else None})
        finally:
            for one in started:
                one.end()
    return rows
