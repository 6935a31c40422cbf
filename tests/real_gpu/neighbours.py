#!/usr/bin/env python3
"""What neighbours may cost a critical program, and what best effort gets next to one that is never idle.

Conditions take turns next to one critical process, in another order each round; differences are paired by round. Each
part has a GPU for itself, so several parts run at once where there are several GPUs.

usage: neighbours.py OUT [--gpu real|sim] [--rounds N] [--seconds S] [--settle S] [PART ...]

  slice    a best-effort program of kernels of 30 ms asks for `--slice 100ms`, or for nothing
  beat     a second best-effort program has an empty kernel each 0.5 s, or does not run
  idle     eight more processes of best effort have a context and do nothing, or do not run
  apart    the same, outside Sluice
  outside  another program outside Sluice keeps the GPU busy: what does best effort get next to a critical job of 2 ms
           every 6 ms? (best effort alone is measured first)
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))
from sluice_tools.measure.paired import compare  # noqa: E402

SLUICE, SPIN = str(ROOT / "build/bin/sluice"), str(ROOT / "build/libexec/sluice/sluice-example-spin")


class Program:
    """A running sluice-example-spin; `ended`: when each job ended (s) and what it took (ms)."""

    running: ClassVar[set["Program"]] = set()

    def __init__(self, session: "Session", words: str, priority: int | None = None, name: str = "", **more):
        own = [SPIN, *words.split(), "--each"]
        under = ["--gpu", session.gpu, "--session", session.name]
        if priority is None:
            command = [SLUICE, "exec", "--no-intercept", *under[:2], "--", *own] if session.gpu == "sim" else own
        else:
            settings = [word for key, value in more.items() for word in (f"--{key}", value)]
            command = [SLUICE, "exec", *under, "--priority", str(priority), "--name", name, *settings, "--", *own]
        self.ended: list[tuple[float, float]] = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=session.log, env=session.env, text=True, start_new_session=True
        )
        Program.running.add(self)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if len(words) == 2:
                self.ended.append((float(words[0]), float(words[1])))

    def between(self, begin: float, end: float) -> list[float]:
        return [ms for at, ms in list(self.ended) if begin <= at < end]

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        Program.running.discard(self)
        self.reader.join(5)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Session:
    """A Sluice session on one GPU, and what runs in it."""

    def __init__(self, part: str, device: int, options):
        self.part, self.gpu, self.options = part, options.gpu, options
        self.name = f"neighbours-{os.getpid()}-{part}"
        self.env = dict(os.environ, SLUICE_NODE_DIR="")
        if self.gpu == "real":
            self.env["CUDA_VISIBLE_DEVICES"] = str(device)
        self.log = open(options.out / f"{part}.log", "w")  # noqa: SIM115
        self.programs: list[Program] = []

    def start(self, words: str, priority: int | None = None, name: str = "", **more) -> Program:
        self.programs.append(Program(self, words, priority, name, **more))
        return self.programs[-1]

    def end(self, program: Program) -> None:
        self.programs.remove(program)
        program.stop()

    def sluice(self, *words: str) -> str:
        command = [SLUICE, *words, "--session", self.name]
        return subprocess.run(command, env=self.env, capture_output=True, text=True).stdout

    def note(self, what: str) -> None:
        self.log.write(f"== {what}\n{self.sluice('status')}\n")
        self.log.flush()

    def window(self, program: Program) -> list[float]:
        time.sleep(self.options.settle)
        begin = time.monotonic()
        time.sleep(self.options.seconds)
        return program.between(begin, time.monotonic())

    def close(self) -> None:
        for program in reversed(self.programs):
            program.stop()
        self.log.close()


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


CRITICAL = "--kernels 4 --kernel-us 200 --period-ms 12 --poisson"


def in_turns(session: Session, critical: Program, without, with_it) -> dict:
    """Rounds of two conditions; each is set by a function, which returns one that ends it."""
    rounds = []
    for index in range(session.options.rounds):
        found = {}
        order = [("without", without), ("with", with_it)]
        random.shuffle(order)
        for name, begin in order:
            end = begin()
            found[name] = session.window(critical)
            if index == 0:
                session.note(name)
            end()
        rounds.append(found)
    table = {"part": session.part, "rounds": len(rounds)}
    for figure, share in (("p50", 0.5), ("p99", 0.99)):
        for name in ("without", "with"):
            table[f"{figure}_{name}_ms"] = round(statistics.median(at(r[name], share) for r in rounds), 4)
        ratios = [at(r["with"], share) / at(r["without"], share) for r in rounds]
        paired = compare(ratios)
        if paired is not None:
            table[f"{figure}_ratio"] = [round(x, 3) for x in (paired.mean, paired.low, paired.high)]
    return table


def nothing():
    return lambda: None


def part_slice(session: Session) -> dict:
    session.start("--kernels 2 --kernel-us 30000", 0, "train")
    critical = session.start("--kernels 4 --kernel-us 200 --period-ms 40 --poisson", 5, "server")
    time.sleep(6)

    def ask():
        session.sluice("set", "train", "--slice", "100ms")
        return lambda: session.sluice("set", "train", "--slice", "auto")

    return in_turns(session, critical, nothing, ask)


def neighbours(session: Session, words: str, count: int, priority: int | None):
    def begin():
        started = [session.start(words, priority, f"more{i}") for i in range(count)]
        time.sleep(2)

        def end():
            for program in started:
                session.end(program)
            time.sleep(1)

        return end

    return begin


def next_to(session: Session, words: str, count: int, priority: int | None) -> dict:
    session.start("--kernels 2 --kernel-us 5000", 0, "train")
    critical = session.start(CRITICAL, 5, "server")
    time.sleep(6)
    return in_turns(session, critical, nothing, neighbours(session, words, count, priority))


def part_beat(session: Session) -> dict:
    return next_to(session, "--kernels 1 --kernel-us 1 --period-ms 500", 1, 0)


def part_idle(session: Session) -> dict:
    return next_to(session, "--kernels 1 --kernel-us 1 --period-ms 3600000", 8, 0)


def part_apart(session: Session) -> dict:
    return next_to(session, "--kernels 1 --kernel-us 1 --period-ms 3600000", 8, None)


def part_outside(session: Session) -> dict:
    seconds = 20.0
    train = session.start("--kernels 20 --kernel-us 200", 0, "train")
    time.sleep(3)
    alone = len(session.window(train))
    critical = session.start("--kernels 20 --kernel-us 100 --period-ms 6", 5, "server")
    outsider = session.start("--kernels 20 --kernel-us 200")
    time.sleep(5)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    status = session.sluice("status")
    jobs = critical.between(begin, end)
    speed = len(train.between(begin, end)) / seconds
    session.end(outsider)
    return {
        "part": "outside",
        "best_effort_share": round(speed / (alone / session.options.seconds), 4),
        "outsider_jobs_a_second": round(len(outsider.between(begin, end)) / seconds, 1),
        "critical_jobs_a_second": round(len(jobs) / seconds, 1),
        "critical_p50_ms": round(at(jobs, 0.5), 3),
        "status": status.splitlines(),
    }


PARTS = {"slice": part_slice, "beat": part_beat, "idle": part_idle, "apart": part_apart, "outside": part_outside}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    parser.add_argument("--gpu", default="real", choices=["real", "sim"])
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one window")
    parser.add_argument("--settle", type=float, default=2.0, help="before it")
    options = parser.parse_intermixed_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {' '.join(unknown)}; there are {' '.join(PARTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    queue, lock = list(options.parts), threading.Lock()

    def work(device: int) -> None:
        while True:
            with lock:
                if not queue:
                    return
                part = queue.pop(0)
            session = Session(part, device, options)
            try:
                line = json.dumps(PARTS[part](session))
            finally:
                session.close()
            with lock, open(options.out / "neighbours.jsonl", "a") as file:
                file.write(line + "\n")
                print(line, flush=True)

    threads = [threading.Thread(target=work, args=(device,), daemon=True) for device in range(options.gpus)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for program in list(Program.running):
            program.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
