"""What a micro-batch may change, so that a dropped one can be taken back to the bit."""

import contextlib
import inspect
import sys
import traceback
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class State:
    """Gradients, buffers and random generators of a training.

    Gradients are put aside while a micro-batch runs, so that its own gradients accumulate from
    nothing: dropping them needs neither a copy nor a launch. Adding them up afterwards computes the
    same bits as autograd does.
    """

    def __init__(self, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer | None") -> None:
        import torch

        self._torch = torch
        parameters = list(model.parameters())
        if optimizer is not None:
            known = {id(parameter) for parameter in parameters}
            for group in optimizer.param_groups:
                parameters += [p for p in group["params"] if id(p) not in known]
        self._parameters = parameters
        # With their places, because a module may replace a buffer instead of writing into it.
        self._buffers = [
            (module._buffers, name, buffer)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self._gradients: list[torch.Tensor | None] = []
        self._contents: list[torch.Tensor] = []
        self._random: list[torch.Tensor] = []

    def save(self) -> None:
        """Before a micro-batch."""
        torch = self._torch
        self._gradients = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        with torch.no_grad():
            self._contents = [buffer.clone() for _, _, buffer in self._buffers]
        self._random = random_state()

    def keep(self) -> None:
        """The micro-batch is whole: adds its gradients to those of the earlier ones."""
        with self._torch.no_grad():
            for parameter, earlier in zip(self._parameters, self._gradients):
                if earlier is None:
                    continue
                if parameter.grad is not None:
                    earlier.add_(parameter.grad)
                parameter.grad = earlier
        self._forget()

    def drop_gradients(self) -> None:
        """Drops the gradients of the micro-batch. Launches nothing on the GPU."""
        for parameter, earlier in zip(self._parameters, self._gradients):
            parameter.grad = earlier

    def restore(self) -> None:
        """Puts buffers and random generators back, once launches are accepted again."""
        torch = self._torch
        with torch.no_grad():
            for (place, name, buffer), content in zip(self._buffers, self._contents):
                place[name] = buffer.copy_(content)
        set_random_state(self._random)
        self._forget()

    def _forget(self) -> None:
        self._gradients, self._contents = [], []


def random_state() -> "list[torch.Tensor]":
    """Torch's random generators, of the CPU and of the current GPU."""
    import torch

    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return states


def set_random_state(states: "list[torch.Tensor]") -> None:
    import torch

    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1])


def named_graphs(frame: FrameType) -> "list[weakref.ref[torch.Tensor]]":
    """The tensors with a graph that variables of the function name now."""
    return [weakref.ref(tensor) for tensor in _named(frame)]


def release_graphs(frame: FrameType, before: "list[weakref.ref[torch.Tensor]]", error: BaseException | None) -> None:
    """Releases the graphs that variables name since `before`, here and in the functions that failed.

    `loss` of a dropped micro-batch would keep its activations until the name is used again.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    old = {id(tensor) for reference in before if (tensor := reference()) is not None}
    for tensor in _named(frame):
        if id(tensor) not in old:
            _release_graph(tensor)


def _named(frame: FrameType) -> "list[torch.Tensor]":
    variables = frame.f_locals
    values = list(variables.values())
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        variables.clear()  # A copy that Python keeps with the frame, and all tensors with it.
    return [tensor for value in values for tensor in _with_graph(value, depth=2)]


def _with_graph(value: Any, depth: int) -> "Iterator[torch.Tensor]":
    import torch

    if isinstance(value, torch.Tensor):
        if value.grad_fn is not None:
            yield value
    elif depth and isinstance(value, (tuple, list, dict)):
        for inner in list(value.values() if isinstance(value, dict) else value):
            yield from _with_graph(inner, depth - 1)


def _release_graph(tensor: "torch.Tensor") -> None:
    import torch

    try:
        tensor.detach_()
    except RuntimeError:  # A view cannot be detached: leave an empty tensor in its place.
        # Fails if more than the name refers to it: then the memory is released with its next use.
        with contextlib.suppress(RuntimeError, ValueError):
            torch.utils.swap_tensors(tensor, torch.empty(0))
