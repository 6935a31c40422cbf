"""Wrong usage of the commands that argparse reads: one line that says where help is, exit code 2."""

import pytest
from sluice_tools.bench import cli as bench
from sluice_tools.models import cli as models
from sluice_tools.parse import cli as parse
from sluice_tools.report import cli as report
from sluice_tools.sweep import cli as sweep
from sluice_tools.trace import cli as trace


@pytest.mark.parametrize("cli", [bench, models, parse, report, sweep, trace])
def test_one_line(cli, capsys, monkeypatch):
    command = f"sluice {cli.__name__.split('.')[1]}"
    monkeypatch.setattr("sys.argv", [command, "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    line = capsys.readouterr().err
    assert ended.value.code == 2
    assert line.startswith(f"{command}: ") and line.endswith(f"; see {command} --help\n"), line
    assert line.count("\n") == 1
