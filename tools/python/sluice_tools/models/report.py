"""What `sluice models` prints."""

import json
import sys

from sluice_tools.common.errors import CommandError
from sluice_tools.models.store import Store
from sluice_tools.models.tensor_specs import shape_text


def size_text(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def input_text(variant: dict) -> str:
    if "inputs" in variant:
        return ", ".join(
            f"{entry['name']} {entry['datatype']} {shape_text(entry['shape'])}".strip() for entry in variant["inputs"]
        )
    return "x".join(str(size) if size else "any" for size in variant["input"])


def variant_text(variant: dict) -> str:
    parts = [variant["format"], variant["file"], f"input {input_text(variant)}", variant["dtype"]]
    parts.append(f"batch {variant['batch']}")
    if "device" in variant:
        parts.append(variant.get("gpu_arch", variant["device"]))
    if variant["resizes"]:
        parts.append("resizes its input")
    return ", ".join(parts)


def weights_text(weights: dict) -> str:
    if weights.get("source") == "random":
        return f"random, seed {weights.get('seed')}"
    return str(weights.get("source"))


def print_result(result: dict) -> None:
    state = f"exported in {result['seconds']} s" if result["exported"] else "was there already"
    print(f"{result['name']}: {state}, {result['folder']}")
    for variant in result["variants"]:
        print(f"  {variant_text(variant)}, {size_text(variant['bytes'])}")
    sys.stdout.flush()


def print_available(tasks: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(tasks, indent=2))
        return
    for name, task in sorted(tasks.items(), key=lambda item: (item[1], item[0])):
        print(f"{task:<16}{name}")


def _with_sizes(store: Store, name: str) -> dict:
    """model.json with the folder and, where the file is there, each variant's size."""
    model = store.read(name) or {"variants": []}  # None if it has just been removed
    folder = store.model_folder(name)
    for variant in model["variants"]:
        path = folder / variant["file"]
        variant["bytes"] = path.stat().st_size if path.is_file() else None
    return {**model, "folder": str(folder)}


def print_list(store: Store, as_json: bool) -> None:
    models = []
    for name in store.names():
        try:
            models.append(_with_sizes(store, name))
        except CommandError as error:
            print(f"sluice models: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps({"store": str(store.folder), "models": models}, indent=2))
        return
    if not models:
        print(f"no models in {store.folder}; sluice models export NAME adds one")
        return
    print(f"{'NAME':<32} {'TASK':<15} {'WEIGHTS':<16} {'TORCH':<8} VARIANTS")
    for model in models:
        weights = weights_text(model["weights"])
        weights = weights if len(weights) <= 16 else "..." + weights[-13:]
        formats = ", ".join(_short(variant) for variant in model["variants"])
        print(f"{model['name']:<32} {model['task']:<15} {weights:<16} {model['torch']:<8} {formats}")


def _short(variant: dict) -> str:
    words = [variant["format"]]
    if variant["format"] == "aoti":
        words += [f"b{variant['batch']}", variant.get("gpu_arch", variant["device"])]
    if variant["dtype"] != "float32":
        words.append(variant["dtype"])
    if variant["resizes"]:
        words.append("resizing")
    return " ".join(words) + ("" if variant["bytes"] is not None else " (file missing)")


def print_model(store: Store, name: str, as_json: bool) -> None:
    model = _with_sizes(store, name)
    if as_json:
        print(json.dumps(model, indent=2))
        return
    print(f"{model['name']}: {model['task']}, {model['folder']}")
    print(f"  weights      {weights_text(model['weights'])}")
    if digest := model["weights"].get("sha256"):
        print(f"               sha256 {digest}")
    print(f"  torch        {model['torch']}, torchvision {model['torchvision']}")
    for variant in model["variants"]:
        size = "FILE MISSING" if variant["bytes"] is None else size_text(variant["bytes"])
        print(f"  variant      {variant_text(variant)}, {size}")
