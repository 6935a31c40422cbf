"""A `sluice serve` with a train store, for the parts of colocate.sh."""

import argparse
import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.bench.serve.server import Server
from sluice_tools.bench.serve.setting import Setting

ROOT = Path(__file__).resolve().parents[3]
GIB = 1 << 30
_TRAINED = re.compile(r"^.*\[PyTorch backend\] Train: (.*)$", re.MULTILINE)
_ANSWER_S = 60
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """Where a part runs, and until when."""

    setting: Setting
    deadline: float  # time.monotonic()

    @property
    def sim(self) -> bool:
        return self.setting.tiny

    def left(self) -> float:
        return self.deadline - time.monotonic()


def parse(parser: argparse.ArgumentParser) -> tuple[Place, argparse.Namespace]:
    """Adds the options of every part. From here on, SIGTERM ends the part in order."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--limit-s", type=float, default=120)
    parser.add_argument("--gpu", choices=("real", "sim"), default="real", help="sim: to try the script")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    program = os.environ.get("SLUICE_PROGRAM", str(ROOT / "build/bin/sluice"))
    setting = Setting(program, out, arguments.store.resolve(), arguments.gpu, device=0, seconds=0, repeats=1)
    return Place(setting, time.monotonic() + arguments.limit_s), arguments


def example_trainer(place: Place, *options) -> list:
    """A trainer without a framework, for the simulated GPU."""
    program = Path(place.setting.sluice).resolve().parents[1] / "libexec/sluice/sluice-example-train"
    return [program, *options]


class Stage:
    """A server with these models (keys of its config, by name) and these jobs (commands, by name). What a client asks
    of a job is not passed on."""

    def __init__(self, place: Place, name: str, models: dict[str, dict], jobs: dict[str, list], *options):
        self._place = place
        folder = place.setting.out / "servers" / f"{name}-jobs"
        folder.mkdir(parents=True, exist_ok=True)
        for job, command in jobs.items():
            (folder / job).write_text(f"#!/bin/sh\nexec {shlex.join(map(str, command))}\n")
            (folder / job).chmod(0o755)
        self.profile = place.setting.out / "servers" / f"{name}.profile"
        self._clients: list[subprocess.Popen] = []
        words = ("--train-store", folder, "--profile", self.profile, *options)
        # The name of a session may have 32 characters.
        self._server = Server(place.setting, name, models, words, session=f"colocate-{os.getpid()}-{next(_numbers)}")

    def __enter__(self) -> "Stage":
        try:
            self._server.wait_ready()
        except BaseException:
            self._server.end()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._server.end()
        for client in self._clients:
            client.kill()
            client.communicate()

    def start(self, job: str) -> subprocess.Popen:
        """A client that has the job run once, and ends with it."""
        command = [self._place.setting.sluice, "hybrid_workload", "-p", str(self._server.port), "--no-infer"]
        pipe = subprocess.PIPE
        client = subprocess.Popen([*command, "--train-model", job], stdout=pipe, stderr=pipe, text=True)
        self._clients.append(client)
        return client

    def training(self) -> dict:
        """What the server says of its trainer."""
        return self._server.status()["training"]

    def resident(self) -> bool:
        """Whether any model has its weights on the device."""
        return any(row.get("resident") for row in self._server.status()["models"])

    def trained(self) -> list[str]:
        """The lines of trainers so far."""
        return _TRAINED.findall(self._server.log_text())

    def log(self) -> str:
        return self._server.log_text()

    def infer(self, model: str) -> tuple[float, bool]:
        """Milliseconds until the answer, and whether it was good."""
        tensor = {"name": "input0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
        url = f"http://127.0.0.1:{self._server.http_port}/v2/models/{model}/infer"
        began = time.monotonic()
        try:
            with urllib.request.urlopen(url, json.dumps({"inputs": [tensor]}).encode(), timeout=_ANSWER_S) as answer:
                answer.read()
            good = True
        except (urllib.error.HTTPError, TimeoutError):
            good = False
        return (time.monotonic() - began) * 1e3, good

    def records(self) -> list[dict]:
        """Of all requests; complete once the server has ended."""
        lines = self._server.records_file.read_text().splitlines() if self._server.records_file.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """False: it did not come true in time. Raises RuntimeError if the server ends."""
        deadline = time.monotonic() + min(seconds, max(0.0, self._place.left()))
        while not holds():
            self._server.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def section(profile: Path, name: str) -> Iterator[str]:
    """The lines of one section of a server-profile."""
    inside = False
    for line in profile.read_text().splitlines():
        if line.startswith("["):
            inside = line == f"[{name}]"
        elif inside and line:
            yield line


def number(text: str, pattern: str) -> float | None:
    found = re.search(pattern, text)
    return float(found[1]) if found else None


@contextlib.contextmanager
def told(what: str, finding: Callable) -> Iterator[None]:
    """A failure inside is a finding, and the next one is tried."""
    try:
        yield
    except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        finding(f"{what} FAILED", error=" ".join(str(error).split())[:400] or type(error).__name__)
