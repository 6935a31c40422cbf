"""The `tritonserver` that `sluice serve` is compared with: where it is, and its life."""

import contextlib
import http.client
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.measure.programs import Program

VARIABLE = "TRITON_SERVER"
WITHOUT = (
    "no tritonserver, so only sluice serve is measured: pip install nvidia-pytriton, or name the program "
    f"with --triton or {VARIABLE}"
)
_PROGRAM = "tritonserver/bin/tritonserver"  # in the PyPI package `pytriton`
_STUB = "triton_python_backend_stub"
_SHM = Path("/dev/shm")
_READY_S = 150  # the first import of PyTorch on a fresh machine reads gigabytes
_EXIT_S = 10
_MODELS = Path(__file__).parent / "triton_models"


@dataclass(frozen=True)
class PeerModel:
    """A model of tritonserver. backend: `identity` (C++), or the program of triton_models/ for its Python backend.

    Tensors are FP32; shapes are without the batch dimension, and -1 is any size.
    """

    name: str
    backend: str
    batch_size: int
    input: tuple[str, tuple]
    output: tuple[str, tuple]
    parameters: tuple = ()  # pairs of strings, for the Python program
    gpu: bool = False

    def config(self) -> str:
        """The text of its config.pbtxt. Requests that wait are joined, as `sluice serve` does."""

        def tensor(name: str, dims: tuple) -> str:
            return f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ {", ".join(map(str, dims))} ] }}'

        lines = [
            f'backend: "{"identity" if self.backend == "identity" else "python"}"',
            f"max_batch_size: {self.batch_size}",
            f"input [ {tensor(*self.input)} ]",
            f"output [ {tensor(*self.output)} ]",
            f"instance_group [ {{ count: 1 kind: {'KIND_GPU' if self.gpu else 'KIND_CPU'} }} ]",
            "dynamic_batching { }",
            *(f'parameters {{ key: "{key}" value: {{ string_value: "{text}" }} }}' for key, text in self.parameters),
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Installation:
    """A tritonserver with its backends: the program's folder is `bin` next to `backends`."""

    program: Path

    @property
    def _root(self) -> Path:
        return self.program.parent.parent

    @property
    def has_identity(self) -> bool:
        return (self._root / "backends/identity/libtriton_identity.so").exists()

    def stub(self) -> Path:
        """Of the Python backend. Raises CommandError if there is none for this Python."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        candidates = (self._root / "python_backend_stubs" / version / _STUB, self._root / "backends/python" / _STUB)
        for candidate in candidates:
            if candidate.exists():
                return candidate
        raise usage_error(f"{self._root} has no {_STUB} for Python {version}; take one of its versions (SLUICE_PYTHON)")

    def link_backends(self, folder: Path) -> None:
        """The Python backend expects its stub next to it; the PyPI package has it elsewhere."""
        python = folder / "python"
        python.mkdir(parents=True)
        for file in (self._root / "backends/python").iterdir():
            if file.is_file() and file.name != _STUB:
                (python / file.name).symlink_to(file)
        (python / _STUB).symlink_to(self.stub())
        if self.has_identity:
            (folder / "identity").symlink_to(self._root / "backends/identity")

    def environment(self) -> dict:
        """The stub needs the library of this Python."""
        libraries = [self._root.parents[1] / "nvidia_pytriton.libs", sysconfig.get_config_var("LIBDIR")]
        libraries += os.environ.get("LD_LIBRARY_PATH", "").split(":")
        return {"LD_LIBRARY_PATH": ":".join(str(library) for library in libraries if library)}


def find(named: str | None) -> Installation | None:
    """named: by --triton. Otherwise $TRITON_SERVER, or the PyPI package of this Python; None if there is none.

    Raises CommandError if the named one is no program.
    """
    if path := named or os.environ.get(VARIABLE):
        program = Path(path).resolve()
        if not os.access(program, os.X_OK) or program.is_dir():
            raise usage_error(f"{'--triton' if named else VARIABLE}: {path} is no program; name the file tritonserver")
        return Installation(program)
    package = importlib.util.find_spec("pytriton")
    for folder in (package.submodule_search_locations or ()) if package else ():
        if (program := Path(folder) / _PROGRAM).exists():
            program.chmod(program.stat().st_mode | 0o111)  # a wheel loses the mode
            return Installation(program.resolve())
    return None


class Triton:
    """Started by running(), which also ends it."""

    counts_receiving = False

    def __init__(
        self,
        found: Installation,
        folder: Path,
        models: list[PeerModel],
        device: int | None,
        prefix: tuple = (),
        ports: tuple = (),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        for model in models:
            version = folder / "models" / model.name / "1"
            version.mkdir(parents=True)
            (version.parent / "config.pbtxt").write_text(model.config())
            if model.backend != "identity":
                (version / "model.py").write_text(_program(model.backend))
        found.link_backends(folder / "backends")
        self.port, self.http_port = ports or _free_ports(2)
        self._regions = f"sluice-bench-{os.getpid()}-{self.port}-"
        words = [found.program, "--model-repository", folder / "models", "--backend-directory", folder / "backends"]
        words += ["--grpc-address", "127.0.0.1", "--grpc-port", self.port]
        words += ["--http-address", "127.0.0.1", "--http-port", self.http_port, "--allow-metrics", "false"]
        words += ["--backend-config", f"python,shm-region-prefix-name={self._regions}"]
        words += ["--exit-timeout-secs", _EXIT_S]
        # So that it also ends, and removes its shared memory, if this process is killed.
        if setpriv := shutil.which("setpriv"):
            words = [setpriv, "--pdeathsig", "TERM", *words]
        environment = found.environment() | _only_gpu(device)
        self._program = Program([str(word) for word in (*prefix, *words)], environment, log=folder / "log")

    @property
    def process(self) -> subprocess.Popen:
        return self._program.process

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        """Raises RuntimeError if it does not get ready."""
        deadline = time.monotonic() + _READY_S
        while not self._ready():
            if how := self._program.describe_end():
                raise RuntimeError(self._failed_load() or f"tritonserver {how}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"tritonserver is not ready after {_READY_S} s: {self._program.said()}")
            time.sleep(0.1)

    def _failed_load(self) -> str:
        """The line that says why; tables and the list of options follow it."""
        assert self._program.log
        found = re.search(r"failed to load '.*", self._program.log.read_text(errors="replace"))
        return f"tritonserver {found[0][:400]}" if found else ""

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/health/ready", timeout=5):
                return True
        except (OSError, http.client.HTTPException):
            return False

    def check(self) -> None:
        if how := self._program.describe_end():
            raise RuntimeError(f"tritonserver {how}")

    def end(self) -> None:
        """With its Python processes and their shared memory."""
        self._program.end()
        for region in _SHM.glob(f"{self._regions}*"):
            region.unlink(missing_ok=True)


@contextlib.contextmanager
def running(
    found: Installation, folder: Path, models: list[PeerModel], device: int | None, prefix: tuple = ()
) -> Iterator[Triton]:
    """A tritonserver that is ready; it ends with the block. device: index of the GPU; None: none. prefix: of its
    command, as `sluice exec --`."""
    triton = Triton(found, folder, models, device, prefix)
    try:
        triton.wait_ready()
        yield triton
    finally:
        triton.end()


def _program(name: str) -> str:
    """The stub embeds Python without its environment: PYTHONPATH has no effect, and it does not see a venv."""
    packages = [path for path in sys.path if path]
    return f"import sys\n\nsys.path[:0] = {packages}\n" + (_MODELS / f"{name}.py").read_text()


def _only_gpu(device: int | None) -> dict:
    """tritonserver takes all GPUs that it sees. device: among those that this process sees."""
    if device is None:
        return {}
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[device] if visible else str(device)}


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
