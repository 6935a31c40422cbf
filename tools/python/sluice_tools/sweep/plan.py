"""What a sweep runs: each model alone, then the experiment with each value as one model's policy."""

import copy
import json
import re
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.common.grammar import Policy, required_policy
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE


def read_experiment(file: Path) -> dict:
    """The experiment with the paths that are relative made absolute: runs have folders of their own."""
    try:
        content = json.loads(file.read_text())
        models = content["models"]
        names = [model["output_file_name"] for model in models]
    except OSError as error:
        raise usage_error(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise usage_error(
            f"{file} is not an experiment ({type(error).__name__}: {error}); see docs/reference/experiment-file.md"
        ) from error
    if len(set(names)) != len(names):
        raise usage_error(f"{file}: two models have one output_file_name")
    for model in models:
        for key in ("input_file_path", "recording"):
            path = model.get(key, "")
            if Path(path).is_file() and ("/" in path or path.endswith(".json") or key != "recording"):
                model[key] = str(Path(path).resolve())
    return content


def values(patterns: list) -> list:
    """'sync:{1,2}' gives sync:1 and sync:2, 'device:{50,200}us' device:50us and device:200us; what a
    shell has made of it already is taken too."""
    found = []
    for pattern in patterns:
        braces = re.fullmatch(r"([^{]*)\{([0-9, ]+)\}(.*)", pattern)
        some = [braces[1] + number.strip() + braces[3] for number in braces[2].split(",")] if braces else [pattern]
        found += [str(policy(text)) for text in some]
    return list(dict.fromkeys(found))


def policy(cell: str) -> Policy:
    return required_policy(cell)


def pick(content: dict, name: str) -> dict:
    """The model that --model means: by log name, the end of it, or model name."""
    models = content["models"]
    by_log = [model for model in models if model["output_file_name"] == name]
    by_end = [model for model in models if model["output_file_name"].endswith("_" + name)]
    by_model = [model for model in models if model.get("model_name") == name]
    for found in (by_log, by_end, by_model):
        if len(found) == 1:
            return found[0]
    names = ", ".join(model["output_file_name"] for model in models)
    raise usage_error(f"--model: '{name}' is not one of {names}")


def critical(content: dict, swept: dict) -> dict:
    """The model of the highest priority above the swept one: what its policy is for."""
    above = [
        model
        for model in content["models"]
        if model.get("priority", 0) > swept.get("priority", 0) and (model.get("control") or {}).get("control")
    ]
    if not above:
        raise usage_error(
            f"no model with control has a higher priority than {swept['output_file_name']}, "
            "so no policy of it would do anything"
        )
    return max(above, key=lambda model: model["priority"])


def alone(content: dict, log: str) -> dict:
    changed = copy.deepcopy(content)
    changed["models"] = [model for model in changed["models"] if model["output_file_name"] == log]
    changed["models"][0]["control"] = {"control": False}
    return changed


def together(content: dict, log: str, policy: str) -> dict:
    changed = copy.deepcopy(content)
    for model in changed["models"]:
        if model["output_file_name"] == log:
            model["control"] = {"control": True, "policy": policy}
    return changed


def cells(content: dict, swept: str, high: str, policies: list) -> list:
    """(name of the cell, experiment)."""
    return [
        (ALONE, alone(content, high)),
        (BEST_EFFORT_ALONE, alone(content, swept)),
        *((policy, together(content, swept, policy)) for policy in policies),
    ]
