"""Weights from a file: a state_dict, in the forms in which training programs save it."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from sluice_tools.common.errors import CommandError, first_line, usage_error
from sluice_tools.models import safetensors

_STATE_KEYS = ("state_dict", "model_state_dict", "model", "module", "net")
_DEEPEST = 3  # such dictionaries, one in the other
# What DataParallel, torch.compile(), FSDP and activation checkpoints add to the names of what they wrap.
_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_AVERAGED = "n_averaged"  # the counter of AveragedModel
_EXTRA_STATE = "_extra_state"  # of nn.Module.get_extra_state(): anything


def read_file(path: Path, device: str = "cpu"):
    """What torch.save() or safetensors have saved. Runs no code of the file. Raises ValueError."""
    try:
        if safetensors.is_one(path):
            return {name: tensor.to(device) for name, tensor in safetensors.read(path).items()}
        return torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise ValueError(error.strerror or first_line(error)) from error
    except Exception as error:
        raise ValueError(_reason(error)) from error


def _reason(error: Exception) -> str:
    """The errors of torch recommend to load the file without its protection."""
    if "weights_only" not in str(error):
        return first_line(error)
    if found := re.search(r"GLOBAL (\S+)", str(error)):
        return (
            f"it has objects of {found[1]}, which may run code and are not loaded; in the program that made it, save "
            "the weights only: torch.save(model.state_dict(), FILE)"
        )
    return "it is damaged, or of another format"


def read_state(path: Path) -> dict:
    """The state_dict of a file."""
    if not path.exists():
        raise usage_error(f"no weights file {path}")
    try:
        state = read_file(path)
    except ValueError as error:
        raise usage_error(f"{path} is not a file of weights (a saved state_dict, or safetensors): {error}") from error
    for _ in range(_DEEPEST):
        state = next(
            (state[k] for k in _STATE_KEYS if isinstance(state, dict) and isinstance(state.get(k), dict)), state
        )
    if not isinstance(state, dict):
        raise usage_error(f"{path} holds a {type(state).__name__}, not a state_dict")
    return {str(key): value for key, value in state.items()}


def load(module: nn.Module, name: str, path: Path) -> dict:
    """Loads the weights of a file, which must fit exactly. Returns what model.json says of them."""
    load_state(module, name, read_state(path), path)
    return described(path)


def load_state(module: nn.Module, name: str, state: dict, path: Path) -> None:
    try:
        own = module.state_dict()
        fitting = next(
            (found for found in _namings(state, own) if not _missing(found, own) and found.keys() <= own.keys()), None
        )
        if fitting is None:
            raise usage_error(f"{path} does not fit {name}: {_difference(state, own)}; is it of another model?")
        _require_shapes(fitting, own, f"{path} does not fit {name}")
        # A model trained with frozen batch norms has no counters of batches, and inference reads none.
        module.load_state_dict(fitting, strict=False)
    except CommandError:
        raise
    except Exception as error:  # of the user's code, as get_extra_state() is
        raise usage_error(f"{name} does not take the weights of {path}: {first_line(error)}") from error


def described(path: Path) -> dict:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"source": str(path.absolute()), "sha256": digest.hexdigest()}


def _namings(state: dict, own: dict) -> Iterator[dict]:
    """The weights under the names that the model may give them: its own, then without what wrappers add, then without
    the name of a module around it."""
    for part in (state, _without_counter(state)):
        yield part
        yield _without_wrappers(part, own)
        while part and all("." in key for key in part) and len({key.partition(".")[0] for key in part}) == 1:
            part = {key.partition(".")[2]: value for key, value in part.items()}
            yield part
            yield _without_wrappers(part, own)


def _without_counter(state: dict) -> dict:
    counters = [key for key in state if key.rpartition(".")[2] == _AVERAGED]
    outermost = min(counters, key=len, default=None)
    return {key: value for key, value in state.items() if key != outermost}


def _without_wrappers(state: dict, own: dict) -> dict:
    """A part of a name that a wrapper adds may also be the name of a module of the model, so only whole names count."""
    names: dict[str, str | None] = {}
    for name in own:
        names[_plain(name)] = None if _plain(name) in names else name
    found = {}
    for key, value in state.items():
        name = names.get(_plain(key), key)
        if name is None or name in found:
            return state  # two tensors for one name
        found[name] = value
    return found


def _plain(key: str) -> str:
    return ".".join(part for part in key.split(".") if part not in _WRAPPERS)


def _missing(state: dict, own: dict) -> list[str]:
    """A tensor that is saved under another of its names is not missing: safetensors saves it once."""
    saved = {_place(own[key]) for key in state if key in own}
    return [
        key
        for key, value in own.items()
        if key not in state
        and not key.endswith("num_batches_tracked")
        and (_place(value) is None or _place(value) not in saved)
    ]


def _place(value) -> tuple | None:
    """Equal for tied weights."""
    if not isinstance(value, torch.Tensor) or is_lazy(value) or value.layout != torch.strided or not value.numel():
        return None
    return (value.device, value.data_ptr(), value.shape, value.stride()) if value.data_ptr() else None


def _difference(state: dict, own: dict) -> str:
    plain = _without_wrappers(state if _AVERAGED in own else _without_counter(state), own)
    if missing := _missing(plain, own):
        has = next((key for key in state if key not in own), None)
        return f"'{missing[0]}' is missing{_and_more(missing)}" + (f", the file has '{has}'" if has else "")
    unexpected = [key for key in plain if key not in own]
    return f"'{unexpected[0]}' is unexpected{_and_more(unexpected)}"


def _require_shapes(state: dict, own: dict, complaint: str) -> None:
    wrong = [key for key, value in state.items() if _shape(key, own[key]) not in (None, _shape(key, value))]
    if not wrong:
        return
    found, wanted = _shape(wrong[0], state[wrong[0]]), _shape(wrong[0], own[wrong[0]]) or []
    if found is None:
        raise usage_error(f"{complaint}: '{wrong[0]}' is a {type(state[wrong[0]]).__name__} and no tensor")
    problem = f"'{wrong[0]}' is {found} where the model has {wanted}{_and_more(wrong)}"
    if found and found[1:] == wanted[1:]:
        problem += f"; was it trained with {found[0]} classes?"
    raise usage_error(f"{complaint}: {problem}")


def _shape(key: str, value) -> list[int] | None:
    """None: any fits, or it has none."""
    if key.rpartition(".")[2] == _EXTRA_STATE or not isinstance(value, torch.Tensor) or is_lazy(value):
        return None
    return list(value.shape)


def _and_more(keys: list[str]) -> str:
    return f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
