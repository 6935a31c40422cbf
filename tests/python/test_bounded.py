"""Memory does not grow with the length of a trace: a run of ten minutes has a trace of 1 GB."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="./x reports fetches it")

PACKAGE = Path(__file__).resolve().parents[2] / "tools" / "python"
from long_run import write_run  # noqa: E402
from sluice_tools.common import progress  # noqa: E402

SHORT, LONG = 4_000_000, 20_000_000
MOST_GROWTH = 0.35  # of what the trace grows; whoever keeps the numbers of all kernels needs more
COMMANDS = [
    ("parse", ["--no-pictures", "--out", "{}"]),
    ("trace", ["--csv", "{}/run.csv"]),
    ("trace", ["-o", "{}/run.json"]),
    ("report", ["-o", "{}/run.html"]),
]
# Buffers so small that the short trace fills them.
PROGRAM = """
import sys
from sluice_tools.report import stored
from sluice_tools.trace import records, spill
spill.BUFFER_BYTES, spill.CHUNK_BYTES, records.CHUNK_RECORDS = 1 << 20, 1 << 18, 1 << 14
stored.PIECE_ROWS = 1 << 12
from sluice_tools.{0}.cli import main
sys.exit(main())
"""


def peak_bytes(command: str, *args: str) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(command), *args],
        env=os.environ | {"PYTHONPATH": str(PACKAGE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, err
    assert "[" not in err, "a progress bar on a pipe"
    return usage.ru_maxrss * 1024


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    for size in (SHORT, LONG):
        write_run(folder / str(size), size)
    return folder


@pytest.mark.parametrize("command, args", [*COMMANDS, ("trace", ["-o", "{}/run.perfetto-trace"])])
def test_memory_does_not_grow_with_the_trace(runs, tmp_path, command, args):
    pytest.importorskip("perfetto", reason="./x reports fetches it")
    short, long = (
        peak_bytes(command, str(runs / str(size)), *(arg.format(tmp_path) for arg in args)) for size in (SHORT, LONG)
    )
    assert long - short < MOST_GROWTH * (LONG - SHORT)


@pytest.mark.parametrize("command, args", COMMANDS)
def test_a_terminal_sees_a_progress_bar(runs, tmp_path, monkeypatch, capsys, command, args):
    """And nothing of it is left when the command is done."""
    monkeypatch.setattr(progress, "_STARTED", 0)
    monkeypatch.setattr(progress, "_EVERY_S", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "argv", [command, str(runs / str(SHORT)), *(a.format(tmp_path) for a in args)])
    assert importlib.import_module(f"sluice_tools.{command}.cli").main() == 0
    out, err = capsys.readouterr()
    assert "reading 11.sltrace [####" in err and "100%" in err
    assert "\r" not in out
    assert err.replace("\n", "").rpartition("\r")[2].startswith("\033[K")
