"""Whole runs of `sluice serve` on two simulated GPUs.

Prevents: models that all run on one of the GPUs, requests on one GPU that hold programs of the other, weights that are
mapped on the wrong GPU, training that runs on another GPU than it should, and a start on a GPU that does not exist.
"""

import json
import os
import subprocess

import pytest
from serving import PATIENCE_S, SLUICE, Train, eventually, in_background, large_job, serving

BOTH = "both\n  path resnet152_b256\n  device sim:0,1\n  weights-mb 40\n"
SECOND = "second\n  path mobilenet_v2_b1\n  device sim:1\n  weights-mb 40\n"


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch):
    monkeypatch.setenv("SLUICE_SIM_DEVICES", "2")


def jobs(server) -> dict[int, int]:
    """Of the server, by device of the board."""
    return {client["device"]: client["jobs"] for client in server.clients() if client["priority"] == 1}


def more_jobs(server, before: dict[int, int]) -> list[int]:
    """The devices that have had jobs since. A job ends, and counts, just after its last answer."""
    found: list[int] = []

    def some() -> bool:
        found[:] = [device for device, count in jobs(server).items() if count > before[device]]
        return found != []

    assert eventually(some)
    return found


def test_a_model_runs_on_both_and_a_job_holds_one(tmp_path):
    (tmp_path / "models").write_text(BOTH + SECOND)
    with serving(tmp_path, "--config", "models", "--records", "records.jsonl") as server:
        rows = server.call("/v2/sluice/status")[1]["models"]
        assert [(row["name"], row["device"]) for row in rows] == [
            ("both", "sim:0"),
            ("both", "sim:1"),
            ("second", "sim:1"),
        ]
        assert [server.devices()[f"sim:{i}"]["memory"]["resident_mb"] for i in range(2)] == [40, 80]
        # Jobs of a request on the second GPU are jobs there only.
        before = jobs(server)
        assert len(before) == 2
        for _ in range(3):
            assert server.infer("second")[0] == 200
        assert len(more_jobs(server, before)) == 1
        # A request takes 0.6 s, so the later ones find a GPU taken.
        alone = server.infer("both")[1]["outputs"]
        both = [in_background(lambda: server.infer("both")) for _ in range(6)]
        for thread, _ in both:
            thread.join()
        for _, results in both:
            assert results[0][0] == 200
            # The same weights, on either GPU.
            assert results[0][1]["outputs"] == alone
        # An unload frees both.
        assert server.call("/v2/repository/models/both/unload", {})[0] == 200
        assert [server.devices()[f"sim:{i}"]["memory"]["resident_mb"] for i in range(2)] == [0, 40]
        assert server.infer("second")[0] == 200
        assert server.end()[0] == 0
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert {record["gpu"] for record in records if record["model_name"] == "both"} == {0, 1}
    assert {record["gpu"] for record in records if record["model_name"] == "second"} == {1}


def test_training_runs_on_the_gpu_of_device(tmp_path):
    (tmp_path / "models").write_text("both\n  path mobilenet_v2_b1\n  device sim:0,1\n" + SECOND)
    large_job(tmp_path)
    options = ["--config", "models", "--train-store", "train", "--device", "1"]
    with serving(tmp_path, *options) as server:
        trained = Train(server, "job")
        assert eventually(server.trains), trained.end()
        trainer = server.client(0)
        before = jobs(server)
        assert server.infer("second")[0] == 200
        assert more_jobs(server, before) == [trainer["device"]]
        # The broker is the server's client of that GPU, else it could give no grant.
        assert eventually(lambda: server.held_mb() > 0)
        trained.stop()
        assert server.end()[0] == 0


def test_requests_of_another_gpu_leave_training_alone(tmp_path):
    (tmp_path / "models").write_text("first\n  path mobilenet_v2_b1\n  device sim:0\n" + SECOND)
    large_job(tmp_path)
    options = ["--config", "models", "--train-store", "train", "--device", "1", "-m", "task-switch-l1"]
    with serving(tmp_path, *options) as server:
        trained = Train(server, "job")
        assert eventually(server.trains), trained.end()
        for _ in range(3):
            assert server.infer("first")[0] == 200
        assert server.training()["orders"] == 0
        assert server.infer("second")[0] == 200
        assert eventually(lambda: server.training()["orders"] > 0)
        trained.stop()
        assert server.end()[0] == 0


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        (
            "m\n  path mobilenet_v2_b1\n  device sim:0,2\n",
            [],
            "model m: device: found GPU 2, but there are only GPUs 0 to 1",
        ),
        ("m\n  path mobilenet_v2_b1\n  device sim\n", ["--device", "5"], "--device: found GPU 5, but"),
        (
            "m\n  path mobilenet_v2_b1\n  device sim:1,1\n",
            [],
            "models:3: device: found 'sim:1,1', allowed: each GPU once",
        ),
    ],
)
def test_a_gpu_that_does_not_exist_is_refused_at_the_start(tmp_path, config, options, says):
    (tmp_path / "models").write_text(config)
    command = [
        SLUICE,
        "serve",
        "--config",
        "models",
        "-p",
        "0",
        "--http",
        "0",
        "--session",
        f"serve-none-{os.getpid()}",
    ]
    ended = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
