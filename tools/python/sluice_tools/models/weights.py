"""Weights from a file: a state_dict, in the forms in which training programs save it."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from sluice_tools.errors import first_line, usage_error

_STATE_KEYS = ("state_dict", "model_state_dict", "model")
_PREFIX = "module."  # of DataParallel


def read_state(path: Path) -> dict:
    """The state_dict of a file, without the prefix of DataParallel. Runs no code of the file."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise usage_error(f"no weights file {path}") from None
    except Exception as error:
        raise usage_error(f"{path} is not a file of weights (a saved state_dict): {first_line(error)}") from error
    for key in _STATE_KEYS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
            break
    if not isinstance(state, dict):
        raise usage_error(f"{path} holds a {type(state).__name__}, not a state_dict")
    if state and all(str(key).startswith(_PREFIX) for key in state):
        state = {str(key).removeprefix(_PREFIX): value for key, value in state.items()}
    return state


def load(module: nn.Module, name: str, path: Path) -> dict:
    """Loads a state_dict that must fit exactly. Returns what model.json says of it."""
    state = read_state(path)
    _require_fit(module, name, state, path)
    # A model trained with frozen batch norms has no counters of batches, and inference reads none.
    module.load_state_dict(state, strict=False)
    return described(path)


def described(path: Path) -> dict:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"source": str(path.absolute()), "sha256": digest.hexdigest()}


def _require_fit(module: nn.Module, name: str, state: dict, path: Path) -> None:
    own = module.state_dict()
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    wrong = [k for k in own if k in state and getattr(state[k], "shape", None) != own[k].shape]
    if missing:
        problem = f"'{missing[0]}' is missing{_and_more(missing)}; is it of another model?"
    elif unexpected:
        problem = f"'{unexpected[0]}' is unexpected{_and_more(unexpected)}; is it of another model?"
    elif wrong:
        found, wanted = list(getattr(state[wrong[0]], "shape", ())), list(own[wrong[0]].shape)
        problem = f"'{wrong[0]}' is {found} where the model has {wanted}{_and_more(wrong)}"
        if found[1:] == wanted[1:]:
            problem += f"; was it trained with {found[0]} classes?" if found else ""
    else:
        return
    raise usage_error(f"{path} does not fit {name}: {problem}")


def _and_more(keys: list[str]) -> str:
    return f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
