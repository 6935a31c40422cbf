"""Trainers that misbehave, next to a model that needs their memory, on the simulated GPU.

Prevents: requests that fail for good because a trainer hangs, ignores orders, or says that it has obeyed and keeps the
memory; and a job in Python that does not find its package.
"""

import os
import signal

import pytest
from serving import TRAINER, Train, eventually, serving

# Holds 300 MiB, and says that it needs 65.
JOB = """
import ctypes, pathlib, time
from sluice._orders import Orders

driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
for result in (
    driver.cuInit(0),
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    driver.cuCtxSetCurrent(context),
    driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(300 << 20)),
):
    assert result == 0, result
orders = Orders()
orders.fit(64 << 20, 1 << 20)
while True:
    if (order := orders.pending()) and pathlib.Path(__file__).stem == "leaks":
        orders.done(order)
    time.sleep(0.002)
"""
# On a busy machine a good trainer takes seconds to obey: a server that has one is patient.
WEDGED = ["--wedged-s", "0.5"]
PATIENT = ["--wedged-s", "5"]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A device of 400 MiB, and a model that needs 150 of them and leaves at once."""
    monkeypatch.setenv("SLUICE_SIM_MEMORY_MIB", "400")
    (tmp_path / "models").write_text("cold\n  path mobilenet_v2_b1\n  weights-mb 150\n")
    (tmp_path / "train").mkdir()
    for job in ("ignores", "leaks"):
        (tmp_path / "train" / f"{job}.py").write_text(JOB)
    good = tmp_path / "train" / "good"
    good.write_text(f'#!/bin/sh\nexec {TRAINER} "$@" --item-mb 16\n')
    good.chmod(0o755)
    memory = ["--cuda-memory-pool-gb", str(400 / 1024), "--cold-cache-gb", "0", "--infer-model-max-idle-ms", "50"]
    return ["--config", "models", "--gpu", "sim", "--train-store", "train", *memory]


def is_cold(server) -> bool:
    return not any(row.get("resident") for row in server.call("/v2/sluice/status")[1]["models"])


def holds(server) -> bool:
    return server.training().get("held_bytes", 0) >= 300 << 20


@pytest.mark.parametrize(
    "mode, job, why",
    [("colocate-l1", "ignores", "did not give back memory in time"), ("colocate-l2", "leaks", "kept the memory")],
)
def test_a_trainer_that_keeps_its_memory_is_ended(tmp_path, store, mode, job, why):
    with serving(tmp_path, *store, *PATIENT, "-m", mode) as server:
        assert eventually(lambda: is_cold(server))
        client = Train(server, job)
        assert eventually(lambda: holds(server)), client.end()
        code, answer = server.infer("cold")
        assert code == 200, answer
        code, out = client.end()
        assert code == 1 and why in out and "--wedged-s" in out, out
        # The next job is no worse for it.
        client = Train(server, "good", "--num-epoch", "2000", "--batch-size", "16")
        assert eventually(lambda: is_cold(server) and holds(server))
        assert server.infer("cold")[0] == 200
        assert server.trains() and server.training()["launches"] == 2
        client.stop()
        assert server.end()[0] == 0


def test_a_script_that_does_not_exec_its_program_is_ordered_too(tmp_path, store):
    """The slot belongs to a child of the process that the server has started."""
    job = tmp_path / "train" / "child"
    job.write_text(f'#!/bin/sh\n{TRAINER} "$@" --item-mb 16\nexit $?\n')
    job.chmod(0o755)
    with serving(tmp_path, *store, *PATIENT, "-m", "colocate-l1") as server:
        client = Train(server, "child", "--num-epoch", "2000", "--batch-size", "16")
        assert eventually(lambda: is_cold(server) and holds(server)), server.training()
        assert server.infer("cold")[0] == 200
        assert eventually(lambda: server.metric("sluice_serve_handovers_total") > 0)
        assert server.trains() and server.training()["launches"] == 1
        client.stop()
        assert server.end()[0] == 0


def test_a_trainer_that_hangs_is_ended(tmp_path, store):
    with serving(tmp_path, *store, *WEDGED, "-m", "colocate-l1") as server:
        client = Train(server, "good", "--num-epoch", "2000", "--batch-size", "16")
        assert eventually(lambda: is_cold(server) and holds(server))
        os.kill(server.training()["pid"], signal.SIGSTOP)
        assert server.infer("cold")[0] == 200
        code, out = client.end()
        assert code == 1 and "did not give back memory in time" in out, out


def test_a_trainer_that_does_not_go_to_sleep_is_ended(tmp_path, store):
    with serving(tmp_path, *store, *WEDGED, "-m", "task-switch-l1") as server:
        assert eventually(lambda: is_cold(server))
        client = Train(server, "ignores")
        assert eventually(lambda: holds(server)), client.end()
        code, answer = server.infer("cold")
        assert code == 200, answer
        code, out = client.end()
        assert code == 1 and "did not obey an order for 0.5 s" in out, out


@pytest.mark.parametrize("before", ["", "/somewhere/else"])
def test_a_job_in_python_finds_the_package_and_what_the_user_has_put_first(tmp_path, monkeypatch, before):
    monkeypatch.setenv("PYTHONPATH", before)
    (tmp_path / "train").mkdir()
    text = "import os, sluice.train\nprint('found', sluice.train.__file__, 'path', os.environ['PYTHONPATH'])\n"
    (tmp_path / "train" / "job.py").write_text(text)
    with serving(tmp_path, "--models", "dummy", "--train-store", "train") as server:
        code, out = Train(server, "job").end()
        _, err = server.end()
    assert code == 0, out + err
    package = TRAINER.parents[2] / "share" / "sluice" / "python"
    path = f"{before}:{package}" if before else package
    assert f"found {package}/sluice/train.py path {path}" in err, err
