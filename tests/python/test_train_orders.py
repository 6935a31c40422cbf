"""sluice.train: a training must obey each order, once, and go on whatever the server does."""

import re

import sluice.train
import torch
from small_training import BATCH, DROP, SHRINK, SLEEP, SmallGpu, Training, same, sizes_of_a_batch, trained


def test_an_order_may_follow_at_once(fake, monkeypatch):
    """Between the end of an order and the next call, a thread of a library may be refused a launch."""
    training = Training(fake)
    orders = sluice.train._training.orders
    done = orders.done

    def done_and_refused_again(order: int) -> None:
        done(order)
        if fake.count("given") < 4:
            fake.give(DROP)
            fake.calls.sluice_fake_launch()

    monkeypatch.setattr(orders, "done", done_and_refused_again)
    fake.plan(orders=1, launches=10)
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            training.model(training.data[micro.slice]).sum().backward()
        fake.launch()  # the program's own, between two micro-batches
    assert (fake.count("given"), fake.count("pending"), fake.count("mistakes")) == (4, 0, 0)


def test_nothing_is_refused_after_a_dropped_micro_batch(fake):
    training = Training(fake)
    dropped = 0
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            if dropped == 0:
                fake.give(DROP)
            training.model(training.data[micro.slice]).sum().backward()
        if not micro.kept:
            dropped += 1
            fake.give(DROP)
            fake.launch()
    assert (dropped, fake.count("pending"), fake.count("mistakes")) == (1, 0, 0)


def test_nothing_is_refused_outside_of_micro_batches(fake):
    """A launch of the optimizer or of the program's own statistics would fail unhandled."""
    training = Training(fake)
    for micro in sluice.train.micro_batches(BATCH, model=training.model, largest=4):
        fake.give(DROP)
        fake.launch()
        sluice.train.obey()
        with micro:
            training.model(training.data[micro.slice]).sum().backward()
        fake.give(DROP)
        fake.launch()
    with sluice.train.step():
        fake.give(DROP)
        fake.launch()
    assert fake.count("pending") == 0
    assert sluice.train._training.counts.killed == 0


def test_sleep_ends_with_the_next_order(fake):
    training = Training(fake)
    fake.plan(orders=1, kinds="3")
    training.batch()
    assert (fake.count("waits"), fake.count("mistakes"), fake.count("pending")) == (3, 0, 0)
    assert sluice.train._training.counts.waited_s > 0


def test_a_long_sleep_is_reported_once(fake, monkeypatch, capsys):
    """A training that stands still for minutes would not say why."""
    training = Training(fake)
    fake.plan(orders=1, kinds="3")
    training.batch()
    assert "sleeps" not in capsys.readouterr().err
    monkeypatch.setattr(sluice.train, "_SAY_S", 0)
    fake.plan(orders=1, kinds="3")
    training.batch()
    assert capsys.readouterr().err.count("sluice.train: sleeps, because inference needs the GPU") == 1


def test_a_dropped_epoch_begins_again(fake):
    """Also its optimizer, its random numbers, and buffers that no state_dict has."""

    def run() -> list:
        training = Training(fake)
        steps = torch.zeros(1)
        training.model.register_buffer("steps", steps, persistent=False)
        scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 2)
        begun = 0
        for epoch in sluice.train.epochs(2, model=training.model, stateful=[training.optimizer, scheduler]):
            with epoch:
                begun += 1
                for _ in range(3):
                    training.batch()
                    steps += 1
                    scheduler.step()
        return [*training.state(), steps, torch.tensor(scheduler.get_last_lr()), torch.tensor(begun)]

    *expected, begun = run()
    assert begun == 2
    fake.plan(orders=4, every=2, launches=10, kinds="4", seed=2)  # drops epochs that have made steps
    *state, begun = run()
    assert begun == 6
    counts = sluice.train._training.counts
    assert (counts.batches, counts.finished) == (6, 6)
    assert counts.tried == counts.killed + counts.finished > 10
    assert same(state, expected)


def test_an_order_to_drop_the_epoch_without_epochs_drops_the_micro_batch(fake):
    expected = trained(fake, 3)
    fake.plan(orders=2, kinds="4")
    assert same(trained(fake, 3), expected)


def test_what_was_given_back_is_the_published_line(fake, monkeypatch):
    """Tools that read the lines of the published trainers would see no handover."""
    monkeypatch.setattr(sluice.train._training, "gpu", SmallGpu())
    lines = []
    training = Training(fake, on_adjust=lines.append, largest=4)
    training.batch()
    assert lines == []
    fake.plan(orders=2, every=2, kinds="2")  # in the middle of a micro-batch
    training.batch()
    numbers = r"\d+\.\dms \| \d+\.\dms"
    assert len(lines) == 2
    assert re.fullmatch(rf"batch 1 adjust : bs 4 -> 4 \| {numbers} \| gpu_mem 5\.00Gb -> 4\.00Gb", lines[0])
    assert re.fullmatch(rf"batch 1 adjust : bs 4 -> 4 \| {numbers} \| gpu_mem 4\.00Gb -> 3\.00Gb", lines[1])
    sluice.train.epoch_line("net", 0)
    fake.give(SLEEP)
    sluice.train.obey()
    fake.give(SHRINK)  # one line for both: there is no micro-batch between them
    training.batch()
    assert len(lines) == 3
    assert re.fullmatch(rf"batch 0 adjust : bs 4 -> 4 \| {numbers} \| gpu_mem 3\.00Gb -> 2\.00Gb", lines[2])


def test_a_sleeping_training_gives_all_back(fake, monkeypatch):
    """Inference may need all of it, and only the end of the sleep is news."""
    gpu = SmallGpu()
    monkeypatch.setattr(sluice.train._training, "gpu", gpu)
    training = Training(fake)
    fake.grant(10**9)
    for kind in (SLEEP, SHRINK):
        fake.give(kind)
        sizes_of_a_batch(training)
    assert gpu.released == [0, 10**9]
