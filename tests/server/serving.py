"""A running `sluice serve` for tests."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SLUICE = os.environ["SLUICE_TEST_PROGRAM"]
PATIENCE_S = 60
# Control calls at the one address; tests of an update name a delay of their own.
DEFAULTS = ["--allow-control", "--drain-delay-s", "0"]


TRAINER = Path(SLUICE).parent.parent / "libexec" / "sluice" / "sluice-example-train"


class Server:
    """A running server. Its session, and so its board and its simulated GPU, is its own, unless it comes after another
    one: then it has the session and the ports of that one."""

    def __init__(self, folder: Path, *args: str, after: "Server | None" = None):
        self.session = after.session if after else f"serve-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        ports = [str(after.listen[kind] if after else 0) for kind in ("grpc_port", "http_port")]
        self.process = subprocess.Popen(
            [
                SLUICE,
                "serve",
                "-p",
                ports[0],
                "--http",
                ports[1],
                "--json",
                "--session",
                self.session,
                *DEFAULTS,
                *args,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate(timeout=PATIENCE_S)[1])
        self.listen = json.loads(line)

    def call(self, path: str, body=None, method: str | None = None, timeout: float = PATIENCE_S) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.listen['http_port']}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=timeout) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            return error.code, json.loads(text) if text else None

    def infer(self, model: str, values=(1.0, 2.0), **parameters):
        tensor = {"name": "input0", "datatype": "FP32", "shape": [1, len(values)], "data": list(values)}
        return self.call(f"/v2/models/{model}/infer", {"inputs": [tensor], "parameters": parameters})

    def training(self) -> dict:
        return self.call("/v2/sluice/status")[1]["training"]

    def trains(self, obeys: bool = True) -> bool:
        return self.training().get("obeys") == obeys

    def held_mb(self) -> float:
        """By the trainer."""
        return self.training().get("held_bytes", 0) / 2**20

    def resident(self) -> list[str]:
        return [row["name"] for row in self.call("/v2/sluice/status")[1]["models"] if row.get("resident")]

    def devices(self) -> dict[str, dict]:
        """Of its status, by name."""
        return {row["device"]: row for row in self.call("/v2/sluice/status")[1]["devices"]}

    def clients(self) -> list[dict]:
        """What `sluice status` says of its session."""
        command = [SLUICE, "status", "--session", self.session, "--json"]
        status = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
        return json.loads(status.stdout)["clients"]

    def client(self, priority: int) -> dict:
        """The server (1), or its trainer (0)."""
        (client,) = [each for each in self.clients() if each["priority"] == priority]
        return client

    def metric(self, name: str) -> float:
        """That of the only device, if it is of a device."""
        lines = self.call("/metrics")[1].splitlines()
        (line,) = [line for line in lines if line.startswith((name + " ", name + "{device="))]
        return float(line.split()[1])

    def waiting(self, model: str) -> int:
        (row,) = [row for row in self.call("/v2/sluice/status")[1]["models"] if row["name"] == model]
        return row["waiting"]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err

    def board(self) -> Path:
        return Path(f"/dev/shm/sluice.{os.getuid()}.{self.session}")


class Train:
    """A client that has one training job run."""

    # On the simulated GPU times are ten times as long.
    LONG = ("--num-epoch", "2000", "--batch-size", "8")

    def __init__(self, server: Server, job: str, *args: str):
        port = str(server.listen["grpc_port"])
        command = [SLUICE, "hybrid_workload", "--no-infer", "-p", port, "--train-model", job, *(args or self.LONG)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out + err

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE_S)


def large_job(folder: Path, item_us: int = 100) -> None:
    """A train store with one job, which holds 64 MiB and 16 for each item of its batch."""
    (folder / "train").mkdir()
    job = folder / "train" / "job"
    job.write_text(f'#!/bin/sh\nexec {TRAINER} "$@" --item-mb 16 --item-us {item_us}\n')
    job.chmod(0o755)


@contextlib.contextmanager
def serving(folder: Path, *args: str):
    server = Server(folder, *args)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate(timeout=PATIENCE_S)


def in_background(call):
    """Runs `call` in a thread. The result is in the returned list once the thread is joined."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    return thread, results


def eventually(holds) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


def state(pid: int) -> str:
    """As in /proc/PID/stat: T is a stopped process. Z: it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def lives(pid: int) -> bool:
    return state(pid) != "Z"


def command_line(process: Path) -> str:
    try:
        # Any process of the machine may be asked, and an argument is bytes.
        return (process / "cmdline").read_text(errors="replace")
    except OSError:  # it has ended
        return ""
