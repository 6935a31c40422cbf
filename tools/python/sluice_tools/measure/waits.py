"""How long programs wait for the GPU, as the interposer counts it (docs/reference/environment.md#waits)."""

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "SLUICE_WAITS"
_MEMORY = Path("/dev/shm")  # no disk: the process writes at the end of each wait
_WORDS = struct.Struct("=QQ")  # of a file: ns, and the number of waits


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new folder for the files of programs."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sluice-waits-", dir=place) as made:
        yield Path(made)


def variables(of: Path) -> dict[str, str]:
    """For a program that is to count its waits into the folder."""
    return {VARIABLE: str(of)}


def counted_ns(file: Path) -> int | None:
    """Of one process; None if it counts no waits, as one that has not used the GPU."""
    try:
        return _WORDS.unpack_from(file.read_bytes())[0]
    except (OSError, struct.error):
        return None


def total_ns(of: Path) -> int | None:
    """Of all processes that were given the folder, also of those that have ended; None if none counts."""
    found = [ns for file in of.iterdir() if (ns := counted_ns(file)) is not None]
    return sum(found) if found else None


def own_file() -> Path | None:
    """That of this process, which is there once the process has used the GPU. None where nobody asks for it."""
    return Path(os.environ[VARIABLE]) / str(os.getpid()) if os.environ.get(VARIABLE) else None
