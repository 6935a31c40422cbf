"""See run.sh. One line a program; details in OUT/PROGRAM/."""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from cases import PROGRAMS, Program
from measure import SIM, Lane, Measured
from report import show, verdict


class Schedule:
    """Gives the programs of a queue to lanes, and prints and keeps what they find."""

    def __init__(self, options):
        self.options, self.lock, self.results = options, threading.Lock(), []

    def next(self, queue: list[Program]) -> Program | None:
        """A program whose runs do not fit any more makes room for a shorter one."""
        with self.lock:
            for program in queue:
                if time.monotonic() + 2.5 * program.wall < self.options.deadline:
                    queue.remove(program)
                    return program
        return None

    def work(self, lane: Lane, queue: list[Program]) -> None:
        while program := self.next(queue):
            start = time.monotonic()
            try:
                measured = lane.measure(program)
            except Exception as error:
                measured = Measured({}, mine=f"run.py: {error!r}")
                lane.stop_neighbour()
            line = verdict(program, measured, speeds=self.options.lanes == 1)
            with self.lock:
                self.results.append(line)
                print(show(line, time.monotonic() - start), flush=True)
                with open(Path(self.options.out) / "results.jsonl", "a") as file:
                    file.write(json.dumps(line) + "\n")

    def phase(self, lanes: list[list[int]], queue: list[Program]) -> None:
        if not queue:
            return
        own = [Lane(lane, number, self.options) for number, lane in enumerate(lanes)]
        threads = [threading.Thread(target=self.work, args=(lane, queue)) for lane in own]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def chosen(which: list[str]) -> list[Program]:
    unknown = [w for w in which if w not in {p.name for p in PROGRAMS} | {"all", "cpp", "py", "multi"}]
    if unknown:
        sys.exit(f"no such program or set: {unknown}")
    return [
        p
        for p in PROGRAMS
        if ({"all", p.name, p.kind if p.gpus == 1 else "multi"} & set(which)) and not (SIM and p.sim is None)
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--gpus", type=int, default=0, help="0: all")
    parser.add_argument("--lanes", type=int, default=1, help="programs at once on each GPU; speeds are not judged")
    parser.add_argument("--modes", default="abdc", help="ab: without the neighbour")
    parser.add_argument("--exec", default="", help="more options of sluice exec, as --exec='--sms 50%%'")
    parser.add_argument("which", nargs="*", default=["all"])
    options = parser.parse_args()
    begin = time.monotonic()
    options.deadline = begin + options.seconds
    gpus = options.gpus or 1
    if not options.gpus and not SIM:
        gpus = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
    wanted = chosen(options.which)
    schedule = Schedule(options)
    if gpus >= 2:
        schedule.phase([[i, i + 1] for i in range(0, gpus - 1, 2)], [p for p in wanted if p.gpus == 2])
    if gpus >= 4:
        schedule.phase([list(range(4))], [p for p in wanted if p.gpus == 4])
    schedule.phase([[i] for i in range(gpus)] * options.lanes, [p for p in wanted if p.gpus == 1])
    missing = sorted({p.name for p in wanted} - {line["program"] for line in schedule.results})
    counts = dict(collections.Counter("+".join(line["words"]) for line in schedule.results))
    print(f"== {counts}; {time.monotonic() - begin:.0f} s on {gpus} GPUs; not run: {' '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
