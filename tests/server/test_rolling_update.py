"""Updates of two servers behind a load balancer, one after the other, while clients send requests: none may be lost.

The whole run (20 updates at 500 requests a second, through HAProxy and nginx, which Debian has):

    SLUICE_TEST_PROGRAM=build/bin/sluice python tests/server/test_rolling_update.py --updates 20 --rate 500

The same with tritonserver instead (PyPI's nvidia-pytriton): PYTHONPATH=tools/python, --triton PROGRAM
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SLUICE = os.environ.get("SLUICE_TEST_PROGRAM", "sluice")
PATIENCE_S = 60
TENSOR = {"name": "input0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
OUTPUT = {"name": "output0", "parameters": {"binary_data": True}}

# A server is seen to be down after 0.6 s, and it takes requests for 2 s.
HAPROXY = """
global
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 3
  option redispatch
frontend clients
  bind 127.0.0.1:{port} {protocol}
  default_backend servers
backend servers
  option httpchk {method} /v2/health/ready
  default-server check inter 200ms fall 2 rise 2 {protocol}
  server one 127.0.0.1:{one} check port {one_http} check-proto h1
  server two 127.0.0.1:{two} check port {two_http} check-proto h1
"""

# nginx probes nobody: it learns of a server's end from a connection that is refused.
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream servers {{
    server 127.0.0.1:{one} max_fails=1 fail_timeout=1s;
    server 127.0.0.1:{two} max_fails=1 fail_timeout=1s;
    keepalive 16;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""
HAPROXY_COMMAND = ["haproxy", "-db", "-f"]
BALANCERS = {
    "haproxy": (HAPROXY, HAPROXY_COMMAND),
    "nginx": (NGINX, ["nginx", "-c"]),
    "haproxy-grpc": (HAPROXY, HAPROXY_COMMAND),
}


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")


class Server:
    """One of the two. Its ports stay the same over its updates."""

    names = ("input0", "output0")
    probe = "HEAD"

    def __init__(self, grpc_port: int, http_port: int):
        self.grpc_port = grpc_port
        self.http_port = http_port
        self.start()

    def start(self) -> None:
        session = f"roll-{os.getpid()}-{self.http_port}"
        words = ["--models", "dummy", "-p", str(self.grpc_port), "--http", str(self.http_port)]
        words += ["--json", "--session", session]
        words += ["--drain-delay-s", "2"]
        self.process = subprocess.Popen([SLUICE, "serve", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout and self.process.stdout.readline(), self.process.communicate()[1]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, err

    def update(self) -> None:
        self.end()
        self.start()


def triton(program: str, folder: Path) -> type[Server]:
    """A Server that is a tritonserver, with a model that has the name and the shapes of ours."""
    from sluice_tools.bench.serve import peers

    found = peers.find(program)
    assert found
    model = peers.PeerModel("dummy", "echo", 8, ("INPUT0", (2,)), ("OUTPUT0", (2,)))

    class Triton(Server):
        names = ("INPUT0", "OUTPUT0")
        probe = "GET"  # It does not answer HEAD.

        def start(self) -> None:
            place = folder / f"{self.http_port}"
            started = peers.Triton(found, place, [model], None, ports=(self.grpc_port, self.http_port))
            started.wait_ready()
            self.process = started.process

        def end(self) -> None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)

    return Triton


@contextlib.contextmanager
def balancer(name: str, folder: Path, ports: dict[str, int], probe: str) -> Iterator[None]:
    text, command = BALANCERS[name]
    config = folder / f"{name}.conf"
    protocol = "proto h2" if name.endswith("grpc") else ""
    config.write_text(text.format(folder=folder, protocol=protocol, method=probe, **ports))
    path = program(command[0])
    assert path
    process = subprocess.Popen([path, *command[1:], config], stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports["port"]), 1):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


class Load:
    """Clients that keep their connections, and together send `rate` requests a second."""

    def __init__(self, port: int, rate: float, names: tuple[str, str], clients: int = 20):
        self._port = port
        self._names = names
        tensors = {"inputs": [TENSOR | {"name": names[0]}], "outputs": [OUTPUT | {"name": names[1]}]}
        self._body = json.dumps(tensors).encode()
        self._pause_s = clients / rate
        self._clients = clients
        self._head = (
            f"POST /v2/models/dummy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(self._body)}\r\n\r\n".encode()
        )
        self.results: collections.Counter = collections.Counter()
        self.running = True

    async def run(self) -> None:
        await asyncio.gather(*(self._client(i * self._pause_s / self._clients) for i in range(self._clients)))

    async def _client(self, first_s: float) -> None:
        connection = None
        due = time.monotonic() + first_s
        while self.running:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += self._pause_s
            try:
                if connection is None:
                    connection = await asyncio.open_connection("127.0.0.1", self._port)
                stays, result = await asyncio.wait_for(self._ask(*connection), PATIENCE_S)
            except (OSError, EOFError, TimeoutError, asyncio.TimeoutError) as error:
                stays, result = False, type(error).__name__
            self.results[result] += 1
            if not stays and connection:
                connection[1].close()
                connection = None
        if connection:
            connection[1].close()

    async def _ask(self, reader, writer) -> tuple[bool, str]:
        writer.write(self._head + self._body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        await reader.readexactly(int(fields.get("content-length", 0)))
        return fields.get("connection") != "close", head.split(" ", 2)[1]


class GrpcLoad(Load):
    """One channel for all, as clients of gRPC have it."""

    async def run(self) -> None:
        import grpc.aio
        from tritonclient.grpc import service_pb2

        request = service_pb2.ModelInferRequest(model_name="dummy")
        request.inputs.add(name=self._names[0], datatype="FP32", shape=[1, 2])
        request.raw_input_contents.append(bytes(8))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            self._call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            self._request = request.SerializeToString()
            await super().run()

    async def _client(self, first_s: float) -> None:
        import grpc

        due = time.monotonic() + first_s
        while self.running:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due += self._pause_s
            try:
                await self._call(self._request, timeout=PATIENCE_S)
                self.results["200"] += 1
            except grpc.RpcError as error:
                self.results[f"{error.code()}: {error.details()}"] += 1


def roll(
    name: str, folder: Path, updates: int, rate: float, kind_of_server: type[Server] = Server
) -> collections.Counter:
    """The results of all requests: HTTP codes, and names of errors."""
    names = ("port", "one_grpc", "two_grpc", "one_http", "two_http")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    kind = "grpc" if name.endswith("grpc") else "http"
    ports |= {server: ports[f"{server}_{kind}"] for server in ("one", "two")}
    servers = [kind_of_server(ports[f"{server}_grpc"], ports[f"{server}_http"]) for server in ("one", "two")]
    load = GrpcLoad if kind == "grpc" else Load
    try:
        with balancer(name, folder, ports, kind_of_server.probe):
            time.sleep(1)
            clients = load(ports["port"], rate, kind_of_server.names)
            return asyncio.run(update_under_load(servers, clients, updates))
    finally:
        for server in servers:
            server.process.kill()
            server.process.communicate()


async def update_under_load(servers: list[Server], load: Load, updates: int) -> collections.Counter:
    clients = asyncio.create_task(load.run())
    await asyncio.sleep(1)
    for number in range(updates):
        await asyncio.to_thread(servers[number % 2].update)
        await asyncio.sleep(2)  # The balancer takes the server back.
    load.running = False
    await clients
    return load.results


@pytest.mark.parametrize("name", BALANCERS)
def test_an_update_loses_no_request(tmp_path, name):
    """Prevents: a server that refuses, or cuts, what its clients send before they know of its end."""
    if program(BALANCERS[name][1][0]) is None:
        pytest.skip(f"there is no {name}")
    if name.endswith("grpc"):
        pytest.importorskip("tritonclient.grpc")
    results = roll(name, tmp_path, updates=2, rate=50)
    assert set(results) == {"200"}, results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rate", type=float, default=500, help="requests a second")
    parser.add_argument("--balancer", choices=BALANCERS, action="append")
    parser.add_argument("--triton", metavar="PROGRAM", help="roll two of this tritonserver instead")
    options = parser.parse_args()
    lost = 0
    for name in options.balancer or BALANCERS:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            server = triton(options.triton, Path(folder)) if options.triton else Server
            results = roll(name, Path(folder), options.updates, options.rate, server)
        seconds = time.monotonic() - begin
        count = sum(results.values())
        print(f"{name}: {options.updates} updates in {seconds:.0f} s, {count} requests: {dict(results)}", flush=True)
        lost += sum(count for result, count in results.items() if result != "200")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
