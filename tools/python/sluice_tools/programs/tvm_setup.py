"""The one place that imports TVM: checks its versions and keeps its traps away."""

import contextlib
import importlib.metadata
import importlib.util
import io
import sys
import types

from sluice_tools.common.command import how_to_get
from sluice_tools.common.errors import usage_error
from sluice_tools.programs.catalog import site_packages

TVM_VERSION = "0.27.0.post1"
FFI_VERSION = "0.1.14.post0"  # later ones crash TVM 0.27 when it creates its mutators
_OTHERS = ("onnx", "psutil", "cloudpickle", "numpy", "scipy")
_INSTALL = how_to_get(f"apache-tvm=={TVM_VERSION}", f"apache-tvm-ffi=={FFI_VERSION}", *_OTHERS)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise usage_error(
            f"{sys.executable} has no {package}, with which tensor programs are made, and run on a CPU: {_INSTALL}"
        ) from None


def check_versions() -> None:
    for package, wanted in (("apache-tvm", TVM_VERSION), ("apache-tvm-ffi", FFI_VERSION)):
        if (found := _version(package)) != wanted:
            raise usage_error(f"{package} is {found}, not {wanted}: {_INSTALL}")


def load() -> None:
    check_versions()
    # Importing TVM's tensor intrinsics takes half a minute of CPU time. Only rules for tensor cores need them.
    sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))
    with contextlib.redirect_stdout(io.StringIO()):
        import tvm  # noqa: F401
        import tvm_ffi
    # Where Python has bindings of CUDA, as PyTorch brings them, TVM compiles each program for the GPU: seconds, for a
    # binary that nobody asks for.
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", lambda *_: b"", override=True)


def last_line(error: Exception) -> str:
    """Of an error of TVM, which tells what is wrong in the last line and begins with its own stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def full_name(text: str) -> str:
    """TVM's name of "cuda" and "cuda:sm_90", which `sluice opbench run` takes too. Any other text is TVM's name."""
    kind, _, arch = text.partition(":")
    return f"cuda -arch={arch or 'sm_90'}" if kind == "cuda" else text


def target_of(text: str):
    """The TVM target of "cuda -arch=sm_90", "cuda:sm_90" or "cuda", or "llvm", "llvm -num-cores=2"."""
    from tvm.target import Target

    kind, *options = full_name(text).split()
    values: dict = {"kind": kind}
    for option in options:
        name, equals, value = option.removeprefix("-").partition("=")
        if not equals or not option.startswith("-"):
            raise usage_error(f"target '{text}': '{option}' is not -name=value")
        values[name] = int(value) if value.isdigit() else value
    if kind == "cuda":
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "max_num_threads": 1024}
        values = {"arch": "sm_90", "thread_warp_size": 32, **limits, **values}
    elif kind == "llvm":
        values.setdefault("num-cores", 2)  # the search space depends on it, so it must not depend on the machine
    else:
        raise usage_error(f"target '{text}': kind must be cuda or llvm")
    try:
        return Target(values)
    except Exception as error:
        raise usage_error(f"target '{text}': {last_line(error)}") from None


def torch_path() -> None:
    """Lets `import torch` find the checkout's .venv, which has the same Python version.

    Only when a model needs it: TVM imports torch at its start if it finds one, which takes seconds.
    """
    site = site_packages()
    if site.is_dir() and str(site) not in sys.path:
        sys.path.append(str(site))
    if importlib.util.find_spec("torch") is None:
        raise usage_error(f"this model needs torch: {how_to_get('torch==2.11.0')}")
