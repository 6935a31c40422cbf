"""sluice.train: micro-batches must fit the grant, and a lack of memory must not end the training."""

from collections.abc import Callable

import pytest
import sluice.train
import torch
from sluice._orders import NO_LIMIT
from small_training import BATCH, DROP, SHRINK, SmallGpu, Training, sizes_of_a_batch


class Clock:
    """Stands in for the time of sluice.train and for its waits, of 2 ms each: so no machine is too slow."""

    def __init__(self):
        self.now = 1.0
        self._later: list[tuple[float, Callable]] = []

    def monotonic(self) -> float:
        return self.now

    def after(self, seconds: float, act: Callable) -> None:
        self._later.append((self.now + seconds, act))

    def wait(self, _timeout_ms: int) -> bool:
        self.now += 0.002
        due = [one for one in self._later if one[0] <= self.now]
        self._later = [one for one in self._later if one[0] > self.now]
        for _, act in due:
            act()
        return bool(due)


@pytest.fixture
def clock(fake, monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(sluice.train, "time", found)
    monkeypatch.setattr(sluice.train._training.orders, "wait", found.wait)
    return found


def test_sizes_follow_the_grant_and_too_small_a_grant_is_waited_for(fake, clock):
    """An allocation beyond the grant would fail."""
    training = Training(fake)
    line = sluice.train._training.line
    for items, peak in ((1, 999), (1, 150), (4, 300)):
        line.saw(items, 100, peak)
    assert line.fit() == (100, 50)
    fake.grant(100 + 50 * 3)
    assert sizes_of_a_batch(training) == [3, 3, 2]
    assert sluice.train._training.counts.waited_s == 0
    fake.grant(149)
    clock.after(0.05, lambda: fake.grant(NO_LIMIT))
    assert sizes_of_a_batch(training) == [BATCH]
    assert sluice.train._training.counts.waited_s == pytest.approx(0.05, abs=0.002)


def test_one_item_is_tried_if_no_larger_grant_comes(fake, clock, monkeypatch, capsys):
    """The fit is an estimate: a training waited indefinitely for a grant just above what its GPU could give. Seen on an
    H200. If one item does run out of memory, it is tried now and then, and the program says that it waits."""
    monkeypatch.setattr(sluice.train, "_TRUST_LINE_S", 0.02)
    monkeypatch.setattr(sluice.train, "_SAY_S", 0.12)  # more than one item waits, less than all of them
    training = Training(fake)
    line = sluice.train._training.line
    for items, peak in ((1, 999), (1, 150), (4, 300)):
        line.saw(items, 100, peak)
    fake.grant(149)
    assert sizes_of_a_batch(training) == [1] * BATCH
    assert "waits for memory" not in capsys.readouterr().err
    monkeypatch.setattr(sluice.train, "_SAY_S", 0.04)
    begun = clock.now
    killed = 0
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            if sluice.train._training.orders.grant() != NO_LIMIT:
                killed += 1
                if killed == 4:
                    clock.after(0.005, lambda: fake.grant(NO_LIMIT))
                raise torch.OutOfMemoryError("CUDA out of memory.")
    assert sluice.train._training.counts.killed == killed == 4
    assert clock.now - begun >= (killed - 1) * 0.02, "now and then"
    assert capsys.readouterr().err.count("waits for memory for one item") == 1


def test_what_a_step_took_beyond_the_grant_is_given_back(fake, monkeypatch):
    """A step cannot be repeated, so it may exceed the grant. What cannot be given back is not asked for each time."""
    gpu = SmallGpu()
    monkeypatch.setattr(sluice.train._training, "gpu", gpu)
    fake.grant(10**9)
    fake.hold(10**9)
    sluice.train.obey()
    assert gpu.released == []
    fake.hold(10**9 + 2)
    sluice.train.obey()
    sluice.train.obey()
    assert gpu.released == [10**9]
    fake.hold(10**9 + 3)
    sluice.train.obey()
    assert gpu.released == [10**9] * 2


def test_the_first_batch_is_measured_and_the_fit_reported(fake, monkeypatch):
    """Without a fit, a server takes no memory from the training, and the training knows no sizes."""
    gpu = SmallGpu()
    monkeypatch.setattr(sluice.train._training, "gpu", gpu)
    training = Training(fake)
    training.model.register_forward_pre_hook(
        lambda _, args: setattr(gpu, "most", 100 + 10 * len(args[0]))  # as the GPU would
    )
    assert sizes_of_a_batch(training) == [1, 1, 4, 2]
    assert (fake.count("base"), fake.count("slope")) == (0, 0)
    assert sizes_of_a_batch(training) == [8]
    assert (fake.count("base"), fake.count("slope")) == (100, 10)
    fake.grant(100 + 10 * 5)
    assert sizes_of_a_batch(training) == [4, 4]
    fake.give(DROP)
    assert sizes_of_a_batch(training) == [4, 4]
    assert gpu.released == [150]  # more would take longer, and have to be taken again
    assert "batch cnt 4" in (line := sluice.train.epoch_line("net", 2)) and "| memory 3.00Gb |" in line
    for _ in range(2):
        assert sizes_of_a_batch(training) == [4, 4]
    assert not sluice.train._training.measures(4)  # that would restart torch's own peaks
    assert sluice.train._training.measures(6)


def test_the_memory_of_a_dropped_micro_batch_says_nothing(fake, monkeypatch):
    """It counted as memory that the training always needs, and the next micro-batches had one item."""
    gpu = SmallGpu()
    monkeypatch.setattr(sluice.train._training, "gpu", gpu)
    training = Training(fake)
    training.model.register_forward_pre_hook(lambda _, args: setattr(gpu, "most", 100 + 10 * len(args[0])))
    assert sizes_of_a_batch(training) == [1, 1, 4, 2]
    sizes = []
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            sizes.append(micro.slice.stop - micro.slice.start)
            loss = training.model(training.data[micro.slice]).sum()
            if len(sizes) == 1:
                fake.grant(100 + 10 * 5)
                fake.give(DROP)
            loss.backward()
    assert sizes == [8, 4, 4]
    fake.grant(NO_LIMIT)


def test_the_memory_of_giving_back_says_nothing(fake, monkeypatch):
    """A part of the cache is kept by allocating it. That counted as memory that the training always needs."""

    class Keeping(SmallGpu):
        def release(self, most: int) -> None:
            self.most = 5000

    gpu = Keeping()
    monkeypatch.setattr(sluice.train._training, "gpu", gpu)
    training = Training(fake)
    training.model.register_forward_pre_hook(lambda _, args: setattr(gpu, "most", 100 + 10 * len(args[0])))
    assert sizes_of_a_batch(training) == [1, 1, 4, 2]
    fake.grant(100 + 10 * 5)
    fake.give(SHRINK)
    assert sizes_of_a_batch(training) == [4, 4]
    assert sizes_of_a_batch(training) == [4, 4]
    fake.grant(NO_LIMIT)


def sizes_tried(training: Training, fault: Callable[[list[int]], Exception | None]) -> list[int]:
    """The micro-batches of a batch, each of which ends in what `fault` says of all sizes so far."""
    sizes: list[int] = []
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            sizes.append(micro.slice.stop - micro.slice.start)
            if error := fault(sizes):
                raise error
            training.model(training.data[micro.slice]).sum().backward()
    return sizes


def test_lack_of_memory_under_a_grant_makes_the_micro_batch_smaller(fake):
    """The fit is an estimate. Without a grant, the lack is the program's own."""
    training = Training(fake)
    fake.grant(10**9)
    lack = torch.OutOfMemoryError("CUDA out of memory.")
    assert sizes_tried(training, lambda sizes: lack if sizes[-1] > 3 else None) == [8, 4, 3, 3, 2]
    fake.grant(NO_LIMIT)
    with pytest.raises(torch.OutOfMemoryError):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                raise torch.OutOfMemoryError("CUDA out of memory.")


def test_a_library_may_not_say_that_it_lacked_memory(fake):
    """A refused allocation ends in any error. A program's own error passes, after three micro-batches at most."""
    training = Training(fake)
    fake.grant(10**9)

    def no_engine(sizes: list[int]) -> Exception | None:
        if sizes[-1] <= 3:
            return None
        fake.refuse_memory()
        return RuntimeError("GET was unable to find an engine to execute this computation")

    assert sizes_tried(training, no_engine) == [8, 4, 3, 3, 2]
    sizes = []
    fake.grant(2 * 10**9)
    with pytest.raises(RuntimeError, match="own"):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                sizes.append(micro.slice.stop - micro.slice.start)
                fake.refuse_memory()
                raise RuntimeError("an error of its own")
    assert sizes == [8, 4, 3, 2]
    with pytest.raises(RuntimeError, match="again"):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                raise RuntimeError("no allocation was refused again")


def test_a_grant_that_was_lifted_since_explains_a_lack_of_memory(fake):
    """The server may give memory back, or die, between the refused allocation and the end of the micro-batch."""
    training = Training(fake)
    fake.grant(10**9)

    def lifted(sizes: list[int]) -> Exception | None:
        if len(sizes) > 1:
            return None
        fake.refuse_memory()
        fake.grant(NO_LIMIT)
        return torch.OutOfMemoryError("CUDA out of memory.")

    assert sizes_tried(training, lifted) == [8, 8]
