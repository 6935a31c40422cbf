"""Shell completion: it offers what --help prints, and must follow it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "tools" / "completion"
needs_build = pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="needs a build of Sluice")


def complete(*words: str) -> list[str]:
    """What bash offers for the last of the words behind `sluice`."""
    listed = " ".join(f"'{word}'" for word in ("sluice", *words))
    script = f"source {_FOLDER}/sluice.bash; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _sluice; "
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    path = f"{Path(os.environ['SLUICE_TEST_PROGRAM']).parent}:{os.environ['PATH']}"
    said = subprocess.run(
        ["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert not said.stderr
    return said.stdout.split()


@needs_build
def test_commands_and_their_options():
    assert complete("comp") == ["compare"]
    commands = complete("")
    assert {"exec", "status", "hybrid_workload", "device-plugin"} <= set(commands)
    assert len(commands) == len(set(commands)) and "sluice" not in commands and "help" not in commands
    assert complete("exec", "--pri") == ["--priority"]
    assert complete("compare", "--lo") == ["--load"]
    assert {"--policy", "--weight", "--give"} <= set(complete("set", "train", "--"))


@needs_build
def test_behind_two_dashes_comes_a_command_of_the_user():
    assert "python3" in complete("exec", "--priority", "0", "--", "python3")
    assert "--priority" not in complete("exec", "--priority", "0", "--", "python3", "--p")


@pytest.mark.parametrize("shell, name", [("bash", "sluice.bash"), ("zsh", "_sluice"), ("fish", "sluice.fish")])
def test_the_shell_can_read_it(shell, name):
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    subprocess.run([shell, "-n", str(_FOLDER / name)], check=True)
