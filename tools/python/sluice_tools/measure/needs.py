"""What a measurement needs of the machine, asked before it begins: a cell that cannot run costs minutes."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from sluice_tools.common import slice_answers
from sluice_tools.common.errors import run_error, usage_error

ON_CPU = "--gpu sim tries the command on the CPU"
SIMULATED = "--gpu sim takes the simulated one"


def version(sluice: str) -> str:
    """Of the programs that measure; empty if it cannot be asked."""
    said = subprocess.run([sluice, "--version"], capture_output=True, text=True, check=False)
    return said.stdout.strip().removeprefix("sluice ")


def commit(sluice: str) -> str:
    """Of the checkout in which the program is, -dirty behind it where files are changed; empty outside of one."""
    asked = ["git", "-C", str(Path(sluice).resolve().parent), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def torch_version() -> str:
    """Without loading it; empty if there is none."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def driver_version() -> str:
    """Of the NVIDIA driver; empty if it cannot be asked."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20)
        return said.stdout.splitlines()[0].strip()
    except (OSError, IndexError, subprocess.SubprocessError):
        return ""


def driver_and_slices(sluice: str, index: int, instead: str = SIMULATED) -> str:
    """The version of the NVIDIA driver, and whether the GPU obeys time slices under it; empty if it cannot be asked."""
    found = driver_version()
    if not found:
        return ""
    uuid = gpus(sluice, "real", index, instead)["devices"][index]["uuid"]
    return f"{found}, slices: {slice_answers.recorded(uuid, slice_answers.loaded_driver(), os.environ).text}"


def others_on_gpu(uuid: str) -> list[str]:
    """Programs that use this GPU; empty where the driver cannot say."""
    asked = ["nvidia-smi", f"--id={uuid}", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    for line in said.splitlines():
        pid, name, memory = (part.strip() for part in [*line.split(","), "", ""][:3])
        if pid.isdecimal() and "nvidia-cuda-mps" not in name:
            found.append(f"{name} (pid {pid}, {memory})")
    return found


def gpus(sluice: str, kind: str, index: int = 0, instead: str = SIMULATED) -> dict:
    """What `sluice gpus --json` says. kind: auto, real or sim.

    Raises CommandError where there is no such GPU, or none of this index; `instead` is what to do then.
    """
    said = subprocess.run([sluice, "gpus", "--gpu", kind, "--json"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        why = said.stderr.strip().removeprefix("sluice gpus: ")
        raise run_error(f"no NVIDIA GPU can be used: {why}; {instead}")
    found = json.loads(said.stdout)
    last = len(found["devices"]) - 1
    if not 0 <= index <= last:
        raise usage_error(f"--device: found {index}, and the last GPU here is {last}")
    return found


def time_scale(name: str) -> float:
    """How much slower than life the time of the GPU of this name passes: 1 on a real one."""
    found = re.search(r"simulated GPU \(scale ([0-9.]+)\)", name)
    return float(found[1]) if found else 1.0


def need_mps(instead: str) -> None:
    """Raises CommandError without the MPS daemon's program; `instead` does without it."""
    if not shutil.which("nvidia-cuda-mps-control"):
        raise usage_error(f"nvidia-cuda-mps-control is in no folder of PATH; {instead} does without")
