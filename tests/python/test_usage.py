"""Wrong usage of the commands that argparse reads: one line that says where help is, exit code 2."""

import subprocess
import sys

import pytest
from sluice_tools.bench import cli as bench
from sluice_tools.models import cli as models
from sluice_tools.parse import cli as parse
from sluice_tools.records import cli as records
from sluice_tools.report import cli as report
from sluice_tools.sweep import cli as sweep
from sluice_tools.trace import cli as trace


@pytest.mark.parametrize("cli", [bench, models, parse, records, report, sweep, trace])
def test_one_line(cli, capsys, monkeypatch):
    command = f"sluice {cli.__name__.split('.')[1]}"
    monkeypatch.setattr("sys.argv", [command, "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert ended.value.code == 2
    assert line.startswith(f"{command}: ") and line.endswith(f"; see {command} --help\n"), line
    assert line.count("\n") == 1


# Prevents: a command that measures without packages, and ends where they are missing.
@pytest.mark.parametrize(
    "command", ["bench", "compare", "demo", "models", "parse", "records", "report", "sweep", "trace"]
)
def test_help_needs_no_packages(command):
    packages = ("numpy", "pandas", "torch")
    hide = f"import sys; sys.path[:] = {sys.path}; sys.modules |= dict.fromkeys({packages});"
    run = f"from sluice_tools.{command}.cli import main; sys.argv = ['sluice', '--help']; sys.exit(main())"
    result = subprocess.run([sys.executable, "-c", f"{hide} {run}"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: sluice {command}")
