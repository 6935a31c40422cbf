"""Whole runs of `sluice serve` in which clients and devices misbehave; serve_test.cpp has the plain ones."""

import functools
import json
import os
import select
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from serving import PATIENCE_S, SLUICE, Server, command_line, eventually, in_background, serving

SLOW = """
slow
  path resnet152_b256
quick
  path mobilenet_v2_b1
best-effort
  path mobilenet_v2_b1
  priority 0
"""


@pytest.fixture
def slow_config(tmp_path):
    """A job of `slow` lasts about 60 ms of GPU time, which is 0.6 s on the simulated GPU."""
    (tmp_path / "models").write_text(SLOW)
    return ["--config", "models", "--gpu", "sim"]


def jobs_of(server: Server) -> int:
    status = subprocess.run([SLUICE, "status", "--session", server.session, "--json"], capture_output=True)
    (client,) = json.loads(status.stdout)["clients"]
    return client["jobs"]


def test_a_busy_period_is_one_job_and_best_effort_models_begin_none(tmp_path, slow_config):
    with serving(tmp_path, *slow_config) as server:
        before = jobs_of(server)
        assert server.infer("best-effort")[0] == 200
        assert jobs_of(server) == before
        assert server.infer("quick")[0] == 200
        assert eventually(lambda: jobs_of(server) == before + 1)
        calls = [in_background(functools.partial(server.infer, model)) for model in ("slow", "quick", "slow", "quick")]
        for thread, results in calls:
            thread.join()
            assert results[0][0] == 200
        assert eventually(lambda: jobs_of(server) == before + 2)


def test_a_killed_server_frees_its_port_and_its_board(tmp_path, slow_config):
    with serving(tmp_path, *slow_config) as server:
        server.process.kill()
        server.process.wait(PATIENCE_S)
        port = server.listen["grpc_port"]
    with socket.create_server(("127.0.0.1", port)):
        pass
    assert eventually(lambda: not server.board().exists())


def kill_gpu(session: str) -> None:
    """Kills the process of the simulated GPU, and removes its socket, which nobody else does."""
    name = f"{session}.simgpu"
    (gpu,) = [int(one.name) for one in Path("/proc").glob("[0-9]*") if name in command_line(one)]
    os.kill(gpu, signal.SIGKILL)
    Path(f"/dev/shm/sluice-{os.getuid()}/{name}").unlink()


def test_a_lost_device_ends_the_server_with_a_code_of_its_own(tmp_path, slow_config):
    with serving(tmp_path, *slow_config) as server:
        assert server.infer("quick")[0] == 200
        held = [in_background(functools.partial(server.infer, "slow")) for _ in range(8)]

        def all_are_in() -> bool:
            answered = sum(len(results) for _, results in held)
            waiting = server.waiting("slow")
            return waiting >= 4 and answered + 1 + waiting == len(held)

        assert eventually(all_are_in)
        kill_gpu(server.session)
        for thread, _ in held:
            thread.join()
        codes = [results[0][0] for _, results in held]
        # On a busy machine the one that runs may end before the GPU does.
        assert set(codes) <= {200, 500} and codes.count(500) >= 3, codes
        _, err = server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 3 and "the device is unusable" in err


def test_a_device_that_is_lost_before_a_load_ends_the_server_with_the_same_code(tmp_path, slow_config):
    (tmp_path / "models").write_text(SLOW + "later\n  path mobilenet_v2_b1\n  preload no\n")
    with serving(tmp_path, *slow_config) as server:
        kill_gpu(server.session)
        code, answer = server.call("/v2/repository/models/later/load", {})
        assert code == 500 and "model later" in answer["error"]
        _, err = server.process.communicate(timeout=PATIENCE_S)
        assert server.process.returncode == 3 and "the device is unusable" in err


def test_a_device_that_is_lost_while_models_are_preloaded_ends_the_server_with_the_same_code(tmp_path):
    """A service manager would take it for a mistake in the configuration, and not start the server again."""
    (tmp_path / "models").write_text("first\n  path mobilenet_v2_b1\nlater[20]\n  path resnet152_b256\n")
    session = f"preload-{os.getpid()}"
    command = [SLUICE, "serve", "-p", "0", "--http", "0", "--session", session, "--config", "models", "--gpu", "sim"]
    server = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr and "first on sim:0: recording" in server.stderr.readline()
        kill_gpu(session)
        out, err = server.communicate(timeout=PATIENCE_S)
    finally:
        server.kill()
    assert server.returncode == 3 and "the device is unusable" in err, err
    assert out == ""
    assert eventually(lambda: not Path(f"/dev/shm/sluice.{os.getuid()}.{session}").exists())


def resident_mb(pid: int) -> float:
    """The most memory that a process has had, in MB."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def test_memory_is_bounded_by_whole_bodies(tmp_path):
    """Prevents: a server that counts 8 bytes of tensor, and holds the 30 MB around them."""
    tensor = {"name": "input0", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
    padded = json.dumps({"inputs": [tensor]}).encode() + b" " * (30 << 20)
    with serving(tmp_path, "--models", "dummy", "--max-queue-mb", "64") as server:
        before = resident_mb(server.listen["pid"])
        port = server.listen["http_port"]
        head = f"POST /v2/models/dummy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(padded)}\r\n\r\n".encode()
        clients = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(8)]
        for client in clients:
            client.sendall(head + padded[: 1 << 16])
        arriving = list(clients)  # They take at most half of the memory: one of 30 MB, whichever came first.
        while len(arriving) > 1:
            answered = select.select(arriving, [], [], PATIENCE_S)[0]
            assert answered, f"{len(arriving)} are let in"
            assert {client.recv(12) for client in answered} == {b"HTTP/1.1 429"}
            arriving = [client for client in arriving if client not in answered]
        assert server.infer("dummy")[0] == 200
        arriving[0].sendall(padded[1 << 16 :])
        assert arriving[0].recv(12) == b"HTTP/1.1 200"
        for client in clients:
            client.close()

        def send_all() -> bytes:
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
                client.sendall(head + padded)
                return client.recv(12)

        calls = [in_background(send_all) for _ in range(8)]
        for thread, results in calls:
            thread.join()
            assert results[0] in (b"HTTP/1.1 200", b"HTTP/1.1 429")
        assert resident_mb(server.listen["pid"]) - before < 3 * 64
        assert eventually(lambda: server.call("/v2/sluice/status")[1]["queued_bytes"] == 0)


def test_a_client_that_drips_keeps_its_place_for_as_long_as_the_command_line_says(tmp_path):
    with (
        serving(tmp_path, "--models", "dummy", "--body-s", "0.5") as server,
        socket.create_connection(("127.0.0.1", server.listen["http_port"]), PATIENCE_S / 3) as client,
    ):
        client.sendall(b"POST /v2/models/dummy/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert client.recv(12) == b"HTTP/1.1 408"
