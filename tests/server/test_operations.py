"""What operations do to a running `sluice serve`: logs are rotated, certificates renewed, pipes read or not."""

import json
import os
import signal
import ssl
import subprocess
from pathlib import Path

import pytest
from serving import PATIENCE_S, SLUICE, Server, eventually, serving

LOGS = ["--access-log", "access.log", "--records", "records.jsonl"]


def lines(*paths) -> list[list[str]]:
    """The ids in each file, all of whose lines must be JSON."""
    return [[json.loads(line)["id"] for line in path.read_text().splitlines()] for path in paths]


def ask(server: Server, *ids: int) -> None:
    tensor = {"name": "input0", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}
    for number in ids:
        status, answer = server.call("/v2/models/dummy/infer", {"id": str(number), "inputs": [tensor]})
        assert status == 200, answer


def test_logs_are_rotated_in_the_three_usual_ways(tmp_path):
    """NUL bytes, lines that a start deletes, or a server that SIGHUP ends."""
    files = [tmp_path / "access.log", tmp_path / "records.jsonl"]
    with serving(tmp_path, "--models", "dummy", *LOGS) as server:
        ask(server, 0, 1)
        for path in files:  # copytruncate
            os.truncate(path, 0)
        ask(server, 2, 3)
        assert lines(*files) == [["2", "3"]] * 2
        for path in files:  # rename, and SIGHUP
            path.rename(f"{path}.1")
        ask(server, 4)
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: all(path.exists() for path in files))
        ask(server, 5, 6)
        server.process.send_signal(signal.SIGHUP)
        ask(server, 7)
        code, err = server.end()
        assert code == 0 and "SIGHUP" in err
    with serving(tmp_path, "--models", "dummy", *LOGS) as server:  # a restart
        ask(server, 8)
    assert lines(*files) == [["5", "6", "7", "8"]] * 2
    assert lines(*(path.with_name(path.name + ".1") for path in files)) == [["2", "3", "4"]] * 2


def test_a_pipe_without_a_reader_does_not_block_the_start(tmp_path):
    os.mkfifo(tmp_path / "access.log")
    with serving(tmp_path, "--models", "dummy", *LOGS) as server:
        ask(server, 0)
        reader = os.open(tmp_path / "access.log", os.O_RDONLY | os.O_NONBLOCK)
        assert json.loads(os.read(reader, 65536))["id"] == "0"
        os.close(reader)
        ask(server, 1, 2)
        code, err = server.end()
        assert code == 0 and err.count("nobody reads the pipe access.log") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_waits_for_a_file_can_be_ended(tmp_path, number):
    """Only SIGKILL would end it: the server looks at its signals later."""
    os.mkfifo(tmp_path / "tokens", 0o600)
    command = [SLUICE, "serve", "--models", "dummy", "-p", "0", "--http", "0", "--session", f"early-{os.getpid()}"]
    process = subprocess.Popen(
        [*command, "--token-file", "tokens"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        # It waits for a writer in open().
        assert eventually(lambda: blocked(process.pid))
        process.send_signal(signal.SIGHUP)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0 and "ended while it starts" in err


def blocked(pid: int) -> bool:
    """Whether the first thread of the server waits in the kernel, with SIGTERM blocked."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    masked = int(status["SigBlk"], 16) >> (signal.SIGTERM - 1) & 1
    return bool(masked) and status["State"].startswith("S") and int(status["Threads"]) > 1


def renew(folder, name: str) -> str:
    """A new certificate, by rename as tools do. Returns it."""
    new = ["-keyout", "key.new", "-out", "cert.new", "-subj", f"/CN={name}", "-days", "2", "-nodes"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *new]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    os.chmod(folder / "key.new", 0o600)
    os.replace(folder / "key.new", folder / "key.pem")
    os.replace(folder / "cert.new", folder / "cert.pem")
    return (folder / "cert.pem").read_text()


def served(server: Server) -> list[str]:
    return [ssl.get_server_certificate(("127.0.0.1", server.listen[port])) for port in ("http_port", "grpc_port")]


def test_a_renewed_certificate_is_served_after_sighup(tmp_path):
    first = renew(tmp_path, "first")
    with serving(tmp_path, "--models", "dummy", "--tls-cert", "cert.pem", "--tls-key", "key.pem") as server:
        assert served(server) == [first, first]
        second = renew(tmp_path, "second")
        assert served(server) == [first, first]
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: served(server) == [second, second])
        (tmp_path / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        third = renew(tmp_path, "third")
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: served(server) == [third, third])
        (tmp_path / "key.pem").write_text("no key")
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: served(server) == [third, third])
        code, err = server.end()
        assert code == 0 and "goes on with the certificate of before" in err
