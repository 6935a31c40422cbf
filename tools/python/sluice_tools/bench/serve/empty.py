"""A server that does nothing (`sluice hybrid_workload --empty-server`): what the client measures of it is its own."""

import contextlib
import json
import time
from collections.abc import Iterator

from sluice_tools.bench.serve.setting import Setting
from sluice_tools.measure.programs import Program

_READY_S = 30


class EmptyServer:
    """Started by running(), which also ends it."""

    def __init__(self, setting: Setting, answer_bytes: int):
        folder = setting.out / "servers"
        folder.mkdir(exist_ok=True)
        self._log = folder / "empty.log"
        command = [setting.sluice, "hybrid_workload", "--empty-server", str(answer_bytes)]
        self._program = Program(command, log=self._log)
        ports = self._ports()
        self.port, self.http_port = ports["grpc_port"], ports["http_port"]

    def _ports(self) -> dict:
        deadline = time.monotonic() + _READY_S
        while not (said := self._log.read_text()).endswith("}\n"):
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the empty server is not ready after {_READY_S} s")
            time.sleep(0.05)
        return json.loads(said)

    def check(self) -> None:
        if how := self._program.describe_end():
            raise RuntimeError(f"the empty server {how}")

    def end(self) -> None:
        self._program.end()


@contextlib.contextmanager
def running(setting: Setting, answer_bytes: int) -> Iterator[EmptyServer]:
    server = EmptyServer(setting, answer_bytes)
    try:
        yield server
    finally:
        server.end()
