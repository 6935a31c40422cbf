"""Whole runs of `sluice serve` with more models than device memory, on the simulated GPU.

The recordings have weights of their own: each block reads its first and its last number. A block that ran before its
weights were in, or on memory of another model, would answer with other numbers.
"""

import functools
import itertools
import json
import random
import re
import threading
import time

import pytest
from serving import Train, eventually, in_background, large_job, serving

PATHS = {"first": "mobilenet_v2_b1", "second": "resnet50_b1"}
NAMES = ["first", "first-1", "first-2", "second", "second-1"]
WEIGHTS_MB = 40
BLOCKS = 3


@pytest.fixture
def config(tmp_path):
    """Five models of 40 MiB, of which two fit into 100 MiB. Those of one path have the same weights."""
    settings = f"  blocks {BLOCKS}\n  weights-mb {WEIGHTS_MB}\n"
    text = f"first[3]\n  path {PATHS['first']}\n{settings}second[2]\n  path {PATHS['second']}\n{settings}"
    (tmp_path / "models").write_text(text + "light\n  path mobilenet_v2_b1\n")
    return ["--config", "models", "--gpu", "sim", "--cuda-memory-pool-gb", str(100 / 1024)]


def numbers(server, model: str) -> list[int]:
    """What the blocks of a model have read of their weights."""
    code, answer = server.infer(model)
    assert code == 200, answer
    (output,) = [output for output in answer["outputs"] if output["name"] == "output1"]
    return output["data"]


def right_numbers(server) -> dict[str, list[int]]:
    """By path. The weights are multiples of an odd step, modulo 2**64."""
    right = {}
    for name in PATHS:
        data = numbers(server, name)
        count = WEIGHTS_MB * 2**20 // 8
        step = data[0]
        assert step % 2 == 1
        ends = [count * i // BLOCKS for i in range(BLOCKS + 1)]
        positions = [place for begin, end in itertools.pairwise(ends) for place in (begin, end - 1)]
        assert data == [(place + 1) * step % 2**64 for place in positions]
        right[name] = data
    assert right["first"] != right["second"]
    return right


def is_right(server, model: str, right: dict[str, list[int]]) -> bool:
    return numbers(server, model) == right[model.split("-")[0]]


@pytest.mark.parametrize("sta", ["1", "0"])
def test_models_take_turns_on_the_device_and_keep_their_weights(tmp_path, config, sta):
    with serving(tmp_path, *config, "--use-sta", sta, "--records", "records.jsonl") as server:
        right = right_numbers(server)
        for _ in range(2):
            for model in NAMES:
                assert is_right(server, model, right)
                assert model in server.resident()
                assert len(server.resident()) <= 2
        assert server.metric("sluice_serve_resident_bytes") <= 100 * 2**20
        assert server.metric("sluice_serve_evictions_total") >= 8
        assert server.infer("light")[0] == 200
        assert server.end()[0] == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    cold = [record["cold_ms"] for record in records]
    assert sum(ms > 0 for ms in cold) >= 8
    assert cold[-1] == 0
    assert all(record["cold_ms"] <= record["wait_cost"] for record in records)


def test_many_clients_at_once_get_right_answers(tmp_path, config):
    with serving(tmp_path, *config) as server:
        right = right_numbers(server)
        wrong = []

        def ask(seed: int):
            chosen = random.Random(seed)
            for _ in range(15):
                model = chosen.choice(NAMES)
                if not is_right(server, model, right):
                    wrong.append(model)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert server.metric("sluice_serve_evictions_total") > 10


def test_an_idle_model_leaves_beyond_the_cold_cache(tmp_path, config):
    options = ["--infer-model-max-idle-ms", "200", "--cold-cache-gb", str(50 / 1024)]
    with serving(tmp_path, *config, *options) as server:
        right = right_numbers(server)
        assert is_right(server, "first-1", right)
        assert eventually(lambda: server.resident() == ["first-1"])
        assert is_right(server, "first", right)


def test_models_of_one_recording_may_have_weights_of_different_sizes(tmp_path):
    """They share their host copy only if it is the same."""
    sizes = {"small": 4, "large": 8}
    text = "".join(f"{name}\n  path mobilenet_v2_b1\n  weights-mb {size}\n" for name, size in sizes.items())
    (tmp_path / "models").write_text(text)
    with serving(tmp_path, "--config", "models", "--gpu", "sim") as server:
        for name, size in sizes.items():
            first, last = numbers(server, name)
            assert last == (size * 2**20 // 8) * first % 2**64


def test_a_model_that_never_fits_is_refused_with_the_reason(tmp_path):
    (tmp_path / "models").write_text(f"large\n  path mobilenet_v2_b1\n  weights-mb {WEIGHTS_MB}\n")
    with serving(tmp_path, "--config", "models", "--gpu", "sim", "--cuda-memory-pool-gb", "0.02") as server:
        assert eventually(lambda: server.resident() == [])
        code, answer = server.infer("large")
        assert code == 429 and "model 'large': there is no memory for its weights" in answer["error"]


def test_a_request_that_waits_for_weights_keeps_its_deadline(tmp_path, config):
    """The only model that could leave is in use, so the other one's request expires."""
    text = f"slow\n  path resnet152_b256\n  weights-mb 80\nother\n  path mobilenet_v2_b1\n  weights-mb {WEIGHTS_MB}\n"
    (tmp_path / "models").write_text(text)
    with serving(tmp_path, *config, "--admit-factor", "0") as server:
        # For 2.4 s: a busy machine takes longer than one request of 0.6 s to ask for the other model.
        slow = [in_background(functools.partial(server.infer, "slow")) for _ in range(4)]
        assert eventually(lambda: "slow" in server.resident() and "other" not in server.resident())
        code, answer = server.infer("other", slo_ms=50)
        assert code == 504, answer
        for thread, results in slow:
            thread.join()
            assert results[0][0] == 200
        assert server.infer("other")[0] == 200


def test_a_model_with_weights_is_unloaded_while_others_move(tmp_path, config):
    with serving(tmp_path, *config) as server:
        right = right_numbers(server)
        for name in ("first-1", "second-1"):
            assert server.call(f"/v2/repository/models/{name}/unload", {})[0] == 200
            assert is_right(server, "first-2", right)
            assert server.call(f"/v2/repository/models/{name}/load", {})[0] == 200
            assert is_right(server, name, right)
        assert server.metric("sluice_serve_resident_bytes") <= 100 * 2**20


def test_training_gives_its_memory_to_a_cold_model_and_gets_it_back(tmp_path):
    """The trainer holds 320 MiB of 400; a model of 150 MiB makes it smaller, and leaves again."""
    (tmp_path / "models").write_text("first\n  path mobilenet_v2_b1\n  weights-mb 150\n")
    large_job(tmp_path)
    pool = ["--cuda-memory-pool-gb", str(400 / 1024), "--cold-cache-gb", "0", "--infer-model-max-idle-ms", "100"]
    with serving(tmp_path, "--config", "models", "--gpu", "sim", "--train-store", "train", *pool) as server:
        client = Train(server, "job", "--num-epoch", "1000", "--batch-size", "16")
        assert eventually(lambda: server.held_mb() >= 300)
        right = numbers(server, "first")
        for _ in range(2):  # training may have held less before the first
            assert eventually(lambda: server.resident() == [] and server.held_mb() >= 300)
            assert numbers(server, "first") == right
        # A handover ends when the loaded model may answer, and is reported then.
        assert eventually(lambda: server.metric("sluice_serve_handovers_total") > 0)
        loads = server.metric("sluice_serve_weight_loads_total")
        client.stop()
        code, err = server.end()
    assert code == 0, err
    profile = (tmp_path / "server-profile").read_text()
    found = re.findall(r"(\d+\.\d+) Mb order \S+ drop (\S+) .* take (\S+) load (\S+)\n", profile)
    # Training may have held more than its share before a model waited: then nothing was loaded.
    handover = next(parts for parts in found if float(parts[-1]) > 0)
    # 80 MiB of the pool were free, so training gave at least the other 70; these parts took some time.
    assert float(handover[0]) >= 70 and all(float(ms) > 0 for ms in handover[1:]), profile
    events = {name: profile.count(f": {name}\n") for name in ("AddInfer", "InferAllocStorageEnd", "InferLoadParamEnd")}
    assert set(events.values()) == {loads}, events
    assert profile.count(": InferExit\n") >= loads  # also the first load, at the start
    assert "InferAllocStorage: avg" in profile and re.search(rf"InferLoadParam: .* cnt {loads:.0f} ", profile), profile


def test_training_gives_its_memory_to_a_model_that_is_loaded_for_the_first_time(tmp_path, monkeypatch):
    """The device has 400 MiB, of which training holds 320. The new model needs 150."""
    monkeypatch.setenv("SLUICE_SIM_MEMORY_MIB", "400")
    text = "first\n  path mobilenet_v2_b1\nlate\n  path resnet50_b1\n  weights-mb 150\n  preload no\n"
    (tmp_path / "models").write_text(text)
    large_job(tmp_path)
    pool = ["--cuda-memory-pool-gb", str(400 / 1024)]
    with serving(tmp_path, "--config", "models", "--gpu", "sim", "--train-store", "train", *pool) as server:
        client = Train(server, "job", "--num-epoch", "1000", "--batch-size", "16")
        assert eventually(lambda: server.held_mb() >= 300)
        code, answer = server.call("/v2/repository/models/late/load", {})
        assert code == 200, answer
        assert eventually(lambda: server.metric("sluice_serve_handovers_total") > 0)

        def settled() -> bool:
            memory = server.call("/v2/sluice/status")[1]["devices"][0]["memory"]
            return memory["loading_mb"] == 0 and memory["resident_mb"] >= 150 and memory["short_ms"] == 0

        assert eventually(settled), server.call("/v2/sluice/status")[1]
        status = server.call("/v2/sluice/status")[1]
        assert status["devices"][0]["memory"]["pool_mb"] == 400 and status["training"]["limited"], status
        assert server.infer("late")[0] == 200
        assert server.infer("first")[0] == 200
        assert server.trains() and server.training()["launches"] == 1
        client.stop()
        assert server.end()[0] == 0


@pytest.mark.parametrize("mode", ["colocate-l1", "colocate-l2"])
def test_training_gives_its_memory_although_the_gate_is_closed_all_the_time(tmp_path, monkeypatch, mode):
    """Its micro-batch could not end behind the gate, and the request that waits for the memory keeps it closed."""
    monkeypatch.setenv("SLUICE_SIM_MEMORY_MIB", "400")
    (tmp_path / "models").write_text("warm\n  path resnet50_b1\ncold\n  path mobilenet_v2_b1\n  weights-mb 150\n")
    large_job(tmp_path)
    pool = ["--cuda-memory-pool-gb", str(400 / 1024), "--cold-cache-gb", "0", "--infer-model-max-idle-ms", "50"]
    options = ["--config", "models", "--gpu", "sim", "--train-store", "train", "-m", mode, "--wedged-s", "10", *pool]
    with serving(tmp_path, *options) as server:
        client = Train(server, "job", "--num-epoch", "1000", "--batch-size", "16")
        assert eventually(lambda: server.resident() == [] and server.held_mb() >= 300)
        end = threading.Event()

        def ask():
            while not end.is_set():
                assert server.infer("warm")[0] == 200

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        code, answer = server.infer("cold")
        end.set()
        for thread in threads:
            thread.join()
        assert code == 200, answer
        assert server.training()["jobs"] == ["job"], client.end()
        client.stop()
        assert server.end()[0] == 0
