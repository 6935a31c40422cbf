"""The command line of `sluice cdi`."""

import json
import os
import sys
from pathlib import Path

from sluice_tools.cdi.board import IN_CONTAINER, NodeFolder
from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, run_error, usage_error

_EXAMPLES = """\
examples:
  sluice cdi > /etc/cdi/sluice.json
  podman run --device sluice.dev/priority=critical ...
  SLUICE_NODE_DIR= sluice cdi       not the node service: programs of one user share the host's /dev/shm

docs/guide/containers.md says what the devices change in a container.
exit codes: 0; 1 the installation lacks a file; 2 wrong usage
"""
# The interposer has one path in all containers, so that the file below can name it.
_IN_CONTAINER = "/opt/sluice/lib/sluice"


def _mount(host: Path, container: str, mode: str) -> dict:
    return {"hostPath": str(host), "containerPath": container, "options": ["bind", mode, "nosuid", "nodev"]}


def _device(name: str, priority: int) -> dict:
    return {"name": name, "containerEdits": {"env": [f"SLUICE_PRIORITY={priority}"]}}


def specification(root: Path, node: Path | None) -> str:
    """The JSON text for the installation in `root`, a device a line. `node`: the folder of the node service, if the
    containers use it."""
    library = root / "lib" / "sluice" / "libsluice_intercept.so"
    preload = root / "share" / "sluice" / "ld.so.preload"
    for file in (library, preload):
        if not file.exists():
            raise run_error(f"{file} is missing; build or install Sluice again")
    devices = [_device("besteffort", 0), _device("critical", 1)]
    devices += [_device(str(priority), priority) for priority in range(256)]
    mounts = [_mount(library.parent, _IN_CONTAINER, "ro"), _mount(preload, "/etc/ld.so.preload", "ro")]
    edits: dict = {"mounts": mounts}
    if node:
        # The folder, because a service that starts again makes a new socket.
        mounts.append(_mount(node, IN_CONTAINER, "ro"))
        # A program that starts while the service is away attaches when the service is back.
        edits["env"] = ["SLUICE_SESSION=node"]
    else:
        mounts.append(_mount(Path("/dev/shm"), "/dev/shm", "rw"))
    head = {"cdiVersion": "0.5.0", "kind": "sluice.dev/priority", "containerEdits": edits}
    lines = ",\n".join(json.dumps(device) for device in devices)
    return json.dumps(head)[:-1] + ', "devices": [\n' + lines + "\n]}\n"


def _choose_board(required: bool) -> Path | None:
    """The folder of the node service, if containers use it. Says on standard error what they use."""
    folder = NodeFolder()
    why_not = folder.why_not()
    if required and folder.path:
        why_not = ""
    elif required:
        raise usage_error(f"--node: {why_not}")
    if why_not:
        said = f"containers use /dev/shm: programs of one user share a controller ({why_not})"
    else:
        said = f"containers use the node service in {folder.path}: programs of all users share its board"
    print(f"sluice cdi: {said}", file=sys.stderr)
    return None if why_not else folder.path


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(
        prog="sluice cdi", description="Print a CDI file: devices that give a container a priority.", epilog=_EXAMPLES
    )
    parser.add_argument(
        "--node", action="store_true", help="use the node service also if it does not run now (default: if it runs)"
    )
    options = parser.parse_args(arguments)

    def job() -> int:
        root = Path(os.environ["SLUICE_PROGRAM"]).resolve().parents[1]
        print(specification(root, _choose_board(options.node)), end="")
        return EXIT_FINE

    return run_command("cdi", job)
