"""`sluice bench published`: the original experiment's pair, and unmodified PyTorch, under every policy."""

import contextlib
import sys
from pathlib import Path

from sluice_tools.measure import experiments
from sluice_tools.measure.commands import Commands, Setting, Timing
from sluice_tools.measure.programs import mps
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Cell
from sluice_tools.measure.sitting import Group
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

_MODEL = {"model_name": "fasterrcnn_resnet50_fpn", "backend": "torchscript", "input_file_path": "synthetic"}
LOW = {**_MODEL, "output_file_name": "A", "priority": 0, "sleep_time": 0, "resize": True, "resize_size": [1440, 2560]}
HIGH = {**_MODEL, "output_file_name": "B", "priority": 1, "sleep_time": 1}
NO_HOOK = "no hook"
POLICIES = ("none", "gate", "sync:1", "event:2", "device:200us")
CONDITIONS = (ALONE, BEST_EFFORT_ALONE, NO_HOOK, *POLICIES)
_PYTHON_CONDITIONS = (ALONE, BEST_EFFORT_ALONE, "none", "event:2", "device:200us")

# The original pair; and A with more images a job, because alone it does not fill this GPU's queue.
PARTS = {"published": {}, "large": {"batch_size": 8}}
SUBJECTS = {"published": "FasterRCNN pair", "large": "FasterRCNN pair, A of 8 images", "python": "serve.py + train.py"}


def experiment(condition: str, changes: dict, under_mps: bool) -> dict:
    """A (best effort) and B (critical), or one of them alone; policies are A's."""
    low, high = {**LOW, **changes}, dict(HIGH)
    hooked = condition in POLICIES
    low["control"] = {"control": hooked} | ({"policy": condition} if hooked else {})
    high["control"] = {"control": hooked} | ({"policy": "gate"} if hooked else {})
    chosen = {ALONE: [high], BEST_EFFORT_ALONE: [low]}.get(condition, [low, high])
    return {"models": chosen, "mps": under_mps}


def _models(options, part: str, mode: str, repeat: int) -> list[Group]:
    how = experiments.How(options.sluice, options.gpu, options.device, options.seconds)
    roles = {"A": BEST_EFFORT, "B": CRITICAL}

    def measure(cell: Cell) -> list:
        content = experiment(cell.name, PARTS[part], mode == "MPS")
        folder = options.out / f"{part}-{mode}" / cell.name.replace(" ", "-") / str(repeat)
        return experiments.measure(how, folder, content, roles)

    return [
        Group([Cell(SUBJECTS[part], mode, name, repeat, options.seconds)], lambda: contextlib.nullcontext(measure))
        for name in CONDITIONS
    ]


def _python(options, mode: str, repeat: int) -> Group:
    examples = Path(__file__).resolve().parents[3] / "examples"
    device = ["--device", f"cuda:{options.device}", "--seconds", "100000"]
    commands = {
        CRITICAL: [sys.executable, str(examples / "serve.py"), *device, "--cuda-graph"],
        BEST_EFFORT: [sys.executable, str(examples / "train.py"), *device, "--amp", "bf16"],
    }
    timing = Timing(options.seconds, warm_up=3, start=120)
    shown = {ALONE: (CRITICAL,), BEST_EFFORT_ALONE: (BEST_EFFORT,)}

    @contextlib.contextmanager
    def opened():
        with (
            mps(options.sluice, mode == "MPS") as environment,
            Commands(options.sluice, options.gpu, commands, timing, options.out / "python", environment) as made,
        ):

            def measure(cell: Cell) -> list:
                policy = cell.name if cell.name not in shown else "none"
                label = f"{mode}-{cell.name}-{repeat}".replace(" ", "-").replace(":", "-")
                return made.measure(Setting(shown.get(cell.name, (CRITICAL, BEST_EFFORT)), policy), label)

            yield measure

    return Group([Cell(SUBJECTS["python"], mode, name, repeat, options.seconds) for name in _PYTHON_CONDITIONS], opened)


def groups(options) -> list[Group]:
    """All cells before the next repeat, so that a drift of the machine shows as range."""
    found: list[Group] = []
    for repeat in range(1, options.repeats + 1):
        for part in PARTS:
            if part in options.parts:
                for mode in options.mode or ("time-sliced",):
                    found += _models(options, part, mode, repeat)
        if "python" in options.parts:
            found += [_python(options, mode, repeat) for mode in options.modes]
    for group in found:
        group.cells = [cell for cell in group.cells if not options.cell or cell.name in options.cell]
    return [group for group in found if group.cells]
