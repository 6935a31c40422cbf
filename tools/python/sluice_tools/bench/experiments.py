"""Cells that are experiment files, run by `sluice run`."""

import json
import subprocess
from pathlib import Path

_MODEL = {"model_name": "fasterrcnn_resnet50_fpn", "backend": "torchscript",
          "input_file_path": "synthetic"}
LOW = {**_MODEL, "output_file_name": "A", "priority": 0, "sleep_time": 0,
        "resize": True, "resize_size": [1440, 2560]}
HIGH = {**_MODEL, "output_file_name": "B", "priority": 1, "sleep_time": 1}

POLICIES = ("none", "gate", "sync:1", "event:2", "device:4")

# The published pair; and A with more images a job, because alone it does not fill this GPU's queue.
PARTS = {"published": {}, "published, A of 8 images": {"batch_size": 8}}


def experiment(cell: str, changes: dict, mps: bool) -> dict:
    """cell: "A alone", "B alone", "no hook", or a policy of A beside B."""
    models = {"A": {**LOW, **changes}, "B": dict(HIGH)}
    for model in models.values():
        model["control"] = {"control": cell in POLICIES}
    if cell in POLICIES:
        models["A"]["control"]["policy"] = cell
        models["B"]["control"]["policy"] = "gate"
    chosen = [models[cell[0]]] if cell.endswith("alone") else list(models.values())
    return {"models": chosen, "mps": mps}


CELLS = ("A alone", "B alone", "no hook", *POLICIES)


class RunFailed(RuntimeError):
    """`sluice run` ended with `code`; the text is the last line that it said, and where the rest is."""

    def __init__(self, code: int, log: Path):
        said = log.read_text(errors="replace").strip().splitlines()[-1:]
        super().__init__(f"sluice run exited with {code}: {' '.join(said)} ({log})")
        self.code = code


def clients_of(folder: Path) -> list:
    """What `sluice status` said at the end of the run; empty where nothing was hooked."""
    try:
        return json.loads((folder / "status.json").read_text())["clients"]
    except (OSError, ValueError, KeyError):
        return []


def run_models(options, folder: Path, content: dict, *flags: str):
    """Runs an experiment in `folder`, with the models it lacks exported first. Raises
    RunFailed; what the run said is in run.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "experiment.json"
    file.write_text(json.dumps(content, indent=2))
    command = [options.sluice, "run", file.name, "--out", ".", "--gpu", options.gpu, "--device",
               str(options.device), "--duration", str(options.seconds), "--export", *flags]
    with (folder / "run.txt").open("w") as log:
        done = subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RunFailed(done.returncode, folder / "run.txt")


def run(options, folder: Path, content: dict) -> list:
    """Rows of one run, a model each."""
    run_models(options, folder, content)
    # Policy none goes past the gate by its nature.
    bypassed = {client["pid"]: client["bypassed"] for client in clients_of(folder)
                if client["policy"] != "none"}
    rows = []
    for model in json.loads((folder / "results.json").read_text())["models"]:
        part = {name: (model[name] or {}).get("mean_ms") for name in ("collided", "uncollided")}
        rows.append({
            "model": model["log"], "jobs": model["jobs"], "mean_ms": model["mean_ms"],
            "p50_ms": model["p50_ms"], "p99_ms": model["p99_ms"],
            "per_s": model["throughput_per_s"], "collided_ms": part["collided"],
            "uncollided_ms": part["uncollided"], "bypassed": bypassed.get(model["pid"], ""),
        })
    return rows
