#!/usr/bin/env python3
"""Runs an unmodified perf_analyzer against the protocols of `sluice serve`: perf_analyzer.py FAKE_SERVER

SLUICE_PERF_ANALYZER is its command, "perf_analyzer" by default. The wheel of PyPI (perf-analyzer 2.60.0) needs glibc
2.38, which Debian 12 lacks. There, the loader of a later Debian runs it: SLUICE_PERF_ANALYZER="ld-linux-x86-64.so.2
--library-path FOLDER perf_analyzer". Exit code 77, which ctest reports as skipped: it does not run here.
"""

import os
import shlex
import subprocess
import sys


def runs(command):
    try:
        return subprocess.run([*command, "--version"], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def measure(command, protocol, port):
    """Asserts that the client took answers, and read the server's own statistics."""
    arguments = ["-m", "add", "-u", f"127.0.0.1:{port}", "-i", protocol, "--concurrency-range", "4"]
    arguments += ["--request-count", "500", "--warmup-request-count", "50"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=100)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    for line in ("Request count: 500", "Successful request count:", "Execution count:"):
        assert line in result.stdout, output


def main():
    command = shlex.split(os.environ.get("SLUICE_PERF_ANALYZER", "perf_analyzer"))
    if not runs(command):
        print(f"SKIPPED: {command[0]} does not run on this machine (SLUICE_PERF_ANALYZER names another)")
        return 77
    server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin and server.stdout
    ports = server.stdout.readline().split()
    try:
        for protocol, port in zip(("grpc", "http"), ports, strict=True):
            measure(command, protocol, port)
    finally:
        server.stdin.close()
        code = server.wait(30)
    return code


if __name__ == "__main__":
    sys.exit(main())
