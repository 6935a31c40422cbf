"""How each way of running a model launches its work, and whether all of it passes the gate."""

import sys
import time
from pathlib import Path

from sluice_tools.measure import experiments
from sluice_tools.measure.programs import session

FIELDS = ("program", "role", "entry", "launches", "gated", "captured", "waited", "bypassed", "unhooked")

# Each runs with a ResNet-50 in the other role: best effort under device:4, critical under gate.
_EXPERIMENTS = {
    "TorchScript": {"backend": "torchscript"},
    "AOTInductor": {"backend": "aoti"},
    "TorchScript, CUDA graph": {"backend": "torchscript", "cuda_graph": True},
}
_PROGRAMS = {"Python, eager": [], "Python, torch.compile": ["--compile"], "Python, CUDA graph": ["--cuda-graph"]}


def _rows(program: str, clients: list) -> list:
    rows = []
    for client in clients:
        role = "critical" if client["priority"] else "best effort"
        for entry in client["coverage"]:
            if entry["launches"]:
                rows.append(
                    {
                        "program": program,
                        "role": role,
                        "entry": entry["entry"],
                        "bypassed": sum(entry["bypassed"].values()),
                        "unhooked": client["unhooked_asked"],
                        **{name: entry[name] for name in ("launches", "gated", "captured", "waited")},
                    }
                )
    return rows


def _how(options) -> experiments.How:
    return experiments.How(options.sluice, options.gpu, options.device, options.seconds)


def _experiment(options, name: str, changes: dict) -> list:
    model = {"model_name": "resnet50", "input_file_path": "synthetic", **changes}
    models = [
        {**model, "output_file_name": "low", "priority": 0, "control": {"control": True, "policy": "device:4"}},
        {
            **model,
            "output_file_name": "high",
            "priority": 1,
            "sleep_time": 0.01,
            "control": {"control": True, "policy": "gate"},
        },
    ]
    folder = options.out / "coverage" / name.replace(", ", "-").replace(" ", "-")
    experiments.run_models(_how(options), folder, {"models": models})
    return _rows(name, experiments.clients_of(folder))


def _program(options, name: str, flags: list) -> list:
    serve = str(Path(__file__).resolve().parents[3] / "examples" / "serve.py")
    command = [sys.executable, serve, "--device", f"cuda:{options.device}", "--seconds", "600"]
    with session(options.sluice, options.gpu) as opened:
        started = [
            opened.start([*command, "--period-ms", "0", *flags], 0, "device:4", {}),
            opened.start([*command, "--period-ms", "10", *flags], 1, "gate", {}),
        ]
        for program in started:
            program.wait_for("serving")
        time.sleep(options.seconds)
        return _rows(name, list(opened.clients().values()))


def run(options) -> list:
    rows = []
    for name, changes in _EXPERIMENTS.items():
        rows += _experiment(options, name, changes)
    for name, flags in _PROGRAMS.items():
        rows += _program(options, name, flags)
    return rows


def failures(rows: list) -> list:
    return [
        f"{row['program']}, {row['role']}: {row['bypassed']} launches of {row['entry']} bypassed"
        for row in rows
        if row["bypassed"]
    ]
