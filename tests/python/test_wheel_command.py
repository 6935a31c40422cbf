"""The command of a wheel: it must become the program that is in the same wheel, with the Python that has the wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "tools" / "python" / "sluice"


@pytest.fixture
def wheel(tmp_path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "sluice", ignore=shutil.ignore_patterns("__pycache__"))
    program = tmp_path / "sluice" / "_native" / "bin" / "sluice"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$$ $SLUICE_PYTHON $*"\nexit 7\n')
    program.chmod(0o755)
    return tmp_path


def run(wheel: Path, code: str, **variables: str) -> subprocess.Popen:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(wheel), **variables}
    command = [sys.executable, "-c", f"import sys; {code}", "exec", "--priority", "1"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


MAIN = "from sluice._command import main; sys.exit(main())"


def test_it_becomes_the_program_with_its_arguments(wheel):
    """The pid stays: service managers and `timeout` end the process that they started."""
    process = run(wheel, MAIN)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (7, "")
    pid, python, *arguments = out.split()
    assert (int(pid), arguments) == (process.pid, ["exec", "--priority", "1"])
    assert Path(python).samefile(sys.executable)


def test_a_python_that_the_user_named_stays(wheel):
    out, _ = run(wheel, MAIN, SLUICE_PYTHON="/usr/bin/other").communicate(timeout=30)
    assert " /usr/bin/other exec" in out


def test_a_wheel_without_programs_says_so(wheel):
    shutil.rmtree(wheel / "sluice" / "_native")
    process = run(wheel, MAIN)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 1
    assert error.startswith("sluice: ") and "./x package wheel" in error and error.count("\n") == 1


def test_the_package_finds_the_program_of_its_wheel(wheel):
    out, error = run(wheel, "from sluice._library import command; print(command())", PATH="/nowhere").communicate()
    assert out.strip() == str(wheel / "sluice/_native/bin/sluice"), error
