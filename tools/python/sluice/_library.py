"""The preloaded interposer, by ctypes, and where its installation is."""

import ctypes
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def functions(signatures: Mapping[str, tuple[Any, list[Any]]]) -> dict[str, Callable[..., Any]]:
    """The functions sluice_v1_NAME of this process: name -> (result, arguments). Empty if one is missing.

    If the interposer is not preloaded, all are missing; an older interposer has some of them. Other
    Python threads run during a call, because the first call of a process may wait for the driver.
    """
    program = ctypes.CDLL(None)
    found = {}
    for name, (result, arguments) in signatures.items():
        function = getattr(program, "sluice_v1_" + name, None)
        if function is None:
            return {}
        function.restype, function.argtypes = result, arguments
        found[name] = function
    return found


def command() -> str | None:
    """The path of `sluice` of this installation, else of the one on PATH, else None."""
    package = Path(__file__).resolve().parent
    # In a wheel, and next to share/sluice/python/sluice.
    for tree in (package / "_native", package.parents[3]):
        if (tree / "bin" / "sluice").exists():
            return str(tree / "bin" / "sluice")
    return shutil.which("sluice")
