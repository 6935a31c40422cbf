"""Whole runs of `sluice serve` with more models than device memory, on the simulated GPU.

The recordings have weights of their own: each block reads its first and its last number. A block that ran before its
weights were in, or on memory of another model, would answer with other numbers.
"""

import functools
import itertools
import json
import random
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from serving import PATIENCE_S, SLUICE, eventually, in_background, serving

TRAINER = Path(SLUICE).parent.parent / "libexec" / "sluice" / "sluice-example-train"
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


def metric(server, name: str) -> float:
    (line,) = [line for line in server.call("/metrics")[1].splitlines() if line.startswith(name + " ")]
    return float(line.split()[1])


def held_mb(server) -> float:
    """By the trainer."""
    return server.call("/v2/sluice/status")[1]["training"].get("held_bytes", 0) / 2**20


def resident(server) -> list[str]:
    return [row["name"] for row in server.call("/v2/sluice/status")[1]["models"] if row.get("resident")]


@pytest.mark.parametrize("sta", ["1", "0"])
def test_models_take_turns_on_the_device_and_keep_their_weights(tmp_path, config, sta):
    with serving(tmp_path, *config, "--use-sta", sta, "--records", "records.jsonl") as server:
        right = right_numbers(server)
        for _ in range(2):
            for model in NAMES:
                assert is_right(server, model, right)
                assert model in resident(server)
                assert len(resident(server)) <= 2
        assert metric(server, "sluice_serve_resident_bytes") <= 100 * 2**20
        assert metric(server, "sluice_serve_evictions_total") >= 8
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
        assert metric(server, "sluice_serve_evictions_total") > 10


def test_an_idle_model_leaves_beyond_the_cold_cache(tmp_path, config):
    options = ["--infer-model-max-idle-ms", "200", "--cold-cache-gb", str(50 / 1024)]
    with serving(tmp_path, *config, *options) as server:
        right = right_numbers(server)
        assert is_right(server, "first-1", right)
        assert eventually(lambda: resident(server) == ["first-1"])
        assert is_right(server, "first", right)


def test_a_model_that_never_fits_is_refused_with_the_reason(tmp_path):
    (tmp_path / "models").write_text(f"large\n  path mobilenet_v2_b1\n  weights-mb {WEIGHTS_MB}\n")
    with serving(tmp_path, "--config", "models", "--gpu", "sim", "--cuda-memory-pool-gb", "0.02") as server:
        assert eventually(lambda: resident(server) == [])
        code, answer = server.infer("large")
        assert code == 429 and "model 'large': there is no memory for its weights" in answer["error"]


def test_a_request_that_waits_for_weights_keeps_its_deadline(tmp_path, config):
    """The only model that could leave is in use, so the other one's request expires."""
    text = f"slow\n  path resnet152_b256\n  weights-mb 80\nother\n  path mobilenet_v2_b1\n  weights-mb {WEIGHTS_MB}\n"
    (tmp_path / "models").write_text(text)
    with serving(tmp_path, *config, "--admit-factor", "0") as server:
        slow, results = in_background(functools.partial(server.infer, "slow"))
        assert eventually(lambda: "slow" in resident(server) and "other" not in resident(server))
        code, answer = server.infer("other", slo_ms=50)
        assert code == 504, answer
        slow.join()
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
        assert metric(server, "sluice_serve_resident_bytes") <= 100 * 2**20


def test_training_gives_its_memory_to_a_cold_model_and_gets_it_back(tmp_path):
    """The trainer holds 320 MiB of 400; a model of 150 MiB makes it smaller, and leaves again."""
    (tmp_path / "models").write_text("first\n  path mobilenet_v2_b1\n  weights-mb 150\n")
    (tmp_path / "train").mkdir()
    job = tmp_path / "train" / "job"
    job.write_text(f'#!/bin/sh\nexec {TRAINER} "$@" --item-mb 16\n')
    job.chmod(0o755)
    pool = ["--cuda-memory-pool-gb", str(400 / 1024), "--cold-cache-gb", "0", "--infer-model-max-idle-ms", "100"]
    with serving(tmp_path, "--config", "models", "--gpu", "sim", "--train-store", "train", *pool) as server:
        port = str(server.listen["grpc_port"])
        job = ["--train-model", "job", "--num-epoch", "1000", "--batch-size", "16"]
        command = [SLUICE, "hybrid_workload", "--no-infer", "-p", port, *job]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: held_mb(server) >= 300)
        right = numbers(server, "first")
        for _ in range(20):
            assert eventually(lambda: resident(server) == [] and held_mb(server) >= 300)
            assert numbers(server, "first") == right
            if metric(server, "sluice_serve_handovers_total") > 0:
                break
        assert metric(server, "sluice_serve_handovers_total") > 0
        loads = metric(server, "sluice_serve_weight_loads_total")
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=PATIENCE_S)
        code, err = server.end()
    assert code == 0, err
    profile = (tmp_path / "server-profile").read_text()
    found = re.findall(r"(\d+\.\d+) Mb order \S+ drop (\S+) .* take (\S+) load (\S+)\n", profile)
    # Training may have held more than its share before a model waited: then nothing was loaded.
    handover = next(parts for parts in found if float(parts[-1]) > 0)
    # 80 MiB of the pool were free, so training gave at least the other 70; these parts took some time.
    assert float(handover[0]) >= 70 and all(float(ms) > 0 for ms in handover[1:]), profile
    assert "InferAllocStorage: avg" in profile and re.search(rf"InferLoadParam: .* cnt {loads:.0f} ", profile), profile
