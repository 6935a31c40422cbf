"""Whole runs of `sluice serve` with a trainer, in every mode, on the simulated GPU.

Prevents: a mode that does not do to training what its name says, a trainer that outlives its server, requests that wait
for a trainer that does not obey, and a training job without an answer.
"""

import json
import os
import random
import re
import shutil
import signal
import time

import pytest
from serving import PATIENCE_S, TRAINER, Train, eventually, large_job, lives, serving

MODELS = "quick\n  path mobilenet_v2_b1\n"
HELD = ("park", "colocate-l1", "colocate-l2")
OBEDIENT = ("task-switch-l1", "task-switch-l2")


@pytest.fixture
def store(tmp_path):
    (tmp_path / "models").write_text(MODELS)
    (tmp_path / "train").mkdir()
    shutil.copy(TRAINER, tmp_path / "train" / "job")
    deaf = tmp_path / "train" / "deaf"
    deaf.write_text(f'#!/bin/sh\nexec {tmp_path}/train/job "$@" --deaf 1\n')
    deaf.chmod(0o755)
    return ["--config", "models", "--gpu", "sim", "--train-store", "train"]


def epochs(err: str) -> list[re.Match]:
    return list(
        re.finditer(r"\[PyTorch backend\] Train: \[Example epoch (\d+)\].* try (\d+) kill (\d+) finish (\d+)", err)
    )


@pytest.mark.parametrize("mode", ["normal", *HELD, *OBEDIENT, "task-switch-l3"])
def test_every_mode_does_what_its_name_says(tmp_path, store, mode):
    with serving(tmp_path, *store, "-m", mode) as server:
        client = Train(server, "job")
        assert eventually(server.trains), client.end()
        before = server.client(1)["jobs"]
        for _ in range(4):
            assert server.infer("quick")[0] == 200
            assert eventually(server.trains)
        seen = server.training()
        # A job ends just after its answer.
        assert mode == "normal" or eventually(lambda: server.client(1)["jobs"] - before >= 4)
        jobs, policy = server.client(1)["jobs"] - before, server.client(0)["policy"]

        def held() -> bool:
            assert server.infer("quick")[0] == 200
            return server.client(0)["held_total_ns"] > 0

        if mode in HELD:
            assert eventually(held)
        elif mode == "normal":
            assert not held()
        client.stop()
        code, err = server.end()
    assert code == 0, err
    assert seen["mode"] == mode
    assert (seen["orders"] >= 4) == (mode in OBEDIENT), seen
    assert (seen["kills"] >= 4) == (mode == "task-switch-l3"), seen
    assert (seen["launches"] > 1) == (mode == "task-switch-l3"), seen
    assert jobs == (0 if mode == "normal" else 4)
    assert (policy == "none") == (mode == "normal")
    # Under `park` training shares its time only.
    assert seen["limited"] == mode.startswith("colocate"), seen


@pytest.mark.parametrize(("mode", "sta"), [(mode, "1") for mode in ("normal", *HELD)] + [("colocate-l1", "0")])
def test_what_a_mode_does_to_training_when_memory_is_short(tmp_path, monkeypatch, mode, sta):
    """The device has 400 MiB, of which training holds 320. The cold model needs 150."""
    monkeypatch.setenv("SLUICE_SIM_MEMORY_MIB", "400")
    (tmp_path / "models").write_text("cold\n  path mobilenet_v2_b1\n  weights-mb 150\n")
    large_job(tmp_path, item_us=1000)  # no launch queue holds a whole micro-batch
    pool = ["--cuda-memory-pool-gb", str(400 / 1024), "--cold-cache-gb", "0", "--infer-model-max-idle-ms", "50"]
    options = ["--config", "models", "--gpu", "sim", "--train-store", "train", "-m", mode, "--use-sta", sta, *pool]
    shares = mode.startswith("colocate") and sta == "1"
    with serving(tmp_path, *options) as server:
        client = Train(server, "job", "--num-epoch", "1000", "--batch-size", "16")
        for _ in range(3):
            assert eventually(lambda: server.resident() == [] and server.held_mb() >= 300)
            code, answer = server.infer("cold") if shares else server.infer("cold", timeout=100_000)
            assert code == (200 if shares else 504), answer
        seen, memory = server.training(), server.client(0)["memory"]
        if shares:
            assert eventually(lambda: server.metric("sluice_serve_handovers_total") >= 3)
        else:
            assert server.metric("sluice_serve_handovers_total") == 0
        client.stop()
        assert server.infer("cold")[0] == 200
        assert server.end()[0] == 0
    assert (seen["orders"] >= 3) == (memory["grant_bytes"] is not None) == shares, (seen, memory)
    assert (seen["kills"], seen["launches"]) == (0, 1), seen
    # Only a micro-batch that is dropped has refused launches.
    assert (memory["refused_launches"] > 0) == (shares and mode == "colocate-l1")


def test_a_dropped_micro_batch_is_counted_and_the_epoch_is_finished(tmp_path, store):
    # No launch queue holds a whole micro-batch, so an order mostly finds one that is not launched to its end.
    long = tmp_path / "train" / "long"
    long.write_text(f'#!/bin/sh\nexec {tmp_path}/train/job "$@" --item-us 1000 --steps-per-epoch 5\n')
    long.chmod(0o755)
    with serving(tmp_path, *store, "-m", "task-switch-l1") as server:
        client = Train(server, "long", "--num-epoch", "1", "--batch-size", "16")
        assert eventually(server.trains)
        pauses = random.Random(1)
        while client.process.poll() is None:
            assert server.infer("quick")[0] == 200
            # A micro-batch takes 160 ms: some are dropped, some are finished.
            time.sleep(pauses.uniform(0, 0.6))
        code, out = client.end()
        assert code == 0 and out.startswith("[TrainWorker long] cnt 1 | "), out
        _, err = server.end()
    (epoch,) = epochs(err)
    number, tried, killed, finished = (int(group) for group in epoch.groups())
    assert number == 0 and tried == killed + finished and killed > 0
    assert "train ok" in err


def test_an_epoch_is_begun_again_in_task_switch_l2(tmp_path, store):
    with serving(tmp_path, *store, "-m", "task-switch-l2") as server:
        client = Train(server, "job", "--num-epoch", "1", "--batch-size", "4")
        assert eventually(server.trains)
        for _ in range(3):
            assert server.infer("quick")[0] == 200
        assert client.end()[0] == 0
        _, err = server.end()
    assert len(epochs(err)) == 1  # the counts of an epoch that begins again begin again


def test_a_trainer_that_knows_no_orders_is_held_and_not_harmed(tmp_path, store):
    with serving(tmp_path, *store, "-m", "task-switch-l1") as server:
        client = Train(server, "deaf", "--num-epoch", "1", "--batch-size", "8")
        assert eventually(lambda: server.trains(obeys=False))
        for _ in range(4):
            assert server.infer("quick")[0] == 200
        assert server.training()["orders"] == 0
        assert client.end()[0] == 0


def test_a_wedged_trainer_is_ended_and_the_request_is_answered(tmp_path, store):
    with serving(tmp_path, *store, "-m", "task-switch-l1", "--wedged-s", "0.5") as server:
        client = Train(server, "job")
        assert eventually(server.trains)
        os.kill(server.training()["pid"], signal.SIGSTOP)
        assert server.infer("quick")[0] == 200
        code, out = client.end()
        assert code == 1 and "did not obey an order for 0.5 s" in out, out
        assert server.infer("quick")[0] == 200
        assert server.training()["jobs"] == []


def test_a_killed_trainer_starts_again(tmp_path, store):
    with serving(tmp_path, *store) as server:
        client = Train(server, "job")
        assert eventually(server.trains)
        os.kill(server.training()["pid"], signal.SIGKILL)
        assert eventually(lambda: server.training()["launches"] == 2 and server.trains())
        client.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_trainer_does_not_outlive_its_server(tmp_path, store, number):
    with serving(tmp_path, *store) as server:
        client = Train(server, "job")
        assert eventually(server.trains)
        pid = server.training()["pid"]
        server.process.send_signal(number)
        assert eventually(lambda: not lives(pid))
        assert client.end()[0] == 1
        server.process.communicate(timeout=PATIENCE_S)
    assert eventually(lambda: not server.board().exists())


def test_a_job_that_does_not_exist_is_named(tmp_path, store):
    with serving(tmp_path, *store) as server:
        code, out = Train(server, "jub").end()
        assert code == 1 and "did you mean 'job'?" in out


def test_the_profile_and_the_log_have_each_switch(tmp_path, store):
    with serving(tmp_path, *store, "-m", "task-switch-l1", "-v", "--records", "records.jsonl") as server:
        client = Train(server, "job")
        assert eventually(server.trains)
        for _ in range(3):
            assert server.infer("quick")[0] == 200
        # The sampler has seen the trainer.
        assert eventually(lambda: server.training()["held_bytes"] >= 64 << 20)
        client.stop()
        _, err = server.end()
    waits = re.findall(
        r"\[Inference\]: quick \(rank 0\) set_input_ms=[\d.]+ infer_ms=[\d.]+ get_output_ms=[\d.]+ "
        r"wait_train_stop_ms=([\d.]+) total_infer_ms=[\d.]+",
        err,
    )
    assert len(waits) == 3 and all(float(ms) > 0 for ms in waits)
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert len(records) == 3 and all(record["train_wait_ms"] > 0 for record in records)
    text = (tmp_path / "server-profile").read_text()
    assert re.search(r"^InferQueue: avg [\d.]+ max [\d.]+ min [\d.]+ cnt 3 \| p99 ", text, re.MULTILINE)
    assert re.search(r"^TrainAdjust: .* cnt 3 \|", text, re.MULTILINE)
    handovers = re.findall(r"^[\d.]+: [\d.]+ Mb order [\d.]+ drop ([\d.]+) drain [\d.]+ give ", text, re.MULTILINE)
    assert len(handovers) == 3 and all(float(drop) > 0 for drop in handovers), text
    train_mb = [float(mb) for mb in re.findall(r"^[\d.]+: Infer [\d.]+ Mb Train ([\d.]+) Mb Total", text, re.MULTILINE)]
    assert max(train_mb) >= 64
