"""Runs a command: exit codes, errors in one line, missing packages."""

import codecs
import importlib.util
import io
import locale
import os
import signal
import sys
from pathlib import Path

from sluice_tools.common.errors import EXIT_FAILED, CommandError, usage_error


def how_to_get(*names: str) -> str:
    """The command that gets the Python that runs Sluice's commands these packages, in this kind of installation."""
    packages = " ".join(names)
    venv = os.environ.get("SLUICE_VENV", "/opt/sluice/venv")  # from the launcher
    if not venv:  # the user named a Python, or the wheel its own
        return f"{sys.executable} -m pip install {packages}"
    script = Path(venv).parent / "x"
    if script.exists():
        return f"{script} {'torch' if 'torch' in packages else 'programs' if 'tvm' in packages else 'reports'}"
    return f"sudo python3 -m venv {venv} && sudo {venv}/bin/pip install {packages}"


def need_packages(command: str, *names: str) -> None:
    """Raises CommandError, one line, if packages are missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise usage_error(f"{sys.executable} has no {', '.join(missing)}: {how_to_get(*missing)}")


def run_command(command: str, job) -> int:
    """Runs `job`, which returns the exit code. SIGTERM ends it like Ctrl-C, with what it has started."""
    old = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run(command, job)
    finally:
        signal.signal(signal.SIGTERM, old)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """In place of what the terminal's encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join({"×": "x", "†": "*"}.get(sign) or ascii(sign)[1:-1] for sign in text), error.end


def _run(command: str, job) -> int:
    if sys.stdout is None:  # closed: Python would print nothing, and call that success
        print(f"sluice {command}: standard output is closed; to print nothing, write >/dev/null", file=sys.stderr)
        return EXIT_FAILED
    codecs.register_error("plain", _plain)
    encoding = locale.nl_langinfo(locale.CODESET)  # the launcher's -X utf8 hides it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal cannot show is no reason to fail
            stream.reconfigure(encoding=encoding, errors="plain")
    try:
        code = job()
        sys.stdout.flush()
        return code
    except CommandError as error:
        print(f"sluice {command}: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:  # `| head`; also what is still to be flushed has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:  # a full disk, a folder that may not be written, no network
        said = f"{error.filename}: {error.strerror}" if error.filename else error
        print(f"sluice {command}: {said}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130
