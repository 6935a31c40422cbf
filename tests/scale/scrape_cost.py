#!/usr/bin/env python3
"""Counts what a scrape of a controller's metrics costs: series, bytes, and time, for some numbers of clients.

Half of the clients are critical and have a target, the other half is best effort; all run on the simulated GPU and
have one label. Needs a build.

usage: scrape_cost.py BUILD [--clients 0,2,8] [--seconds 3] [--drop REGEX] [--most N]

  --drop REGEX   do not count series that match, as if Prometheus dropped them (bytes are of the whole page)
  --most N       end with 1 if a client adds more than N series, or none
"""

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

_SCRAPES = 50


class Session:
    def __init__(self, build: Path, stack: ExitStack):
        self.sluice = build / "bin" / "sluice"
        self.name = f"test-{os.getpid()}-scrape"
        self._stack = stack
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log"
        self._start([self.sluice, "controller", "--session", self.name, "--metrics", "127.0.0.1:0"], log)
        self.url = self._address(log)

    def _start(self, command: list, log: Path | None = None) -> None:
        errors = log.open("w") if log else subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)

    @staticmethod
    def _address(log: Path) -> str:
        for _ in range(200):
            if found := re.search(r"http://[^/\s]+/metrics", log.read_text()):
                return found[0]
            time.sleep(0.05)
        raise SystemExit(f"scrape_cost: no controller: {log.read_text()}")

    def add_client(self, number: int) -> None:
        critical = number % 2
        options = ["--priority", "1", "--target", "p99=2x"] if critical else ["--priority", "0"]
        work = ["--kernels", "20", "--period-ms", "20", "--mark"] if critical else ["--kernels", "100"]
        who = ["--name", f"client{number}", "--label", "team=vision", "--session", self.name, "--gpu", "sim"]
        self._start([self.sluice, "exec", *who, *options, "--", "sluice-example-spin", *work])

    def scrape(self) -> bytes:
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            return answer.read()

    def wait_for_clients(self, count: int) -> None:
        for _ in range(400):
            if len(re.findall(rb"^sluice_client_info\{", self.scrape(), re.MULTILINE)) == count:
                return
            time.sleep(0.05)
        raise SystemExit(f"scrape_cost: no {count} clients within 20 s")


def series(page: bytes, drop: str | None) -> int:
    lines = [line for line in page.decode().splitlines() if line and not line.startswith("#")]
    return sum(1 for line in lines if not (drop and re.search(drop, line)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--clients", default="0,2,8")
    parser.add_argument("--seconds", type=float, default=3, help="how long clients work before they are counted")
    parser.add_argument("--drop")
    parser.add_argument("--most", type=int)
    options = parser.parse_args()
    print(f"{'clients':>7} {'series':>7} {'bytes':>7} {'gzip':>6} {'ms a scrape':>11}")
    counted = []
    with ExitStack() as stack:
        session = Session(options.build.resolve(), stack)
        running = 0
        for count in sorted(int(part) for part in options.clients.split(",")):
            for number in range(running, count):
                session.add_client(number)
            running = count
            session.wait_for_clients(count)
            time.sleep(options.seconds)
            begin = time.perf_counter()
            pages = [session.scrape() for _ in range(_SCRAPES)]
            took_ms = (time.perf_counter() - begin) / _SCRAPES * 1e3
            packed = len(gzip.compress(pages[-1]))
            counted.append((count, series(pages[-1], options.drop)))
            print(f"{count:>7} {counted[-1][1]:>7} {len(pages[-1]):>7} {packed:>6} {took_ms:>11.2f}", flush=True)
    (fewest, least), (most, many) = counted[0], counted[-1]
    per_client = (many - least) / max(1, most - fewest)
    if options.most and not 0 < per_client <= options.most:
        print(f"scrape_cost: a client adds {per_client:.0f} series, not 1 to {options.most}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
