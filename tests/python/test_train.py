"""sluice.train: micro-batches that are dropped must leave no trace, and failures of the program must pass."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import sluice._state
import sluice.train
import torch
from small_training import BATCH, DROP, Training, same, trained

TOOLS = Path(__file__).parents[2] / "tools" / "python"


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_thousand_drops_leave_no_trace(fake, optimizer):
    """A trace of one dropped micro-batch would change parameters, statistics or random numbers."""
    expected = trained(fake, 300, optimizer=optimizer, largest=2)
    fake.plan(orders=1000, every=2, launches=10, kinds="2234")
    assert same(trained(fake, 300, optimizer=optimizer, largest=2), expected)
    assert sluice.train._training.counts.killed == 1000
    assert (fake.count("given"), fake.count("mistakes"), fake.count("pending")) == (1000, 0, 0)
    assert fake.count("refused") > 300  # the others come at the end of a micro-batch


def test_a_refusal_that_a_library_hides_drops_the_micro_batch(fake):
    """Its results would be made of launches that never ran."""
    training = Training(fake)
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            if fake.count("given") == 0:
                fake.give(DROP)
                assert fake.calls.sluice_fake_launch() == 701
            else:
                training.model(training.data).sum().backward()
    assert sluice.train._training.counts.killed == 1


def test_micro_batches_sum_to_the_batch(fake):
    """Without batch norm and dropout, gradients differ only by the order of additions."""
    gradients = []
    for largest in (BATCH, 3):
        training = Training(fake)
        training.model.eval()
        for micro in sluice.train.micro_batches(BATCH, model=training.model, largest=largest):
            with micro:
                out = training.model(training.data[micro.slice])
                (training.criterion(out, training.labels[micro.slice]) * micro.weight).backward()
        gradients.append([p.grad for p in training.model.parameters()])
    for whole, summed in zip(*gradients):
        torch.testing.assert_close(summed, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), RuntimeError("shape mismatch")])
def test_failures_of_the_program_pass(fake, error):
    """Repeating them would hide them, or repeat them without an end."""
    training = Training(fake)
    with pytest.raises(type(error), match=r"mine|shape"):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                training.model(training.data).sum().backward()
                raise error
    assert all(p.grad is None for p in training.model.parameters())
    training.batch()


def test_a_script_may_skip_a_micro_batch_that_failed(fake):
    """A failure that a script handles is no reason to repeat, and none to end."""
    training = Training(fake)
    seen = []
    for micro in sluice.train.micro_batches(BATCH, model=training.model, largest=4):
        seen.append(micro.slice.start)
        try:
            with micro:
                if micro.slice.start == 0:
                    raise ValueError("a bad item")
        except ValueError:
            assert not micro.kept
    assert seen == [0, 4]
    with pytest.raises(RuntimeError, match="with micro"):
        for _ in sluice.train.micro_batches(BATCH, model=training.model):
            pass


def test_a_failure_with_an_order_pending_passes_when_repeated(fake):
    """The order explains one RuntimeError only."""
    training = Training(fake)
    with pytest.raises(RuntimeError, match="shape"):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                if fake.count("given") == 0:
                    fake.give(DROP)
                raise RuntimeError("shape mismatch")
    assert sluice.train._training.counts.killed == 1


def test_a_refusal_of_a_server_that_died_is_obeyed(fake):
    """Its order is void when the failure arrives; the training must not end because of that."""
    training = Training(fake)
    tries = 0
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            tries += 1
            if tries == 1:
                fake.give(DROP)
                try:
                    fake.launch()
                finally:
                    fake.void_order()
            training.model(training.data).sum().backward()
    assert (tries, fake.count("pending"), fake.count("mistakes")) == (2, 0, 0)


def test_an_unexplained_launch_failure_passes(fake):
    training = Training(fake)
    with pytest.raises(RuntimeError, match="too many resources"):
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                raise RuntimeError("CUDA error: too many resources requested for launch")


def test_a_stale_error_after_a_refusal_drops_the_micro_batch(fake):
    """cuDNN reports a refused launch once more in the next micro-batch, when the order is obeyed."""
    stale = RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART")

    def tries_with(errors: list) -> int:
        training = Training(fake)
        fake.plan(orders=1)
        tries = 0
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            with micro:
                tries += 1
                fake.launch()
                if errors:
                    raise errors.pop()
                training.model(training.data).sum().backward()
        return tries

    assert tries_with([stale]) == 3
    with pytest.raises(RuntimeError, match="CUDNN_STATUS"):
        tries_with([stale] * 4)
    with pytest.raises(RuntimeError, match="shape"):
        tries_with([RuntimeError("shape mismatch")])


def test_a_dropped_micro_batch_holds_no_memory(fake):
    """`out` and `loss` of the failed attempt would hold its activations while others need the memory."""

    class Activation:
        pass

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.activation = Activation()
            alive.append(weakref.ref(ctx.activation))
            return x * 1

        @staticmethod
        def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
            fake.launch()
            return gradient

    def body(micro):
        with micro:
            hidden = Saves.apply(training.model.first(training.data[micro.slice]))
            outs = {"logits": [hidden.flatten(1).view(-1)]}
            view = hidden.view(-1)
            loss = (outs["logits"][0] + view).sum()
            if fake.count("given") == 0:
                fake.give(DROP)
            loss.backward()
        if not micro.kept:
            assert alive[-1]() is None
        return [loss.shape, outs, view]

    training = Training(fake)
    alive: list = []
    gc.disable()
    try:
        for micro in sluice.train.micro_batches(BATCH, model=training.model):
            body(micro)
    finally:
        gc.enable()
    assert len(alive) == 2


def test_reading_variables_keeps_none_of_them_alive(fake):
    """Python 3.12 keeps what it shows of a function's variables: a second copy of every batch."""

    class Value:
        pass

    training = Training(fake)
    value = Value()
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            alive = weakref.ref(value)
            value = None
            assert alive() is None
            training.model(training.data).sum().backward()


@pytest.mark.parametrize("error", [ValueError, AssertionError, FloatingPointError])
def test_a_check_that_fails_on_refused_work_is_repeated(fake, error):
    """A refused launch of cuDNN succeeds, so that a loss may be not finite: the program's check ended it."""
    training = Training(fake)
    tries = 0
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            tries += 1
            if tries == 1:
                fake.give(DROP)
                assert fake.calls.sluice_fake_launch() == 701
                raise error("the loss is not finite")
            training.model(training.data[micro.slice]).sum().backward()
    assert tries == 2


def test_a_stale_error_does_not_end_the_drop(fake, monkeypatch):
    """CUDA reported the refused launch once more while memory was given back, and ended the training: seen on an
    H200. A failure of another kind, or one that stays, passes."""
    errors, later_errors = [], []

    def failing(with_errors: list):
        def fail(*_):
            if with_errors:
                raise RuntimeError(with_errors.pop())

        return fail

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(sluice._state, "random_state", lambda: [])
    monkeypatch.setattr(sluice.train._Gpu, "_outside_torch", lambda _: 0)
    monkeypatch.setattr(sluice.train._Gpu, "available", lambda _: False)
    monkeypatch.setattr(sluice.train, "release_down_to", failing(errors))
    monkeypatch.setattr(sluice.train.State, "restore", failing(later_errors))
    training = Training(fake)
    tries = 0
    for micro in sluice.train.micro_batches(BATCH, model=training.model):
        with micro:
            tries += 1
            if tries == 1:
                errors += ["CUDA error: too many resources requested for launch"] * 2
                later_errors += errors
                fake.give(DROP)
                fake.launch()
    assert tries == 2 and not errors + later_errors
    for text, count in (("size mismatch", 1), ("CUDA error: unspecified launch failure", 4)):
        errors += [text] * count
        with pytest.raises(RuntimeError, match=text):
            sluice.train._training.gpu.release(0)


def test_unmodified_without_sluice(tmp_path):
    """Scripts have one version: without the preload one micro-batch, no torch, no limits."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, sluice.train\n"
        "assert 'torch' not in sys.modules\n"
        "found = []\n"
        "for micro in sluice.train.micro_batches(5, model=None):\n"
        "    with micro:\n"
        "        found.append((micro.slice, micro.weight))\n"
        "with sluice.train.step():\n"
        "    pass\n"
        "sluice.train.obey()\n"
        "assert found == [(slice(0, 5), 1.0)], found\n"
        "assert 'torch' not in sys.modules\n"
        "print(sluice.train.epoch_line('net', 0))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert " | try 1 kill 0 finish 1 | batch-size 5 | micro-batch-size 5 | memory 0.00Gb | wait_bs_valid 0.000s" in (
        done.stdout
    )
