"""One `sluice serve` on two GPUs: what two_gpus.sh prints.

usage: two_gpus.py OUT real|sim
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

SLUICE = os.environ["SLUICE_TEST_PROGRAM"]
sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
from serving import Server, eventually  # noqa: E402

OUT, KIND = Path(sys.argv[1]), sys.argv[2]
SPIN = Path(SLUICE).parents[1] / "libexec" / "sluice" / "sluice-example-spin"
DEVICE = "cuda" if KIND == "real" else "sim"
PATH = "resnet50" if KIND == "real" else "resnet50_b1"
SHAPE = [1, 3, 224, 224] if KIND == "real" else [1, 2]
WEIGHTS = "" if KIND == "real" else "  weights-mb 100\n"
OPTIONS = ["--store", "store", "--gpu", KIND]
SECONDS = 5
failed = []


def say(what: str, holds: bool, numbers) -> None:
    print(f"{'ok    ' if holds else 'FAILED'} {what}: {numbers}", flush=True)
    if not holds:
        failed.append(what)


def config(name: str, *models: tuple[str, str]) -> list[str]:
    text = "".join(f"{model}\n  path {PATH}\n  device {DEVICE}:{gpus}\n{WEIGHTS}" for model, gpus in models)
    (OUT / name).write_text(text)
    return ["--config", name, *OPTIONS]


def answer(server: Server, model: str) -> list[float]:
    """To an input that is the same each time."""
    count = SHAPE[1] * (SHAPE[2] * SHAPE[3] if len(SHAPE) > 2 else 1)
    values = [(i * 7919 % 2048) / 1024 - 1 for i in range(count)]
    name = server.call(f"/v2/models/{model}")[1]["inputs"][0]["name"]
    tensor = {"name": name, "datatype": "FP32", "shape": SHAPE, "data": values}
    code, got = server.call(f"/v2/models/{model}/infer", {"inputs": [tensor]})
    assert code == 200, got
    return got["outputs"][-1]["data"]


def rate(server: Server, model: str, outstanding: int) -> float:
    command = [SLUICE, "hybrid_workload", "-p", str(server.listen["grpc_port"]), "--infer-model", model, "--json"]
    command += ["-d", str(SECONDS), "-c", str(outstanding)]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    (OUT / f"load-{model}-{outstanding}.json").write_text(json.dumps(report))
    return sum(each["answered"] for each in report["models"]) / SECONDS


def one_gpu() -> tuple[list[float], float]:
    server = Server(OUT, *config("one", ("one", "0")))
    right = answer(server, "one")
    alone = rate(server, "one", 8)
    server.end()
    return right, alone


def held_by_load_on_first(server: Server) -> dict[str, int]:
    """How long best effort on each GPU was held while only the first one has requests."""
    spins = {}
    for gpu in "01":
        command = [
            SLUICE,
            "exec",
            "--priority",
            "0",
            "--name",
            f"spin{gpu}",
            "--gpu",
            KIND,
            "--session",
            server.session,
        ]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        spins[gpu] = subprocess.Popen(
            [*command, "--", SPIN, "--kernels", "10"], env=environment, stdout=subprocess.DEVNULL
        )

    def held() -> dict[str, int]:
        return {each["name"]: each["held_total_ns"] for each in server.clients() if each["priority"] == 0}

    try:
        assert eventually(lambda: len(held()) == 2)
        time.sleep(1)
        before = held()
        rate(server, "first", 1)
        after = held()
        return {name: after[name] - before[name] for name in after}
    finally:
        for spin in spins.values():
            spin.terminate()
            spin.wait()


def two_gpus(right: list[float], alone: float) -> None:
    models = config("two", ("both", "0,1"), ("first", "0"), ("second", "1"))
    server = Server(OUT, *models, "--records", "records.jsonl")
    memory = {name: row["memory"]["resident_mb"] for name, row in server.devices().items()}
    say("weights on both GPUs", all(mb > 0 for mb in memory.values()) and len(memory) == 2, memory)
    for model in ("first", "second", "both"):
        got = answer(server, model)
        worst = max(abs(a - b) for a, b in zip(got, right, strict=True))
        say(
            f"{model} answers as on one GPU",
            worst <= 1e-3,
            f"{worst:.2g} apart, {'' if got == right else 'not '}the same bits",
        )
    both = rate(server, "both", 8)
    say("two GPUs answer more than one", both > 1.3 * alone, f"{both:.0f}/s, one GPU {alone:.0f}/s")
    held = held_by_load_on_first(server)
    say("requests on one GPU hold best effort there only", held["spin0"] > 0 and held["spin1"] == 0, held)
    assert server.call("/v2/repository/models/both/unload", {})[0] == 200
    left = {name: row["memory"]["resident_mb"] for name, row in server.devices().items()}
    say("an unload frees both GPUs", all(left[name] < memory[name] for name in memory), left)
    code, err = server.end()
    (OUT / "log").write_text(err)
    records = [json.loads(line) for line in (OUT / "records.jsonl").read_text().splitlines()]
    where = [record["gpu"] for record in records if record["model_name"] == "both"]
    shares = {gpu: where.count(gpu) / len(where) for gpu in (0, 1)}
    say("requests go to both", min(shares.values()) > 0.2, shares)
    say("the server ends in order", code == 0, code)


if __name__ == "__main__":
    begin = time.monotonic()
    two_gpus(*one_gpu())
    print(f"two_gpus.py: {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failed else 0)
