"""Trainings that give GPU memory back at once, and whose optimizer steps stay the same.

    for x, y in loader:
        for micro in sluice.train.micro_batches(len(x), model=model):
            with micro:
                loss = criterion(model(x[micro.slice]), y[micro.slice]) * micro.weight
                loss.backward()
        with sluice.train.step():
            optimizer.step()
            optimizer.zero_grad()

The sizes of the micro-batches follow the memory that Sluice grants. If Sluice needs memory at once,
the launches of a running micro-batch fail. `with micro` then takes the micro-batch back to the bit
and gives the memory back; the loop repeats the micro-batch. Outside of `with micro` no launch fails.
Without Sluice, the loop has one micro-batch of the whole batch.

For one thread and one GPU of a process. docs/guide/training.md has the rules for scripts.
"""

import contextlib
import copy
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from sluice._memory_fit import MemoryFit
from sluice._orders import NO_LIMIT, Kind, Orders, kind_of
from sluice._release import release_down_to
from sluice._report import Adjustment, Counts
from sluice._state import State, named_graphs, random_state, release_graphs, set_random_state

if TYPE_CHECKING:
    import torch

__all__ = ["Epoch", "MicroBatch", "Stateful", "epoch_line", "epochs", "micro_batches", "obey", "step"]

_WAIT_MS = 200  # Python handles signals, such as Ctrl-C, between two waits
_MEASURED_BATCHES = 3
_STALE_ERRORS = 3  # after a refused launch, at most
_LIBRARY_ERRORS = 3  # in a row, that come with a refused allocation and do not say so
_TRUST_LINE_S = 1.0  # then a micro-batch of one item is tried
_SAY_S = 10.0  # that the training waits for memory, or sleeps
_GPU_ERROR = re.compile("CUDA|CUBLAS|CUDNN|Triton")
_GIB = 1 << 30


class _EpochAgain(BaseException):
    """Leaves the program's loops up to `with epoch`. Programs do not catch it with `Exception`."""


class _Gpu:
    """The memory of torch's allocator and, in `held`, that of the process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._most_reserved = 0

    def _outside_torch(self) -> int:
        import torch

        return max(0, self._orders.held() - torch.cuda.memory_reserved())

    def available(self) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and torch.cuda.is_initialized()

    def resident(self) -> int:
        """Bytes in use now."""
        import torch

        return torch.cuda.memory_allocated() + self._outside_torch()

    def peak(self) -> int:
        """Most bytes in use since the last call."""
        import torch

        self.most_reserved()
        most = torch.cuda.max_memory_allocated() + self._outside_torch()
        torch.cuda.reset_peak_memory_stats()
        return most

    def held(self) -> int:
        """Bytes that torch's allocator holds."""
        import torch

        return torch.cuda.memory_reserved() if self.available() else 0

    def most_reserved(self) -> int:
        """Most bytes that torch's allocator has held."""
        import torch

        if self.available():
            self._most_reserved = max(self._most_reserved, torch.cuda.max_memory_reserved())
        return self._most_reserved

    def release(self, most: int) -> None:
        """Gives unused memory back to the driver until the process holds at most `most` bytes, if that can be."""
        import torch

        if torch.cuda.is_initialized():
            _past_stale_errors(lambda: release_down_to(max(0, most - self._outside_torch())))


class _Training:
    """The training of this process: its orders, its sizes and its counts."""

    def __init__(self) -> None:
        self.orders = Orders()
        self.gpu = _Gpu(self.orders)
        self.line = MemoryFit()
        self.counts = Counts()
        self.state: State | None = None  # of the last batch
        self.batches = 0
        self.library_errors = 0  # since the last micro-batch that counts
        self.lacks_since: float | None = None  # memory for one item; no micro-batch has counted since then
        self.said_lack = False
        self.held_anyway = 0  # bytes, after all was released that could be
        self.stale_errors = 0  # that may still come from the launches of a dropped micro-batch
        self.restores_epochs = False
        # Whether no micro-batch has run since the peak was last read: it is that of the steps.
        self.peak_is_outside = False
        self.adjustment: Adjustment | None = None  # begun, and its new size not known yet
        self._published: tuple[int, int] | None = None

    def size(self, most: int, left: int) -> int:
        """The items of the next micro-batch of at most `most`, with `left` items of the batch to go.

        Obeys orders; waits until one item fits the grant.
        """
        self.orders.critical(True)
        self.obey_pending()
        begin, best = time.monotonic(), 0
        while (items := self.line.items(grant := self.orders.grant(), most)) == 0:
            now = time.monotonic()
            self.lacks_since = self.lacks_since or now
            best = max(best, grant)  # while the training sleeps, its grant is small
            if now - begin > _TRUST_LINE_S:
                self.line.doubt(best)
            if now - self.lacks_since > _SAY_S and not self.said_lack:
                self.said_lack = True
                held = self.orders.held() / _GIB
                _say(f"waits for memory for one item: {grant / _GIB:.2f} GiB granted, {held:.2f} held")
            self._wait()
            self.obey_pending()
        if self.gpu.available() and (measured := self.line.to_measure(most)):
            return min(items, measured, left)
        return _even_part(left, items)

    def measures(self, items: int) -> bool:
        """Whether to measure a micro-batch: not all, because that restarts torch's own peaks."""
        return self.gpu.available() and (self.batches < _MEASURED_BATCHES or not self.line.knows(items))

    def publish(self) -> None:
        """Reports the fit, between batches: so the first one has the state of the optimizer."""
        fit = self.line.fit()
        if fit is not None and fit != self._published:
            self.orders.fit(*fit)
            self._published = fit

    def obey_pending(self) -> None:
        if order := self.orders.pending():
            self.obey(order)
        elif self.orders.held() > max(grant := self.orders.grant(), self.held_anyway):
            # What cannot be repeated, such as an optimizer step, may take more than the grant.
            self.gpu.release(grant)
            self.held_anyway = self.orders.held()

    def obey(self, order: int) -> None:
        """Gives memory back, and sleeps if the order says so. Afterwards no launch is refused.

        Order 0: a lack of memory. All of the cache is given back, because its parts may have been too small.
        """
        begun, held = time.monotonic(), self.gpu.held()
        self._release(order)
        if self.adjustment is None:
            counts = self.counts
            self.adjustment = Adjustment(counts.batches, counts.size, begun, time.monotonic(), held, self.gpu.held())
        epoch_again = False
        while order:
            kind = kind_of(order)
            epoch_again |= kind == Kind.EPOCH
            self.orders.done(order)
            self.orders.critical(True)
            if kind in (Kind.SLEEP, Kind.EPOCH):
                self._sleep()
            # While launches are refused, critical() does nothing and an order is pending.
            order = self.orders.pending()
            if order:
                self._release(order)
        if epoch_again and self.restores_epochs:
            raise _EpochAgain

    def _release(self, order: int) -> None:
        self.gpu.release(0 if order == 0 or kind_of(order) in (Kind.SLEEP, Kind.EPOCH) else self.orders.grant())
        self.peak_is_outside = False  # what stays in the cache was allocated meanwhile

    def take_adjustment(self, size: int) -> str | None:
        """The line about what was given back, now that a micro-batch of `size` items can begin."""
        adjustment, self.adjustment = self.adjustment, None
        return adjustment.line(size) if adjustment else None

    def _sleep(self) -> None:
        begin, said = time.monotonic(), False
        while not self._wait():
            if not said and time.monotonic() - begin > _SAY_S:
                said = True
                _say("sleeps, because inference needs the GPU")

    def _wait(self) -> bool:
        begin = time.monotonic()
        changed = self.orders.wait(_WAIT_MS)
        self.counts.waited_s += time.monotonic() - begin
        return changed

    def asked_for(self, error: BaseException, items: int, refused: int) -> bool:
        """Whether the failure comes from an order or from the grant, and not from the program.

        `refused`: orders.refused() when the micro-batch began.
        """
        import torch

        if not isinstance(error, Exception):
            return False
        # Libraries have texts of their own for a refused launch, and one of cuDNN's succeeds, so that a check of
        # the program finds a wrong result. A failure of the program's own comes again when the micro-batch is repeated.
        if kind_of(self.orders.pending()) >= Kind.DROP:
            self.stale_errors = _STALE_ERRORS
            return True
        if not isinstance(error, RuntimeError):
            return False
        grant = self.orders.grant()  # perhaps not the one that refused an allocation
        by_grant = self.orders.refused() != refused
        lacked = isinstance(error, torch.OutOfMemoryError)
        if not lacked and by_grant and self.library_errors < _LIBRARY_ERRORS:
            self.library_errors += 1
            lacked = True
        if lacked:
            if grant != NO_LIMIT:
                self.line.lacked_memory(items, grant)
            return by_grant or grant != NO_LIMIT
        # Libraries report the error of an earlier launch once more: in 9 of 308 cases on an H200.
        stale = self.stale_errors > 0 and _GPU_ERROR.search(str(error)) is not None
        self.stale_errors -= stale
        return stale


def _say(text: str) -> None:
    print(f"sluice.train: {text}; see sluice status", file=sys.stderr, flush=True)


def _past_stale_errors(action: Callable[[], object]) -> None:
    """Repeats an action that fails with the error of a launch that was refused before. It may be begun twice.

    CUDA reports it to the next call that asks for errors, also to one that launches nothing.
    """
    import torch

    for _ in range(_STALE_ERRORS):
        try:
            action()
            return
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError) or not _GPU_ERROR.search(str(error)):
                raise
    action()


def _even_part(left: int, most: int) -> int:
    """The items of the first of the fewest, even parts: a small rest takes a GPU as long to start as a large part."""
    parts = -(-left // most)
    return -(-left // parts)


_training = _Training()


class MicroBatch:
    """A part of a batch, as a context manager: it counts whole, or it leaves no trace."""

    def __init__(self, start: int, items: int, batch: int, state: State | None) -> None:
        #: Items of the batch that belong to this micro-batch.
        self.slice = slice(start, start + items)
        #: Its share of the batch. A mean loss times this share has gradients that sum up.
        self.weight = items / batch
        #: Whether the micro-batch counts. False before its end.
        self.kept = False
        self._again: bool | None = None  # whether it has to be repeated; None: it has not run
        self._items = items
        self._state = state
        self._resident: int | None = None
        self._refused = 0
        self._named: list[Any] = []

    def __enter__(self) -> "MicroBatch":
        _training.counts.tried += 1
        if self._state is None:
            return self
        self._state.save()
        self._named = named_graphs(sys._getframe(1))
        if _training.measures(self._items):
            peak = _training.gpu.peak()
            if _training.peak_is_outside:
                _training.line.saw_outside(peak)
            self._resident = _training.gpu.resident()
        _training.peak_is_outside = False
        self._refused = _training.orders.refused()
        _training.orders.critical(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._again = False
        if self._state is None:
            if error is None:
                self._keep()
            return False
        _training.orders.critical(True)
        # A library may have hidden that its launch was refused. Refusal lasts until the order is
        # done, so without such an order every launch was accepted.
        refused = kind_of(_training.orders.pending()) >= Kind.DROP
        if error is None and not refused:
            if self._resident is not None:
                _training.line.saw(self._items, self._resident, _training.gpu.peak())
                _training.peak_is_outside = True
            self._state.keep()
            self._keep()
            return False
        if error is not None and not _training.asked_for(error, self._items, self._refused):
            self._state.drop_gradients()
            return False
        self._state.drop_gradients()
        release_graphs(sys._getframe(1), self._named, error)
        self._drop(self._state)
        return True

    def _keep(self) -> None:
        self.kept = True
        _training.library_errors = 0
        _training.lacks_since, _training.said_lack = None, False
        _training.counts.finished += 1

    def _drop(self, state: State) -> None:
        self._again = True
        _training.counts.killed += 1
        _training.obey(_training.orders.pending())
        _past_stale_errors(state.restore)


def micro_batches(
    batch: int,
    *,
    model: "torch.nn.Module",
    optimizer: "torch.optim.Optimizer | None" = None,
    largest: int | None = None,
    on_adjust: Callable[[str], object] | None = None,
) -> Iterator[MicroBatch]:
    """The micro-batches of a batch of `batch` items, each to be used as `with micro:`.

    A dropped micro-batch comes again, perhaps smaller. `model` has all that a forward pass may
    change: parameters and buffers; for several modules, pass torch.nn.ModuleList. `optimizer` is
    needed if it has parameters that the model does not have. `largest` limits the items of a
    micro-batch. `on_adjust` is called with the line of the published trainers after memory was given
    back, when the next micro-batch can begin: `print` prints it.
    Waits while the grant holds not even one item. Raises RuntimeError if `with micro:` is missing.
    """
    if batch < 1 or (largest is not None and largest < 1):
        raise ValueError(f"a batch and its micro-batches have at least 1 item, not {batch} and {largest}")
    most = min(batch, largest or batch)
    start = 0
    preloaded = _training.orders.preloaded
    state = None
    if preloaded:
        _training.orders.critical(True)
        state = _training.state = State(model, optimizer, _training.state)
        _training.publish()
    if _training.counts.tried == 0:
        _training.counts.begun = time.monotonic()
    while start < batch:
        left = batch - start
        size = _training.size(most, left) if preloaded else _even_part(left, most)
        if (line := _training.take_adjustment(size)) and on_adjust:
            on_adjust(line)
        _training.counts.size = size
        micro = MicroBatch(start, size, batch, state)
        yield micro
        if micro._again is None:
            raise RuntimeError("a micro-batch was not run: put the work into `with micro:`")
        if not micro._again:
            start = micro.slice.stop
    _training.line.batch_ended()
    _training.batches += 1
    _training.counts.batches += 1
    _training.counts.items = batch


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Around the optimizer step. Obeys an order before it and after it, so that none waits long."""
    obey()
    yield
    obey()


def obey() -> None:
    """Obeys a pending order, if there is one: frees cached memory, and sleeps if it has to.

    For long phases between micro-batches, such as a validation: call it after every part.
    """
    if _training.orders.preloaded:
        _training.orders.critical(True)
        _training.obey_pending()


class Epoch:
    """One epoch as a context manager. An order to drop the epoch restores its start."""

    def __init__(self, number: int, model: "torch.nn.Module", stateful: "Sequence[Stateful]") -> None:
        self.number = number
        self.finished = False
        self._tensors = [*model.parameters(), *model.buffers()]
        self._stateful = stateful
        self._start: tuple[Any, Any, Any] | None = None

    def __enter__(self) -> "Epoch":
        if _training.orders.preloaded:
            states = [_on_host(each.state_dict()) for each in self._stateful]
            self._start = (_on_host(self._tensors), states, random_state())
            _training.restores_epochs = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        _training.restores_epochs = False
        self.finished = error is None
        if not isinstance(error, _EpochAgain) or self._start is None:
            return False
        import torch

        counts = _training.counts  # all that the epoch has done is lost
        counts.batches = counts.finished = 0
        counts.killed = counts.tried
        contents, states, random = self._start
        with torch.no_grad():
            for tensor, content in zip(self._tensors, contents):
                tensor.copy_(content)
                tensor.grad = None
        for each, state in zip(self._stateful, states):
            each.load_state_dict(state)
        set_random_state(random)
        return True


class Stateful(Protocol):
    """Such as optimizers, schedulers of learning rates, and gradient scalers."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


def epochs(count: int, *, model: "torch.nn.Module", stateful: Sequence[Stateful]) -> Iterator[Epoch]:
    """`count` epochs, each to be used as `with epoch:`; a dropped epoch comes again.

    Needed only for `sluice serve -m task-switch-l2`. `stateful` are the optimizer, and the scheduler
    and scaler if there are any. Each epoch begins with a copy of all state in host memory. Without
    this loop, an order to drop the epoch only drops the micro-batch.
    """
    number = 0
    while number < count:
        epoch = Epoch(number, model, stateful)
        yield epoch
        number += epoch.finished


def _on_host(value: Any) -> Any:
    """A deep copy with all tensors in host memory."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _on_host(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_on_host(inner) for inner in value]
    return copy.deepcopy(value)


def epoch_line(name: str, epoch: int) -> str:
    """The line of the published trainers about the batches since the last call.

    `[ResNet epoch 0] 12.345s | batch cnt 62 avg 198.0ms | try 70 kill 8 finish 62 | ...`
    """
    counts = _training.counts
    _training.counts = Counts(size=counts.size)
    return counts.line(name, epoch, _training.gpu.most_reserved())
