"""The command line of `sluice device-plugin`."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import Parser, run_error, usage_error
from sluice_tools.common.grammar import GIVE_FORMS, MEMORY_FORMS, parse_give, parse_memory
from sluice_tools.device_plugin.slots import Gpus

_EXAMPLES = """\
examples:
  sluice device-plugin                              one critical and four best-effort slots of each GPU
  sluice device-plugin --critical 2 --besteffort 8
  sluice device-plugin --critical-memory 40GiB --besteffort-memory 10GiB
  kubectl apply -f share/sluice/kubernetes.yaml     how it runs on every node

docs/guide/kubernetes.md has the rest.
exit codes: 1 the kubelet refuses a resource; 2 wrong usage. Otherwise it runs until it is stopped
"""
_CHECK_KUBELET_EVERY_S = 0.5


def _slots(text: str) -> int:
    if not text.isdecimal() or int(text) > 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0 to 1000")
    return int(text)


def _memory(text: str) -> str:
    if parse_memory(text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not one of {MEMORY_FORMS}")
    return text


def _give(text: str) -> str:
    if parse_give(text) is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not {GIVE_FORMS}")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice device-plugin",
        description="Offer GPUs with a priority to Kubernetes: sluice.dev/critical and sluice.dev/besteffort.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--critical", type=_slots, default=1, metavar="N", help="critical containers for each GPU (default: 1)"
    )
    parser.add_argument(
        "--besteffort", type=_slots, default=4, metavar="N", help="best-effort containers for each GPU (default: 4)"
    )
    for name, which in (("critical", "critical"), ("besteffort", "best-effort")):
        parser.add_argument(
            f"--{name}-memory",
            type=_memory,
            metavar="SIZE",
            help=f"the most device memory of each program of a {which} container on each GPU (default: no limit)",
        )
    parser.add_argument(
        "--critical-give",
        type=_give,
        metavar="SHARE",
        help="how much longer jobs of a critical container may take for those below it (default: 5%%)",
    )
    parser.add_argument("--gpu", choices=("real", "sim"), default="real", help="sim: the simulated GPU (default: real)")
    parser.add_argument(
        "--gpu-kind",
        default="nvidia.com/gpu",
        metavar="KIND",
        help="the kind of the CDI devices that are the GPUs, by UUID (default: nvidia.com/gpu)",
    )
    parser.add_argument(
        "--kubelet",
        type=Path,
        default=Path("/var/lib/kubelet/device-plugins"),
        metavar="DIR",
        help="the kubelet's folder for device plugins (default: /var/lib/kubelet/device-plugins)",
    )
    parser.add_argument(
        "--every", type=_seconds, default=60, metavar="SECONDS", help="how often GPUs are looked for (default: 60)"
    )
    return parser


def _say(line: str) -> None:
    print(f"sluice device-plugin: {line}", file=sys.stderr, flush=True)


class GpuFinder:
    """Asks `sluice gpus`, in a process of its own: an initialised driver leaves threads and files behind."""

    def __init__(self, program: str, choice: str):
        self._command = [program, "gpus", "--json", "--gpu", choice]
        self._said = ""

    def find(self) -> list[str]:
        """The UUIDs. Says once what is wrong, or which GPUs there are."""
        done = subprocess.run(self._command, capture_output=True, text=True)
        found = [device["uuid"] for device in json.loads(done.stdout)["devices"]] if done.returncode == 0 else []
        said = f"GPUs: {', '.join(found)}" if found else f"no GPU: {done.stderr.strip()}"
        if said != self._said:
            _say(said)
            self._said = said
        return found


def _identity(path: Path) -> tuple | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _start(resource, folder: Path, grpc) -> bool:
    """False if there is no kubelet behind its socket."""
    try:
        resource.start(folder)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return False
        raise run_error(f"the kubelet refuses {resource.name}: {error.details()}") from None
    _say(f"registered {resource.name}")
    return True


def serve(options, finder: GpuFinder) -> int:
    try:
        import grpc

        from sluice_tools.device_plugin.resource import Resource
    except ImportError as error:
        raise usage_error(
            f"{sys.executable} has no {error.name}: apt-get install python3-grpcio python3-protobuf, or name a "
            "Python that has both with SLUICE_PYTHON"
        ) from None
    gpus = Gpus()
    kind = options.gpu_kind if options.gpu == "real" else None
    counts = {"critical": options.critical, "besteffort": options.besteffort}
    settings = {
        "critical": {"SLUICE_MEMORY": options.critical_memory, "SLUICE_GIVE": options.critical_give},
        "besteffort": {"SLUICE_MEMORY": options.besteffort_memory},
    }
    resources = [Resource(name, count, gpus, kind, settings[name]) for name, count in counts.items() if count]
    registered, look_at = None, 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                gpus.update(finder.find())
                look_at = time.monotonic() + options.every
            # The kubelet forgets the plugins when it restarts, and makes its socket anew.
            now = _identity(options.kubelet / "kubelet.sock")
            known = now == registered and all(resource.serves for resource in resources)
            if now and not known and all(_start(resource, options.kubelet, grpc) for resource in resources):
                registered = now
            time.sleep(_CHECK_KUBELET_EVERY_S)
    finally:
        for resource in resources:
            resource.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.critical == options.besteffort == 0:
        parser.error("--critical and --besteffort are both 0: nothing to offer")

    def job() -> int:
        return serve(options, GpuFinder(os.environ["SLUICE_PROGRAM"], options.gpu))

    return run_command("device-plugin", job)
