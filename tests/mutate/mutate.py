#!/usr/bin/env python3
"""Puts faults into the code, one at a time, and sees whether the tests notice.

usage: mutate.py [FOLDER ...] [--seed S] [--places N] [--own] [--bare] [--list]   faults at places drawn at random
       mutate.py --place FILE:LINE:KIND [--place ...]                   the faults at these places
       mutate.py --kept [LIST ...]                                      the faults of kept/LIST.toml

Draws N places in each folder, all lines with equal chance that can get a fault of a fixed set of kinds: negate (a
condition), compare (< to <=, == to !=), logic, arithmetic, constant, call (removed), assignment (removed), return (an
empty value), guard (an early exit, removed). The tests that cover the file run from the nearest to the farthest until
one fails, which must then pass without the fault. A fault that does not build is drawn again at another place.

Works on a copy of the tree below build/mutate, so the checkout is never changed. The report is in
build/mutate/report.json. A survivor may be equivalent to the code as it is; only a reader can say so. Exit codes: 0
the tests noticed all faults; 1 some survived, or a kept fault is stale; 2 wrong usage.

examples:
  ./x mutate shm --seed 7 --places 60
  ./x mutate --place shm/view.hpp:22:logic        one fault of a report again
  ./x mutate --kept intercept liveness
"""

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from copy_of_tree import Copy, InUseError
from cover import Batch, Cover
from kept import Functions, StaleError, read_kept
from kinds import Fault, can_parse, faults_of

ROOT = Path(__file__).resolve().parents[2]
_NOT_PRODUCT = {"cmake", "docs", "exp_configs", "tests"}
NOTICED, SURVIVED, NO_BUILD = "noticed", "SURVIVED", "does not build"


class UsageError(Exception):
    pass


@dataclass(frozen=True)
class Outcome:
    fault: Fault
    result: str
    by: str = ""  # the first test that failed
    own: bool = False  # whether that test is one of the folder
    seconds: float = 0

    def as_json(self, root: Path) -> dict:
        text = (root / self.fault.file).read_bytes()
        was = text[: self.fault.start].rfind(b"\n") + 1
        changed = self.fault.put_in(text)
        return {
            "place": self.fault.place,
            "result": self.result,
            "by": self.by,
            "own": self.own,
            "seconds": round(self.seconds, 1),
            "was": _lines(text, was, self.fault.end),
            "becomes": _lines(changed, was, self.fault.start + len(self.fault.new.encode())),
        }


def _lines(text: bytes, start: int, end: int) -> str:
    stop = text.find(b"\n", end)
    return " ".join(text[start : stop if stop >= 0 else None].decode().split())


def interval(noticed: int, of: int) -> tuple[float, float]:
    """The 95 % interval of Wilson."""
    if of == 0:
        return 0.0, 1.0
    z, p = 1.96, noticed / of
    middle, width = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - width) / (1 + z * z / of), (middle + width) / (1 + z * z / of)


class Trial:
    """Puts one fault at a time into the copy and runs tests."""

    def __init__(self, copy: Copy, cover: Cover):
        self._copy = copy
        self._cover = cover
        self._built: set[tuple[str, ...]] = set()  # without a fault
        self.broken: set[str] = set()  # tests that fail without a fault

    def of(self, fault: Fault, batches: list[Batch]) -> Outcome:
        path = self._copy.tree / fault.file
        faulty = fault.put_in(path.read_bytes())
        seconds = 0.0
        try:
            for batch in batches:
                self._build_once(fault, batch)
                began = time.monotonic()
                path.write_bytes(faulty)
                result, by = self._run(fault, batch)
                seconds += time.monotonic() - began
                if result != SURVIVED:
                    return Outcome(fault, result, by, batch.own, seconds)
        finally:
            self._copy.restore(fault.file)
        return Outcome(fault, SURVIVED, seconds=seconds)

    def _build_once(self, fault: Fault, batch: Batch) -> None:
        """Else a fault would be blamed for what does not build without it, or takes too long to build at first."""
        if batch.targets in self._built:
            return
        self._copy.restore(fault.file)
        if not self._copy.build(batch.targets, limit_s=None):
            raise UsageError(
                f"without a fault, not all of {' '.join(batch.targets)} can be built; see {self._copy.log}"
            )
        self._built.add(batch.targets)

    def _run(self, fault: Fault, batch: Batch) -> tuple[str, str]:
        if not self._copy.build(batch.targets):
            # A program that cannot list its tests has been compiled.
            found = "Error running test executable" in self._copy.last_output()
            return (NOTICED, "listing the tests") if found else (NO_BUILD, "")
        if batch.pytest:
            failed = next((file for file in batch.pytest if self._pytest_notices(fault, batch, file)), "")
            return (NOTICED, failed) if failed else (SURVIVED, "")
        while failed := self._copy.failed_tests(self._cover.tests_of(batch), self.broken):
            # Twice, because a test may fail by chance; and not without the fault.
            if again := self._copy.failed_tests(failed, self.broken, at_once=1):
                if self._passes_without(fault, batch, lambda: not self._copy.failed_tests(again, set(), at_once=1)):
                    return NOTICED, again[0]
                self.broken |= set(again)
            else:
                self.broken |= set(failed)
        return SURVIVED, ""

    def _pytest_notices(self, fault: Fault, batch: Batch, file: str) -> bool:
        if file in self.broken or self._copy.pytest(file) in (0, 5):
            return False
        if self._passes_without(fault, batch, lambda: self._copy.pytest(file) == 0):
            return True
        self.broken.add(file)
        return False

    def _passes_without(self, fault: Fault, batch: Batch, test) -> bool:
        path = self._copy.tree / fault.file
        faulty = path.read_bytes()
        self._copy.restore(fault.file)
        passes = self._copy.build(batch.targets) and test()
        if not passes:
            path.write_bytes(faulty)
            self._copy.build(batch.targets)
        return passes


def parts_of(files: list[str]) -> list[str]:
    return sorted({file.split("/")[0] for file in files if "/" in file and can_parse(file)} - _NOT_PRODUCT)


def draw(part: str, files: list[str], root: Path, seed: str) -> Iterator[Fault]:
    """Faults in random order, one a line. The same seed and tree give the same order."""
    chance = random.Random(f"{seed} {part}")
    lines: dict[tuple[str, int], list[Fault]] = {}
    for file in files:
        if file.startswith(f"{part.rstrip('/')}/") and can_parse(file):
            for fault in faults_of(file, (root / file).read_bytes()):
                lines.setdefault((file, fault.line), []).append(fault)
    if not lines:
        raise UsageError(f"no code in '{part}'")
    for place in chance.sample(sorted(lines), len(lines)):
        yield chance.choice(lines[place])


def find_place(place: str, root: Path) -> Fault:
    file = place.split(":")[0]
    if not ((root / file).is_file() and can_parse(file)):
        raise UsageError(f"no such code: {file}")
    faults = faults_of(file, (root / file).read_bytes())
    for fault in faults:
        if fault.place == place:
            return fault
    here = [fault.place for fault in faults if fault.place.startswith(":".join(place.split(":")[:2]) + ":")]
    raise UsageError(f"no fault '{place}'; of that line there are: {', '.join(here) or 'none'}")


class Progress:
    def __init__(self, places: int):
        self._began = time.monotonic()
        self._places = places
        self._done = 0

    def say(self, outcome: Outcome) -> None:
        self._done += outcome.result != NO_BUILD
        left = (time.monotonic() - self._began) / max(self._done, 1) * (self._places - self._done)
        by = f" by {outcome.by}" if outcome.by else ""
        print(
            f"[{self._done}/{self._places}] {outcome.result:<8} {outcome.fault.place}{by} "
            f"({outcome.seconds:.0f} s; {left / 60:.0f} min left)",
            flush=True,
        )


def prepare(root: Path, bare: bool) -> tuple[Copy, Cover, list[str]]:
    copy = Copy(root, root / "build" / "mutate", bare)
    files = copy.refresh()
    if not copy.configure():
        raise UsageError(f"the tree cannot be configured; see {copy.log}")
    return copy, Cover(copy, files), files


def measure(part: str, options: argparse.Namespace, tools: tuple[Copy, Cover, list[str]], progress: Progress) -> dict:
    """Ends early, with the outcomes so far, at Ctrl-C: `options.interrupted`."""
    copy, cover, files = tools
    trial = Trial(copy, cover)
    outcomes: list[Outcome] = []
    faults = (fault for fault in draw(part, files, copy.tree, options.seed) if cover.is_built(fault.file))
    try:
        while sum(outcome.result != NO_BUILD for outcome in outcomes) < options.places:
            if (fault := next(faults, None)) is None:
                break
            batches = [batch for batch in cover.batches(fault.file) if batch.own or not options.own]
            outcomes.append(trial.of(fault, batches))
            progress.say(outcomes[-1])
    except KeyboardInterrupt:
        options.interrupted = True
    return summary(outcomes, copy.tree) | {"fail_without_a_fault": sorted(trial.broken)}


def summary(outcomes: list[Outcome], root: Path) -> dict:
    tried = [outcome for outcome in outcomes if outcome.result != NO_BUILD]
    noticed = [outcome for outcome in tried if outcome.result == NOTICED]
    return {
        "noticed": len(noticed),
        "of": len(tried),
        "interval": [round(bound, 3) for bound in interval(len(noticed), len(tried))],
        "own": sum(outcome.own for outcome in noticed),
        "did_not_build": len(outcomes) - len(tried),
        "places": [outcome.as_json(root) for outcome in outcomes],
    }


def print_summary(name: str, result: dict) -> None:
    low, high = (round(100 * bound) for bound in result["interval"])
    print(
        f"{name}: noticed {result['noticed']} of {result['of']} (95 % interval {low} to {high} %), "
        f"{result['own']} by its own tests; {result['did_not_build']} more did not build"
    )
    for place in result["places"]:
        if place["result"] == SURVIVED:
            print(f"  survived {place['place']}\n    - {place['was']}\n    + {place['becomes']}")
    if broken := result["fail_without_a_fault"]:
        print(f"  left out, because they fail without a fault or by chance: {', '.join(broken)}")


def finish(results: dict[str, dict], copy: Copy, seed: str) -> int:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=copy.root, capture_output=True, text=True, check=False)
    report = {"commit": commit.stdout.strip(), "seed": seed, "parts": results}
    (copy.log.parent / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print()
    for part, result in results.items():
        print_summary(part, result)
    return 0 if all(result["noticed"] == result["of"] for result in results.values()) else 1


def run_draw(options: argparse.Namespace, root: Path = ROOT) -> int:
    tools = copy, _, files = prepare(root, options.bare)
    parts = [part.rstrip("/") for part in options.names] or parts_of(files)
    progress = Progress(options.places * len(parts))
    options.interrupted = False
    results: dict[str, dict] = {}
    for part in parts:
        if not options.interrupted:
            results[part] = measure(part, options, tools, progress)
    return finish(results, copy, options.seed)


def run_places(options: argparse.Namespace, root: Path = ROOT) -> int:
    faults = [find_place(place, root) for place in options.place]
    copy, cover, _ = prepare(root, options.bare)
    trial = Trial(copy, cover)
    progress = Progress(len(faults))
    outcomes = []
    for fault in faults:
        batches = [batch for batch in cover.batches(fault.file) if batch.own or not options.own]
        if options.program:
            batches = [Batch(own=True, targets=tuple(options.program))]
        outcomes.append(trial.of(fault, batches))
        progress.say(outcomes[-1])
    return finish({"places": summary(outcomes, copy.tree) | {"fail_without_a_fault": sorted(trial.broken)}}, copy, "")


def run_kept(options: argparse.Namespace, root: Path = ROOT) -> int:
    copy, cover, files = prepare(root, options.bare)
    functions = Functions(copy.tree, [file for file in files if not file.startswith("tests/")])
    trial = Trial(copy, cover)
    kept = read_kept(options.names)
    located = [functions.locate(fault) for fault in kept]
    progress = Progress(len(kept))
    outcomes = []
    for entry, fault in zip(kept, located):
        print(f"{entry.list}: {entry.what}")
        outcomes.append(trial.of(fault, [Batch(True, (entry.program,), only=entry.tests)]))
        progress.say(outcomes[-1])
    return finish({"kept": summary(outcomes, copy.tree) | {"fail_without_a_fault": sorted(trial.broken)}}, copy, "")


def list_draw(options: argparse.Namespace, root: Path = ROOT) -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, check=True, text=True
    )
    files = sorted(file for file in listed.stdout.splitlines() if (root / file).is_file())
    for part in options.names or parts_of(files):
        for _, fault in zip(range(options.places), draw(part, files, root, options.seed)):
            place = Outcome(fault, "").as_json(root)
            print(f"{fault.place}\n    - {place['was']}\n    + {place['becomes']}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="FOLDER", help="parts of the product; with --kept, lists")
    parser.add_argument("--seed", default="1", help="any text; one that was not used before is an honest measure")
    parser.add_argument("--places", type=int, default=60, metavar="N", help="in each folder")
    parser.add_argument("--own", action="store_true", help="run only the tests of the file's own folder")
    parser.add_argument("--bare", action="store_true", help="without .venv: no LibTorch, no tests that need pytest")
    parser.add_argument("--list", action="store_true", help="print the draw and run nothing")
    parser.add_argument("--place", action="append", metavar="FILE:LINE:KIND", help="only this fault; may be repeated")
    parser.add_argument(
        "--program", action="append", metavar="TARGET", help="with --place: run this test program only; may be repeated"
    )
    parser.add_argument("--kept", action="store_true", help="the faults that are kept by hand")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)  # syntax trees are deep
    try:
        if options.list:
            return list_draw(options)
        if options.place:
            return run_places(options)
        return run_kept(options) if options.kept else run_draw(options)
    except (UsageError, StaleError, InUseError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 1 if isinstance(error, StaleError) else 2


if __name__ == "__main__":
    sys.exit(main())
