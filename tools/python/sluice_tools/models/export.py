"""One export: build, convert, put into the store."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision

from sluice_tools.common.errors import usage_error
from sluice_tools.models import aoti, catalogue, names, torchscript, weights
from sluice_tools.models.store import Store, variant_key


@dataclass(frozen=True)
class Request:
    format: str
    batch: int
    device: str | None
    weights: Path | None
    seed: int
    size: list[int] | None
    sequence: int
    dtype: str
    force: bool
    classes: int | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def aoti_device(self) -> str:
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")


def require_possible(wanted: list[str], request: Request) -> None:
    """Everything that can be refused before the first model is built."""
    for name in wanted:
        task = names.task_of(name)
        if request.format == "aoti":
            aoti.require_possible(task, name, request.aoti_device)
        if request.format == "training" and task not in ("classification", "text"):
            raise usage_error(f"{name} is a {task} model: --train takes classification and text models")
        if task == "detection" and request.dtype != "float32":
            raise usage_error(f"{name} is a detection model: its boxes need float32, not {request.dtype}")
        if request.classes and task == "text":
            raise usage_error(f"--classes means nothing to {name}: it is a text model")
        if task in ("detection", "text") and request.size:
            hint = "it takes any size" if task == "detection" else "it takes --sequence"
            raise usage_error(f"--size means nothing to {name}: {hint}")


class Progress:
    """Lines on standard error, so that standard output holds results only."""

    def __init__(self, name: str):
        self._name = name
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def __call__(self, what: str) -> None:
        print(f"{self._name}: {what} ({self.seconds:.1f} s)", file=sys.stderr, flush=True)


def export(name: str, request: Request, store: Store) -> dict:
    """Puts one model into the store. Returns what was done, as `--json` prints it."""
    note = Progress(name)
    origin = f"weights {request.weights}" if request.weights else f"random, seed {request.seed}"
    note(f"building, {origin}")
    model = catalogue.build(name, request.seed, request.size, request.sequence, request.classes)
    source = {"source": "random", "seed": request.seed}
    if request.weights:
        source = weights.load(model.module, name, request.weights)
    elif request.classes:
        source["classes"] = request.classes
    model.module.to(request.torch_dtype)
    described = {
        "name": name,
        "task": model.task,
        "weights": source,
        "torch": torch.__version__.split("+")[0],
        "torchvision": torchvision.__version__.split("+")[0],
    }
    anew = _begins_anew(described, request, store)
    if not request.force and (there := _variants_there(model, request, store)):
        note("already in the store; --force exports it again")
        return result_of(described, there, store, note.seconds, exported=False)
    with store.work_folder() as work, torch.inference_mode():
        variants = _convert(model, request, work, note)
        store.publish(work, {**described, "variants": variants}, replace=anew)
    return result_of(described, variants, store, note.seconds, exported=True)


def _convert(model: catalogue.Model, request: Request, work: Path, note: Progress) -> list[dict]:
    if request.format == "torchscript":
        return torchscript.save(model, request.torch_dtype, work, note)
    if request.format == "training":
        with torch.inference_mode(False):
            return [torchscript.save_for_training(model, request.torch_dtype, work, note)]
    with torch.inference_mode(False), torch.no_grad():  # torch.export takes no inference tensors
        return aoti.save(model, request.torch_dtype, request.batch, request.aoti_device, work, note)


def _begins_anew(described: dict, request: Request, store: Store) -> bool:
    """Whether the model in the store is another one, all of whose variants must go."""
    if request.force and not _readable(store, described["name"]):
        return True
    old = store.read(described["name"])
    if old is None:
        return False
    for key in ("weights", "torch", "torchvision"):
        if old.get(key) == described[key]:
            continue
        if request.force:
            return True
        raise usage_error(
            f"{described['name']} in {store.folder} has {key} {_say(old.get(key))}, not "
            f"{_say(described[key])}; --force replaces it with all its variants"
        )
    return False


def _readable(store: Store, name: str) -> bool:
    try:
        store.read(name)
        return True
    except Exception:
        return False


def _say(value) -> str:
    if isinstance(value, dict):
        return f"random, seed {value.get('seed')}" if "seed" in value else str(value.get("source"))
    return str(value)


def _variants_there(model: catalogue.Model, request: Request, store: Store) -> list[dict]:
    """The variants that this export would make, if the store has them all already."""
    old = store.read(model.name)
    if old is None:
        return []
    if request.format == "aoti":
        wanted = aoti.describe(model.input, request.torch_dtype, request.batch, request.aoti_device)
        found = [v for v in old["variants"] if variant_key(v) == variant_key(wanted)]
    else:
        found = [
            variant
            for variant in old["variants"]
            if variant["format"] == request.format and variant["dtype"] == request.dtype
        ]
        if any(variant["input"] != model.input for variant in found):
            return []  # another size or sequence was asked for: model.json has to say so
    folder = store.model_folder(model.name)
    return found if all((folder / variant["file"]).is_file() for variant in found) else []


def result_of(described: dict, variants: list, store: Store, seconds: float, exported: bool) -> dict:
    folder = store.model_folder(described["name"])
    files = [{**variant, "bytes": (folder / variant["file"]).stat().st_size} for variant in variants]
    return {**described, "folder": str(folder), "exported": exported, "seconds": round(seconds, 1), "variants": files}
