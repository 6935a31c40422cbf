"""The command line of `sluice cdi`."""

import argparse
import json
import os
from pathlib import Path

from sluice_tools.command import run_command
from sluice_tools.errors import EXIT_FINE, Parser, run_error

_EXAMPLES = """\
examples:
  sluice cdi > /etc/cdi/sluice.json
  podman run --device sluice.dev/priority=critical ...

docs/guide/containers.md says what the devices change in a container.
exit codes: 0; 1 the installation lacks a file; 2 wrong usage
"""
# The interposer has one path in all containers, so that the file below can name it.
_IN_CONTAINER = "/opt/sluice/lib/sluice"


def _mount(host: Path, container: str, mode: str) -> dict:
    return {"hostPath": str(host), "containerPath": container, "options": ["bind", mode, "nosuid", "nodev"]}


def _device(name: str, priority: int) -> dict:
    return {"name": name, "containerEdits": {"env": [f"SLUICE_PRIORITY={priority}"]}}


def specification(root: Path) -> str:
    """The JSON text for the installation in `root`, a device a line."""
    library = root / "lib" / "sluice" / "libsluice_intercept.so"
    preload = root / "share" / "sluice" / "ld.so.preload"
    for file in (library, preload):
        if not file.exists():
            raise run_error(f"{file} is missing; build or install Sluice again")
    devices = [_device("besteffort", 0), _device("critical", 1)]
    devices += [_device(str(priority), priority) for priority in range(256)]
    mounts = [
        _mount(library.parent, _IN_CONTAINER, "ro"),
        _mount(preload, "/etc/ld.so.preload", "ro"),
        _mount(Path("/dev/shm"), "/dev/shm", "rw"),
    ]
    head = {"cdiVersion": "0.5.0", "kind": "sluice.dev/priority", "containerEdits": {"mounts": mounts}}
    lines = ",\n".join(json.dumps(device) for device in devices)
    return json.dumps(head)[:-1] + ', "devices": [\n' + lines + "\n]}\n"


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="sluice cdi",
        description="Print a CDI file: devices that give a container a priority.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)

    def job() -> int:
        print(specification(Path(os.environ["SLUICE_PROGRAM"]).resolve().parents[1]), end="")
        return EXIT_FINE

    return run_command("cdi", job)
