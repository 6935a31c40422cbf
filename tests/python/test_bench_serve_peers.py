"""The tritonserver of `sluice bench serve`: found where it is, and gone when it ends."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment
from sluice_tools.bench.serve import peers
from sluice_tools.common.errors import CommandError

STAND_IN = Path(__file__).parent / "tritonserver_stand_in.py"
ECHO = peers.PeerModel("echo", "echo", 8, ("INPUT0", (-1,)), ("OUTPUT0", (-1,)))


@pytest.fixture
def installed(tmp_path):
    """Folders as those of the PyPI package."""
    root = tmp_path / "site/pytriton/tritonserver"
    stubs = root / f"python_backend_stubs/{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (root / "bin", root / "backends/python", stubs):
        folder.mkdir(parents=True)
    (stubs / "triton_python_backend_stub").touch()
    (root / "backends/python/libtriton_python.so").touch()
    shutil.copy(STAND_IN, root / "bin/tritonserver")
    return peers.Installation(root / "bin/tritonserver")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true) -> bool:
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "models/pids").read_text().split()]


def regions(prefix: str) -> list[Path]:
    return list(Path("/dev/shm").glob(f"sluice-bench-{prefix}-*"))


def test_nothing_of_it_is_left(installed, tmp_path):
    with peers.running(installed, tmp_path / "run", [ECHO], None) as triton:
        server, child = pids(tmp_path / "run")
        assert alive(server) and alive(child) and regions(str(os.getpid()))
    assert not alive(server) and wait_until(lambda: not alive(child)), "the Python process outlives the server"
    assert not regions(str(os.getpid()))
    with socket.socket() as again:
        again.bind(("127.0.0.1", triton.port))


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_it_ends_with_a_killed_benchmark(installed, tmp_path):
    run = tmp_path / "run"
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom sluice_tools.bench.serve import peers\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_bench_serve_peers import ECHO\n"
        f"with peers.running(peers.Installation(Path({str(installed.program)!r})), Path({str(run)!r}), [ECHO], None):\n"
        "    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    bench = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment())
    assert bench.stdout and bench.stdout.readline() == b"ready\n"
    server, child = pids(run)
    bench.kill()
    bench.wait()
    bench.stdout.close()
    ended = wait_until(lambda: not alive(server))
    # What the real one's Python processes do when it is gone.
    for left in (child,) if ended else (child, server):
        os.kill(left, signal.SIGKILL)
    for region in regions(str(bench.pid)):
        region.unlink()
    assert ended


def test_the_reason_of_a_failed_start_is_said(installed, tmp_path):
    broken = peers.PeerModel("broken", "echo", 8, ("INPUT0", (-1,)), ("OUTPUT0", (-1,)))
    started = peers.running(installed, tmp_path / "run", [broken], None)
    with (
        pytest.raises(RuntimeError, match=r"^tritonserver failed to load 'broken' version 1: Internal: no such file"),
        started,
    ):
        pass
    assert not regions(str(os.getpid()))


def test_where_it_is_found(installed, tmp_path, monkeypatch):
    monkeypatch.delenv(peers.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path or ".") / "pytriton").exists()])
    assert peers.find(None) is None
    package = tmp_path / "site/pytriton"
    (package / "__init__.py").touch()
    installed.program.chmod(0o644)  # as pip leaves it
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert peers.find(None) == installed and os.access(installed.program, os.X_OK)
    monkeypatch.setenv(peers.VARIABLE, str(tmp_path))
    with pytest.raises(CommandError, match=r"TRITON_SERVER: .* is no program"):
        peers.find(None)
    assert peers.find(str(installed.program)) == installed
    with pytest.raises(CommandError, match="--triton: nowhere is no program"):
        peers.find("nowhere")


def test_a_stub_for_another_python_is_refused(installed):
    shutil.rmtree(installed.program.parents[1] / "python_backend_stubs")
    with pytest.raises(CommandError, match="has no triton_python_backend_stub for Python"):
        installed.stub()


def test_the_python_program_sees_the_packages_of_this_python(installed, tmp_path):
    with peers.running(installed, tmp_path / "run", [ECHO], None):
        program = (tmp_path / "run/models/echo/1/model.py").read_text()
    # Its interpreter ignores PYTHONPATH.
    assert program.index("sys.path[:0] = ") < program.index("import triton_python_backend_utils")


def test_it_sees_the_gpu_of_the_benchmark(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert peers._only_gpu(None) == {}
    assert peers._only_gpu(1) == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-4f")
    assert peers._only_gpu(0) == {"CUDA_VISIBLE_DEVICES": "3"}
    assert peers._only_gpu(1) == {"CUDA_VISIBLE_DEVICES": "GPU-4f"}


def test_the_config_of_a_model():
    model = peers.PeerModel("m", "torch_script", 4, ("a", (3, 8)), ("b", (-1,)), (("device", "cuda"),), gpu=True)
    assert model.config().splitlines() == [
        'backend: "python"',
        "max_batch_size: 4",
        'input [ { name: "a" data_type: TYPE_FP32 dims: [ 3, 8 ] } ]',
        'output [ { name: "b" data_type: TYPE_FP32 dims: [ -1 ] } ]',
        "instance_group [ { count: 1 kind: KIND_GPU } ]",
        "dynamic_batching { }",
        'parameters { key: "device" value: { string_value: "cuda" } }',
    ]
