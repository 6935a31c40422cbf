#!/usr/bin/env python3
"""Puts plausible faults into the code, one at a time, and sees whether the tests notice.

usage: mutate.py [--list] [FOLDER ...]

Faults are in FOLDER.toml next to this script. Each has: file, what (a line for people), old (text that
is in the file exactly once), new, and the tests that should fail: either `ctest` (a regular expression
of ctest -R) with `targets` (what to build for it), or `pytest` (files below tests/python; those
named test_tvm* run with .venv-tvm).

Works on a copy of the tree below build/mutate, so the checkout is never changed. Every test that is
named is first run without a fault, and must pass. Exit codes: 0 all faults were killed; 1 some
survived, or a fault no longer applies or does not build; 2 wrong usage.

examples:
  ./x mutate                 all folders
  ./x mutate runner          the faults of runner.toml
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_TEST_LIMIT_S = 300
KILLED, SURVIVED, STALE, NO_BUILD = "killed", "SURVIVED", "DOES NOT APPLY", "DOES NOT BUILD"


@dataclass(frozen=True)
class Fault:
    folder: str
    file: str
    what: str
    old: str
    new: str
    ctest: str = ""
    targets: tuple[str, ...] = ()
    pytest: tuple[str, ...] = ()

    @property
    def tests(self) -> str:
        return self.ctest or " ".join(self.pytest)


class UsageError(Exception):
    pass


def read_faults(folder: str, place: Path = HERE) -> list[Fault]:
    """Raises UsageError where the file is missing or says something unknown."""
    file = place / f"{folder}.toml"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in place.glob("*.toml")))
        raise UsageError(f"no faults for '{folder}'; there are: {known}")
    faults = []
    for number, entry in enumerate(tomllib.loads(file.read_text())["fault"], 1):
        for key in {"targets", "pytest"} & set(entry):
            entry[key] = tuple(entry[key])
        try:
            fault = Fault(folder, **entry)
        except TypeError as error:
            raise UsageError(f"{file.name}: fault {number}: {error}") from None
        if bool(fault.ctest) == bool(fault.pytest) or bool(fault.ctest) != bool(fault.targets):
            raise UsageError(f"{file.name}: fault {number}: needs ctest and targets, or pytest")
        faults.append(fault)
    return faults


class Copy:
    """A copy of the tree with a build of its own."""

    def __init__(self, root: Path, folder: Path):
        self._root = root
        self.tree = folder / "tree"
        self._build = folder / "build"
        self._log = folder / "log.txt"

    def refresh(self) -> None:
        """Copies what git tracks, or would: only files that changed, so that little is built anew."""
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"],
            cwd=self._root,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        names = {name for name in listed.split("\0") if (self._root / name).is_file()}
        for path in list(self.tree.rglob("*")) if self.tree.exists() else ():
            if path.is_file() and str(path.relative_to(self.tree)) not in names:
                path.unlink()
        for name in names:
            self.restore(name)

    def restore(self, name: str) -> None:
        source, target = self._root / name, self.tree / name
        if target.exists() and source.read_bytes() == target.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)

    def configure(self) -> bool:
        return self._run(
            "cmake",
            "-S",
            self.tree,
            "-B",
            self._build,
            "-G",
            "Ninja",
            "-DCMAKE_BUILD_TYPE=Debug",
            "-DCMAKE_CXX_FLAGS_DEBUG=-O1",  # without, some tests take five times as long
            "--log-level=NOTICE",
            f"-DSLUICE_VENV={self._root / '.venv'}",
            *self._cuda(),
        )

    def _cuda(self) -> list:
        headers = os.environ.get("SLUICE_CUDA_INCLUDE_DIR")
        return [f"-DSLUICE_CUDA_INCLUDE_DIR={headers}"] if headers else []

    def build(self, targets) -> bool:
        return self._run("cmake", "--build", self._build, "--target", *targets)

    def passes(self, fault: Fault) -> bool:
        if fault.pytest:
            tvm = any("test_tvm" in name for name in fault.pytest)
            python = self._root / (".venv-tvm" if tvm else ".venv") / "bin" / "python"
            environment = {"PYTHONDONTWRITEBYTECODE": "1"}
            return self._run(
                python if python.exists() else "python3",
                "-m",
                "pytest",
                "-q",
                "-x",
                "-p",
                "no:cacheprovider",
                *fault.pytest,
                cwd=self.tree / "tests" / "python",
                environment=environment,
            )
        # Without a test the expression would kill nothing, and everything would seem to pass.
        return self._run(
            "ctest",
            "--test-dir",
            self._build,
            "-R",
            fault.ctest,
            "--no-tests=error",
            "--stop-on-failure",
            "--timeout",
            "60",
            "--output-on-failure",
        )

    def _run(self, *command, cwd=None, environment=None) -> bool:
        with self._log.open("ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            try:
                done = subprocess.run(
                    command,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=_TEST_LIMIT_S * 4,
                    check=False,
                    env=os.environ | (environment or {}),
                )
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    @property
    def log(self) -> Path:
        return self._log


def try_fault(copy: Copy, fault: Fault) -> str:
    """Puts the fault in, builds, runs its tests, and takes the fault out again."""
    path = copy.tree / fault.file
    text = path.read_text() if path.exists() else ""
    if text.count(fault.old) != 1 or fault.old == fault.new:
        return STALE
    path.write_text(text.replace(fault.old, fault.new))
    try:
        if fault.targets and not copy.build(fault.targets):
            return NO_BUILD
        return SURVIVED if copy.passes(fault) else KILLED
    finally:
        copy.restore(fault.file)


def check_unchanged(copy: Copy, faults: list[Fault]) -> list[str]:
    """The tests that do not pass as the code is: what they kill later would prove nothing."""
    targets = sorted({target for fault in faults for target in fault.targets})
    if targets and not (copy.configure() and copy.build(targets)):
        raise UsageError(f"the tree does not build; see {copy.log}")
    tests: dict[str, Fault] = {fault.tests: fault for fault in faults}
    return [name for name, fault in tests.items() if not copy.passes(fault)]


def run(folders: list[str], place: Path = HERE, root: Path = ROOT) -> int:
    faults = [fault for folder in folders for fault in read_faults(folder, place)]
    copy = Copy(root, root / "build" / "mutate")
    copy.log.parent.mkdir(parents=True, exist_ok=True)
    copy.log.write_bytes(b"")
    copy.refresh()
    print(f"mutate: {len(faults)} faults; building and running the tests without any", flush=True)
    if broken := check_unchanged(copy, faults):
        print(f"mutate: these tests fail without a fault: {'; '.join(broken)}; see {copy.log}", file=sys.stderr)
        return 1
    results: dict[Fault, str] = {}
    for number, fault in enumerate(faults, 1):
        began = time.monotonic()
        results[fault] = try_fault(copy, fault)
        print(
            f"[{number}/{len(faults)}] {results[fault]:<9} {fault.file}: {fault.what} "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    print()
    for folder in folders:
        own = [result for fault, result in results.items() if fault.folder == folder]
        print(f"{folder:<12} {own.count(KILLED):>3} of {len(own)} killed")
    return 0 if all(result == KILLED for result in results.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    options = parser.parse_args()
    folders = options.folders or sorted(path.stem for path in HERE.glob("*.toml"))
    try:
        if options.list:
            for folder in folders:
                for fault in read_faults(folder):
                    print(f"{fault.file}: {fault.what} ({fault.tests})")
            return 0
        return run(folders)
    except UsageError as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
