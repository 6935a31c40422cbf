"""The LLM server as a process: requests and tokens as lines on a Unix socket.

It answers commands like the other programs (bench/common/protocol.py): it says `ready` once requests can come; graphs
(how many CUDA graphs exist); quit. A request is {"name": ..., "prompt": [tokens], "new": N} or {"cancel": name}. The
server sends `NAME COUNT LAST` for each token that was generated: how many there are, and 1 with the last one. Another
server of this protocol can take its place (`--server`). It calls nothing of Sluice.
"""

import argparse
import json
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING

from sluice_tools.bench.common.protocol import answer, run_program
from sluice_tools.bench.programs.setting import Setting

if TYPE_CHECKING:
    from sluice_tools.bench.llm.engine import Engine

_LOOK_S = 0.2


class _Client:
    """The client that is connected at the moment, or none."""

    def __init__(self):
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def set(self, connection: socket.socket | None) -> None:
        with self._lock:
            self._connection = connection

    def send(self, text: str) -> None:
        with self._lock:
            if self._connection:
                try:
                    self._connection.sendall(text.encode())
                except OSError:  # it has left
                    self._connection = None


def _read(engine: "Engine", lines) -> None:
    for line in lines:
        request = json.loads(line)
        if "cancel" in request:
            engine.cancel(request["cancel"])
        else:
            engine.add(request["name"], request["prompt"], request["new"])


def _accept(engine: "Engine", listener: socket.socket, client: _Client) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile() as lines:
            client.set(connection)
            try:
                _read(engine, lines)
            except OSError:
                pass  # it has left
            finally:
                client.set(None)


def _send(engine: "Engine", client: _Client) -> None:
    try:
        while True:
            if found := engine.outputs(_LOOK_S):
                client.send("".join(f"{name} {count} {last:d}\n" for name, count, last in found))
    except RuntimeError as error:
        answer("error", text=str(error))
        os._exit(1)  # the other threads wait for what does not come


def serve(commands, path: str, engine) -> None:
    """engine: an Engine, or what has its add(), cancel(), outputs() and graphs()."""
    client = _Client()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        for target, arguments in ((_accept, (engine, listener, client)), (_send, (engine, client))):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        answer("ready")
        while commands.next()["do"] != "quit":
            answer("graphs", count=engine.graphs())
    sys.stdout.flush()
    os._exit(0)  # the threads have no end of their own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    from sluice_tools.bench.llm.engine import Engine  # another server that calls serve() needs no transformers

    return run_program(lambda commands: serve(commands, options.socket, Engine(Setting(options.device, options.tiny))))


if __name__ == "__main__":
    sys.exit(main())
