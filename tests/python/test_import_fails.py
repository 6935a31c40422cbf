"""`sluice models import` that fails, whatever ends it: an exit code, one line, and a store as before."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import PACKAGE, environment, spawn
from sluice_tools.models.store import Store
from test_store import wait_for
from torch import nn

# As torch, a package or a user's code may: in the middle of its work. Without torch, whose import takes seconds.
ENDS = """
import os, sys, time
from sluice_tools.models import cli
def work(args, store):
    with store.work_folder() as work:
        (work / "model.pt").write_text("half")
        with open(sys.argv[1], "w") as reached:  # an interrupt in a destructor would be lost
            reached.write(str(os.getpid()))
        {does}
cli._import = work
sys.exit(cli.main(["import", "net", "file", "--store", sys.argv[2]], in_child=True))
"""


# A signal just before one long sleep would be seen after it.
ENDLESS = "while True: time.sleep(0.05)"


def start(tmp_path: Path, does: str) -> subprocess.Popen:
    return spawn(sys.executable, "-c", ENDS.format(does=does), str(tmp_path / "reached"), str(tmp_path / "store"))


def store_of(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGBUS])
def test_a_process_that_is_ended_is_an_error_like_others(tmp_path, number):
    store = store_of(tmp_path)
    process = start(tmp_path, f"os.kill(os.getpid(), {int(number)})")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    line = err.strip().splitlines()[-1]
    assert line.startswith(f"sluice models: the import was ended by {number.name}")
    assert ("memory" in line) == (number == signal.SIGKILL)
    assert list(store.iterdir()) == []


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_that_of_the_work(tmp_path, code):
    store = store_of(tmp_path)
    process = start(tmp_path, f"sys.exit({code})")
    process.communicate(timeout=60)
    assert process.returncode == code and list(store.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to", ["the command", "all processes, as Ctrl-C"])
def test_an_interrupt_reaches_the_work(tmp_path, number, to):
    store = store_of(tmp_path)
    process = start(tmp_path, ENDLESS)
    try:
        wait_for(lambda: (tmp_path / "reached").exists() and (tmp_path / "reached").read_text())
        if to != "the command":
            os.kill(int((tmp_path / "reached").read_text()), number)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err.strip().splitlines()[-1].startswith("sluice models: interrupted")
    assert list(store.iterdir()) == []


def test_the_work_ends_with_its_command(tmp_path):
    """A user who kills the command does not expect that it goes on."""
    store = store_of(tmp_path)
    process = start(tmp_path, ENDLESS)
    wait_for(lambda: (tmp_path / "reached").exists() and (tmp_path / "reached").read_text())
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not list(store.iterdir()))


def test_a_full_disk_is_one_line(tmp_path):
    """Torch's own writer ends the process then. The limit of a file's size does what a full disk does."""
    net = nn.Linear(4, 100_000)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    (tmp_path / "mynet.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 100_000)\n")
    words = ["import", "net", "net.pth", "--class", "mynet:make", "--input", "x:FP32:4", "--store", "store"]
    done = subprocess.run(
        [sys.executable, "-m", "sluice_tools.models", *words],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(PACKAGE)),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == ""
    assert "File too large" in done.stderr.strip().splitlines()[-1] and "terminate" not in done.stderr
    assert list((tmp_path / "store").iterdir()) == []


def tree(folder: Path) -> dict:
    return {str(path.relative_to(folder)): path.is_file() and path.read_text() for path in folder.rglob("*")}


def publish(store: Store, text: str) -> None:
    with store.work_folder() as work:
        (work / "model.pt").write_text(text)
        variant = {"format": "torchscript", "file": "model.pt", "text": text}
        store.publish(work, {"name": "net", "variants": [variant]}, replace=True)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("call", ["os.replace", "os.fsync", "pathlib.Path.mkdir", "json.dump", "pathlib.Path.open"])
def test_each_call_that_fails_leaves_the_store_as_it_was(tmp_path, monkeypatch, there, call):
    """A new model must not be there in part. That of before must be whole: its file and what model.json says of it."""
    store = Store(tmp_path)
    if there:
        publish(store, "old")
    before, failed, at = tree(tmp_path), True, 0
    owner, name = {"os": os, "json": json, "pathlib.Path": Path}[call.rpartition(".")[0]], call.rpartition(".")[2]
    real = getattr(owner, name)
    while failed:
        calls = iter(range(at, -1, -1))

        def fail(*arguments, calls=calls, **named):
            if next(calls, -1) == 0:
                raise OSError(28, "No space left on device")
            return real(*arguments, **named)

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fail)
            try:
                publish(store, "new")
                failed = False
            except OSError:
                after = tree(tmp_path)
                moved = there and call == "os.replace" and at == 1  # a rename that fails after another one has not
                assert after == before or moved, f"call {at} of {call}"
        at += 1
    assert tree(tmp_path)["net/model.pt"] == "new"
    assert at > 1, "the call is made"
