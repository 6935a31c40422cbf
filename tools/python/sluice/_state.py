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

    def __init__(
        self, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer | None", last: "State | None" = None
    ) -> None:
        """`last`: the state of the last batch, whose memory is used again if the model is the same."""
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
        # By type and device, because one launch copies all tensors that agree in them.
        groups: dict[Any, list[torch.Tensor]] = {}
        for _, _, buffer in self._buffers:
            groups.setdefault((buffer.dtype, buffer.device), []).append(buffer)
        self._groups = list(groups.values())
        if last is not None and _same(last._groups, self._groups):
            self._contents = last._contents
        else:
            self._contents = [[torch.empty_like(buffer) for buffer in group] for group in self._groups]
        self._gradients: list[torch.Tensor | None] = []
        self._random: list[torch.Tensor] = []

    def save(self) -> None:
        """Before a micro-batch."""
        torch = self._torch
        self._gradients = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        with torch.no_grad():
            for group, contents in zip(self._groups, self._contents):
                torch._foreach_copy_(contents, group)
        self._random = random_state()

    def keep(self) -> None:
        """The micro-batch is whole: adds its gradients to those of the earlier ones."""
        both = [(p.grad, g) for p, g in zip(self._parameters, self._gradients) if p.grad is not None and g is not None]
        if both:
            with self._torch.no_grad():
                self._torch._foreach_add_([earlier for _, earlier in both], [own for own, _ in both])
        for parameter, earlier in zip(self._parameters, self._gradients):
            if earlier is not None:
                parameter.grad = earlier
        self._gradients = []

    def drop_gradients(self) -> None:
        """Drops the gradients of the micro-batch. Launches nothing on the GPU."""
        for parameter, earlier in zip(self._parameters, self._gradients):
            parameter.grad = earlier
        self._gradients = []

    def restore(self) -> None:
        """Puts buffers and random generators back, once launches are accepted again."""
        torch = self._torch
        with torch.no_grad():
            for group, contents in zip(self._groups, self._contents):
                torch._foreach_copy_(group, contents)
        for place, name, buffer in self._buffers:
            place[name] = buffer
        set_random_state(self._random)


def _same(one: "list[list[torch.Tensor]]", other: "list[list[torch.Tensor]]") -> bool:
    return [[id(tensor) for tensor in group] for group in one] == [[id(tensor) for tensor in group] for group in other]


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
