"""What the tests share. Every test has a store of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "tools" / "python"
sys.path.insert(0, str(PACKAGE))

from sluice_tools.models.cli import main  # noqa: E402


class Models:
    """`sluice models` in this process, on a store of its own."""

    def __init__(self, folder: Path, capsys):
        self.store = folder / "store"
        self._capsys = capsys

    def __call__(self, *args: str):
        """Exit code, standard output, standard error."""
        self._capsys.readouterr()
        command, rest = args[0], args[1:]
        try:
            code = main([command, "--store", str(self.store), *rest])
        except SystemExit as usage:
            code = usage.code
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def export(self, *args: str) -> list:
        code, out, err = self("export", "--json", *args)
        assert code == 0, err
        return json.loads(out)

    def model(self, name: str) -> dict:
        return json.loads((self.store / name / "model.json").read_text())

    def refused(self, code: int, *args: str) -> str:
        """The one line with which a command is refused."""
        found, out, err = self(*args)
        assert (found, out) == (code, ""), err
        last = err.strip().splitlines()[-1]
        assert last.startswith("sluice models"), err
        assert "Traceback" not in err
        return last


@pytest.fixture
def models(tmp_path, capsys):
    return Models(tmp_path, capsys)


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory) -> Path:
    from fake_orders import build

    return build(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def fake(fake_library, monkeypatch):
    """The stand-in for the interposer, under a training of sluice.train that has not begun."""
    import sluice.train
    import torch
    from fake_orders import Fake

    torch.set_num_threads(1)
    opened = Fake(fake_library)
    opened.plan()
    monkeypatch.setattr(sluice.train, "_training", sluice.train._Training())
    return opened


def environment(**extra: str) -> dict:
    inherited = {k: v for k, v in os.environ.items() if k not in ("SLUICE_MODELS", "SLUICE_PYTHON")}
    return inherited | {"PYTHONPATH": str(PACKAGE)} | extra


def spawn(*command: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
