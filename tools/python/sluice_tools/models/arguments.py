"""Which argument of forward() each input is: a tensor goes to the argument of its name.

The server passes inputs by position, so they are stored in the order of forward(), and the stored file takes nothing
else.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import treespec_loads

from sluice_tools.common.errors import usage_error


@dataclass(frozen=True)
class Arguments:
    """What a model takes."""

    names: list[str] = field(default_factory=list)  # in the order of forward()
    more_names: bool = False  # **kwargs
    more: bool = False  # *args

    def for_list(self, count: int) -> list[str]:
        """Names for the tensors of a list."""
        if count > len(self.names) and not self.more:
            raise usage_error(f"forward() takes {len(self.names)} arguments, not {count}")
        return (self.names + [f"INPUT__{i}" for i in range(len(self.names), count)])[:count]

    def of_dictionary(self, keys: list[str], source: str) -> list[str | None]:
        """The argument of each tensor of a dictionary."""
        for key in keys:
            if key not in self.names and not self.more_names:
                known = f"; it has {', '.join(self.names)}" if self.names else ""
                raise usage_error(
                    f"{source}: forward() has no argument '{key}'{known}; name the tensors as forward() does, "
                    "or give --input for each, in the order of forward()"
                )
        return list(keys)

    def of_inputs(self, inputs: list[str]) -> list[str | None]:
        """The argument of each --input; None: of *args. Inputs with other names are in the order of forward()."""
        if all(name in self.names for name in inputs):
            return list(inputs)
        places = self.names[: len(inputs)]
        for name, place in zip(inputs, places):
            if name in self.names and name != place:
                raise usage_error(
                    f"--input {name}: forward() has this argument at another place, and not all inputs have the names "
                    f"of its arguments, which are: {', '.join(self.names)}"
                )
        rest = inputs[len(places) :]
        if rest and not self.more and not self.more_names:
            raise usage_error(f"forward() takes {len(self.names)} arguments, not {len(inputs)}")
        return [*places, *([None] * len(rest) if self.more else rest)]

    def order(self, arguments: list[str | None]) -> list[int]:
        """The indices of `arguments` in the order of forward()."""
        last = len(self.names)
        return sorted(
            range(len(arguments)),
            key=lambda i: self.names.index(name) if (name := arguments[i]) in self.names else last,
        )


def of_module(module: nn.Module) -> Arguments:
    kinds = inspect.signature(module.forward).parameters.values()
    return Arguments(
        [p.name for p in kinds if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)],
        more_names=any(p.kind == p.VAR_KEYWORD for p in kinds),
        more=any(p.kind == p.VAR_POSITIONAL for p in kinds),
    )


def of_script(script: torch.jit.ScriptModule) -> Arguments:
    return Arguments([argument.name for argument in _schema(script)])


class ByName(nn.Module):
    """A module that takes the tensors of some arguments, in the order of their names."""

    def __init__(self, module: nn.Module, arguments: list[str | None]):
        super().__init__()
        self.module, self._arguments = module, arguments
        self._kinds = inspect.signature(module.forward).parameters
        self.train(module.training)

    def forward(self, *tensors: torch.Tensor):
        unnamed = [tensor for name, tensor in zip(self._arguments, tensors) if name is None]
        named = _named(self._arguments, tensors)
        placed = [
            named.pop(p.name)
            for p in self._kinds.values()
            if p.name in named and (p.kind == p.POSITIONAL_ONLY or (unnamed and p.kind == p.POSITIONAL_OR_KEYWORD))
        ]
        return self.module(*placed, *unnamed, **named)


def call_script(script: torch.jit.ScriptModule, arguments: list[str | None]) -> Callable:
    """As ByName. Arguments that are left are None, unless they have a default."""
    left = dict.fromkeys(_left(script, arguments))
    return lambda *tensors: script(**_named(arguments, tensors), **left)


def _named(arguments: list[str | None], tensors: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in zip(arguments, tensors) if name is not None}


def only(script: torch.jit.ScriptModule, arguments: list[str | None]) -> torch.jit.ScriptModule:
    """`script` with these arguments and no others, in this order. Returns it frozen."""
    left = _left(script, arguments)
    if [argument.name for argument in _schema(script)] != arguments or any(a.kwarg_only for a in _schema(script)):
        taken = [f"input{i}" for i in range(len(arguments))]
        passed = [f"{name}={value}" for name, value in zip(arguments, taken)] + [f"{name}=None" for name in left]
        holder = nn.Module()
        holder.model = script
        script = torch.jit.script(holder)
        script.define(
            f"def forward(self, {': Tensor, '.join(taken)}: Tensor):\n    return self.model({', '.join(passed)})\n"
        )
    return frozen(script)


def frozen(script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    # A module that is frozen already is not in any mode.
    return torch.jit.freeze(script.eval()) if hasattr(script, "training") else script


def _left(script: torch.jit.ScriptModule, arguments: list[str | None]) -> list[str]:
    """Arguments without an input and without a default."""
    left = []
    for argument in _schema(script):
        kind = str(argument.type)
        if argument.name in arguments:
            if kind not in ("Tensor", "Optional[Tensor]"):
                text = "; it takes token ids, not text" if "str" in kind else ""
                raise usage_error(
                    f"the argument '{argument.name}' of forward() is of type {kind}, but the server gives tensors{text}"
                )
        elif not argument.has_default_value():
            if not kind.startswith("Optional["):
                raise usage_error(f"forward() has an argument '{argument.name}' without an input")
            left.append(argument.name)
    return left


def _schema(script: Any) -> list:
    """The arguments of forward(), without self."""
    return script.forward.schema.arguments[1:]


def of_package(package: Any) -> Arguments:
    """A package knows the names of its keyword arguments; others are INPUT__0, ..."""
    try:
        positional, keyword = treespec_loads(package.loader.get_call_spec()[0]).children()
    except Exception:
        return Arguments(more=True)  # a package of another torch may not say what it takes
    if positional.num_leaves + keyword.num_leaves != positional.num_children + keyword.num_children:
        return Arguments(more=True)  # containers of tensors
    return Arguments([f"INPUT__{i}" for i in range(positional.num_children)] + list(keyword.context))


def call_package(package: Callable, arguments: list[str | None]) -> Callable:
    """A package takes the tensors of keyword arguments by name only."""
    count = sum(name is None or name == f"INPUT__{i}" for i, name in enumerate(arguments))
    return lambda *tensors: package(*tensors[:count], **_named(arguments[count:], tensors[count:]))
