"""Which models there are, and how one is built. Nothing is downloaded."""

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision
from torch import nn

from sluice_tools.errors import first_line, usage_error
from sluice_tools.models import encoder, names


@dataclass(frozen=True)
class Model:
    name: str
    task: str
    module: nn.Module
    input: list[int]  # of one item of a batch; 0 = any

    def example(self, batch: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        shape = [batch, *self.input]
        if self.task == "text":
            ids = torch.randint(encoder.VOCABULARY, shape, generator=generator)
            return ids.to(device)
        return torch.rand(shape, generator=generator).to(device=device, dtype=dtype)


def build(name: str, seed: int, size: list[int] | None, sequence: int) -> Model:
    """The model with random weights: the same seed gives the same bits."""
    task = names.task_of(name)
    torch.manual_seed(seed)
    if task == "text":
        return Model(name, task, encoder.Encoder(*names.ENCODERS[name]).eval(), [sequence])
    backbone = {} if task == "classification" else {"weights_backbone": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inception and googlenet announce a changed default
        module = torchvision.models.get_model(name, weights=None, **backbone).eval()
    if task == "detection":
        return Model(name, task, module, [3, 0, 0])
    return Model(name, task, module, [3, *(size or _usual_size(name, task, module))])


def _usual_size(name: str, task: str, module: nn.Module) -> list[int]:
    if isinstance(fixed := getattr(module, "image_size", None), int):
        return [fixed, fixed]
    preset = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    side = preset.crop_size if task == "classification" else preset.resize_size
    return [side[0], side[0]]


def load_weights(model: Model, path: Path) -> dict:
    """Loads a state_dict that must fit exactly. Returns what model.json says of it."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise usage_error(f"no weights file {path}") from None
    except Exception as error:
        raise usage_error(f"{path} is not a file of weights (a saved state_dict): {first_line(error)}") from error
    if not isinstance(state, dict):
        raise usage_error(f"{path} holds a {type(state).__name__}, not a state_dict")
    _require_fit(model, state, path)
    model.module.load_state_dict(state)
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return {"source": str(path.absolute()), "sha256": digest.hexdigest()}


def _require_fit(model: Model, state: dict, path: Path) -> None:
    own = model.module.state_dict()
    # A model trained with frozen batch norms has no such counter, and inference reads none.
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    wrong = [k for k in own if k in state and getattr(state[k], "shape", None) != own[k].shape]
    problem = None
    if missing:
        problem = f"'{missing[0]}' is missing{_and_more(missing)}"
    elif unexpected:
        problem = f"'{unexpected[0]}' is unexpected{_and_more(unexpected)}"
    elif wrong:
        found = list(getattr(state[wrong[0]], "shape", ()))
        problem = f"'{wrong[0]}' is {found} where the model has {list(own[wrong[0]].shape)}{_and_more(wrong)}"
    if problem:
        raise usage_error(f"{path} does not fit {model.name}: {problem}; is it of another model?")
    if absent := [k for k in own if k not in state]:
        state.update({key: own[key] for key in absent})


def _and_more(keys: list[str]) -> str:
    return f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
