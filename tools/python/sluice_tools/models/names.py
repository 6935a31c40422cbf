"""The names of the models that can be exported, with their tasks. Importing torch takes seconds, so
this reads the files of torchvision instead."""

import difflib
import importlib.util
import re
from pathlib import Path

from sluice_tools.common.errors import usage_error

# name: layers, width, heads
ENCODERS = {"bert_large": (24, 1024, 16), "bert_base": (12, 768, 12), "bert_tiny": (2, 128, 2)}
# Below torchvision/models.
_FOLDERS = {"classification": ".", "detection": "detection", "segmentation": "segmentation"}
_REGISTERED = re.compile(r"^@register_model\(\)\n(?:@.*\n|    .*\n|\)\n)*def (\w+)\(", re.MULTILINE)


def tasks() -> dict[str, str]:
    """Every model name, with its task. Only the encoders where torchvision is not installed."""
    found = dict.fromkeys(ENCODERS, "text")
    spec = importlib.util.find_spec("torchvision")
    for place in (spec.submodule_search_locations if spec else None) or ():
        for task, folder in _FOLDERS.items():
            for file in sorted(Path(place, "models", folder).glob("*.py")):
                found |= dict.fromkeys(_REGISTERED.findall(file.read_text()), task)
    return found


def task_of(name: str) -> str:
    known = tasks()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise usage_error(f"unknown model '{name}'{hint}; sluice models list --available names them all")
    return known[name]
