"""A copy of the tree with a build of its own, so that the checkout is never changed."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

_COMMAND_LIMIT_S = 1800
_TEST_LIMIT_S = 60  # of a test that has no limit of its own
_QUERY = Path(".cmake") / "api" / "v1"
_NAMES_AT_ONCE = 500  # of tests in one expression: an argument has at most 128 KiB
TESTS_AT_ONCE = max(2, (os.cpu_count() or 2) * 3 // 2)


class InUseError(Exception):
    pass


class Copy:
    """`bare`: as on a machine without .venv, so without LibTorch and pytest."""

    def __init__(self, root: Path, folder: Path, bare: bool = False):
        self.root = root
        self._venv = folder / "no-venv" if bare else root / ".venv"
        self.tree = folder / "tree"
        self.build_folder = folder / "build"
        self.log = folder / "log.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUseError(f"another ./x mutate uses {folder}") from None
        self.log.write_bytes(b"")
        self._last = 0

    def refresh(self) -> list[str]:
        """Copies what git tracks, or would: only files that changed.

        Returns the names.
        """
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=self.root, capture_output=True, check=True, text=True
        ).stdout
        names = {name for name in listed.split("\0") if (self.root / name).is_file()}
        for path in list(self.tree.rglob("*")) if self.tree.exists() else ():
            if path.is_file() and str(path.relative_to(self.tree)) not in names:
                path.unlink()
        for name in names:
            self.restore(name)
        return sorted(names)

    def restore(self, name: str) -> None:
        source, target = self.root / name, self.tree / name
        if target.exists() and source.read_bytes() == target.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)

    def configure(self) -> bool:
        headers = os.environ.get("SLUICE_CUDA_INCLUDE_DIR")
        query = self.build_folder / _QUERY / "query" / "codemodel-v2"
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
        return self.run(
            "cmake",
            "-S",
            self.tree,
            "-B",
            self.build_folder,
            "-G",
            "Ninja",
            "-DCMAKE_BUILD_TYPE=Debug",
            "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -Wno-mismatched-new-delete",  # without -O1, some tests take five times as long
            "-DSLUICE_PROTOCOL_MUTATIONS=OFF",  # they refuse to be configured with a fault in shm/gates.hpp
            "--log-level=NOTICE",
            f"-DSLUICE_VENV={self._venv}",
            *([f"-DSLUICE_CUDA_INCLUDE_DIR={headers}"] if headers else []),
        )

    def targets(self) -> dict[str, dict]:
        """CMake's description of each target, by its id."""
        replies = self.build_folder / _QUERY / "reply"
        index = json.loads(max(replies.glob("index-*.json")).read_text())
        model = json.loads((replies / index["reply"]["codemodel-v2"]["jsonFile"]).read_text())
        entries = model["configurations"][0]["targets"]
        return {entry["id"]: json.loads((replies / entry["jsonFile"]).read_text()) for entry in entries}

    def tests(self) -> list[dict]:
        """All tests: `name`, `program` (empty where it is not built yet) and the `folder` that adds them."""
        found = subprocess.run(
            ["ctest", "--test-dir", self.build_folder, "--show-only=json-v1"],
            capture_output=True,
            check=True,
            text=True,
        )
        listed = json.loads(found.stdout)
        graph = listed["backtraceGraph"]
        tests = []
        for test in listed["tests"]:
            # Tests that a program lists have no place.
            place = Path(graph["files"][graph["nodes"][test["backtrace"]]["file"]] if "backtrace" in test else "/")
            folder = place.parent.relative_to(self.tree) if place.is_relative_to(self.tree) else Path()
            program = test.get("command", [""])[0]
            tests.append({"name": test["name"], "program": program, "folder": str(folder)})
        return tests

    def build(self, targets, limit_s: float | None = _COMMAND_LIMIT_S) -> bool:
        command = ("cmake", "--build", self.build_folder, "--target", *targets)
        return self.run_code(*command, limit_s=limit_s) == 0 if targets else True

    def failed_tests(self, names: list[str], but: set[str], at_once: int = TESTS_AT_ONCE) -> list[str]:
        """Runs the named tests until one fails. Returns those that failed by then."""
        names = [name for name in names if name not in but]
        failed = self.build_folder / "Testing" / "Temporary" / "LastTestsFailed.log"
        for first in range(0, len(names), _NAMES_AT_ONCE):
            pattern = "|".join(map(re.escape, names[first : first + _NAMES_AT_ONCE]))
            failed.unlink(missing_ok=True)
            passed = self.run(
                "ctest", "--test-dir", self.build_folder, "-R", f"^({pattern})$", "--no-tests=error",
                "--stop-on-failure", "--timeout", _TEST_LIMIT_S, "-j", at_once, "--output-on-failure",
            )  # fmt: skip
            if not passed:
                lines = failed.read_text().split("\n") if failed.exists() else []
                return [line.split(":", 1)[1] for line in lines if ":" in line] or names[first : first + _NAMES_AT_ONCE]
        return []

    def pytest(self, file: str) -> int:
        """The exit code of pytest for one file of the tree; 5 if it has no test."""
        tvm = "test_tvm" in file
        venv = self.root / ".venv-tvm" if tvm else self._venv
        python = venv / "bin" / "python"
        program = self.build_folder / "bin" / "sluice"
        return self.run_code(
            python if python.exists() else "python3",
            "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file,
            cwd=self.tree,
            environment={"PYTHONDONTWRITEBYTECODE": "1", "SLUICE_TEST_PROGRAM": str(program)},
        )  # fmt: skip

    def last_output(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self._last)
            return log.read().decode(errors="replace")

    def run(self, *command) -> bool:
        return self.run_code(*command) == 0

    def run_code(self, *command, cwd=None, environment=None, limit_s: float | None = _COMMAND_LIMIT_S) -> int:
        """The exit code; 124 where the command took too long."""
        command = [str(part) for part in command]
        with self.log.open("ab") as log:
            self._last = log.tell()
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            child = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
            try:
                return child.wait(limit_s)
            except subprocess.TimeoutExpired:
                return 124
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
