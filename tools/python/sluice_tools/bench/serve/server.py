"""A `sluice serve` that is measured: its life, its scheduler, its records, its processor time."""

import contextlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.bench.serve.counters import processor_s
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.programs import Program

READY_S = 150  # the first start on a fresh machine reads gigabytes
_CALL_S = 120  # loading a model captures graphs


def config_text(models: dict[str, dict]) -> str:
    """The config file of a server: keys and values by name of the model."""
    lines = []
    for name, keys in models.items():
        lines += [name, *(f"  {key} {value}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


class Server:
    """Started by serving(), which also ends it. In a session of its own if `session` does not name one. `bare`:
    without the interposer, so that no gate knows of it."""

    counts_receiving = True  # of requests, in /metrics

    def __init__(
        self,
        setting: Setting,
        name: str,
        models: dict,
        options: tuple = (),
        session: str = "",
        bare: bool = False,
        records: bool = True,
        environment: dict | None = None,
    ):
        folder = setting.out / "servers"
        folder.mkdir(exist_ok=True)
        self._config = folder / f"{name}.config"
        self._config.write_text(config_text(models))
        self.name = name
        self.records_file = folder / f"{name}.jsonl"
        self.records_file.unlink(missing_ok=True)
        words = ["--config", self._config, "-p", "0", "--http", "0", "--json", "--allow-control"]
        words += ["--drain-delay-s", "0"]
        words += ["--records", self.records_file] if records else []
        words += ["--store", setting.store, *options]
        words += ["--gpu", setting.gpu, "--device", setting.device]
        words += ["--session", session or f"measure-{os.getpid()}-{name}"]
        command = [setting.sluice, "serve", *words]
        if bare and setting.gpu == "real":
            command = [Path(setting.sluice).resolve().parents[1] / "libexec/sluice/sluice-serve", *words]
            command += ["--place", "real"]
        self._program = Program([str(word) for word in command], environment, log=folder / f"{name}.log")
        self._said: dict = {}

    def wait_ready(self, seconds: float = READY_S) -> None:
        """Raises RuntimeError if the server does not get ready."""
        deadline = time.monotonic() + seconds
        while not self._said:
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server {self.name} is not ready after {seconds:g} s: {self._program.said()}")
            time.sleep(0.05)
            assert self._program.log
            for line in self._program.log.read_text(errors="replace").splitlines():
                if line.startswith("{") and line.endswith("}"):
                    self._said = json.loads(line)

    def check(self) -> None:
        if how := self._program.describe_end():
            raise RuntimeError(f"the server {self.name} {how}")

    @property
    def port(self) -> int:
        """Of gRPC."""
        return self._said["grpc_port"]

    @property
    def http_port(self) -> int:
        return self._said["http_port"]

    @property
    def pid(self) -> int:
        return self._said["pid"]

    def post(self, path: str, content: dict | None = None) -> None:
        """Raises RuntimeError with what the server answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}",
            json.dumps(content or {}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=_CALL_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode(errors='replace')}") from None

    def status(self) -> dict:
        """Queues, models and training. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/sluice/status", timeout=_CALL_S) as answer:
            return json.loads(answer.read())

    def counters(self, names: dict[str, str]) -> dict[str, int]:
        """Counters of /metrics, of all devices; names: of the values, to what follows `sluice_serve_`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=_CALL_S) as answer:
            text = answer.read().decode()
        found = {
            key: re.findall(rf"^sluice_serve_{name}_total(?:\{{[^}}]*\}})? (\d+)", text, re.MULTILINE)
            for key, name in names.items()
        }
        return {key: sum(map(int, values)) for key, values in found.items() if values}

    def log_text(self) -> str:
        assert self._program.log
        return self._program.log.read_text(errors="replace")

    def said(self) -> str:
        """The last lines of its log."""
        return self._program.said()

    def schedule(self, policy: str) -> None:
        self.post("/v2/scheduler", {"policy": policy})

    def load(self, model: str) -> None:
        self.post(f"/v2/repository/models/{model}/load")

    def unload(self, model: str) -> None:
        self.post(f"/v2/repository/models/{model}/unload")

    def processor_s(self) -> float:
        """Processor time of the process so far."""
        return processor_s(self._said["pid"])

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[dict]]:
        """Fills the list with the records that were written in the block."""
        begin = self.records_file.stat().st_size if self.records_file.exists() else 0
        found: list[dict] = []
        yield found
        with self.records_file.open(errors="replace") as file:
            file.seek(begin)
            found += [json.loads(line) for line in file if line.endswith("\n")]

    def end(self) -> None:
        self._program.end()


@contextlib.contextmanager
def serving(setting: Setting, name: str, models: dict, options: tuple = (), records: bool = True) -> Iterator[Server]:
    """A server that is ready; it ends with the block."""
    server = Server(setting, name, models, options, records=records)
    try:
        server.wait_ready()
        yield server
    finally:
        server.end()
