"""What a benchmark needs of the machine, asked before it begins: a cell that cannot run costs minutes."""

import json
import shutil
import subprocess

from sluice_tools.errors import run_error, usage_error


def need_gpu(sluice: str, index: int, without: str = "--gpu sim tries the command on the CPU"):
    """Raises CommandError unless there is a real GPU of this index; `without` is what to do then."""
    said = subprocess.run([sluice, "gpus", "--gpu", "real", "--json"], capture_output=True, text=True)
    if said.returncode != 0:
        why = said.stderr.strip().removeprefix("sluice gpus: ")
        raise run_error(f"it needs an NVIDIA GPU: {why}; {without}")
    found = len(json.loads(said.stdout)["devices"])
    if index >= found:
        raise usage_error(f"--device {index}: of {found} GPUs here the last is {found - 1}")


def need_mps(option: str):
    """Raises CommandError without the MPS daemon's program; `option` does without it."""
    if not shutil.which("nvidia-cuda-mps-control"):
        raise usage_error(f"nvidia-cuda-mps-control is in no folder of PATH; {option} does without")
