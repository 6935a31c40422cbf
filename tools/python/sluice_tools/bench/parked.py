"""What a critical process feels of a best-effort one that is parked with a full launch queue."""

import sys
import time
from pathlib import Path

from sluice_tools.measure.programs import mps, session

FIELDS = ("mode", "beside", "call", "n", "p50_us", "max_us")

_HELD_LIMIT_S = 10


def _wait_until_held(opened, pid: int):
    deadline = time.monotonic() + _HELD_LIMIT_S
    while time.monotonic() < deadline:
        if opened.clients().get(pid, {}).get("held_by"):
            return
        time.sleep(0.05)
    raise RuntimeError("the best-effort program was not held within 10 s")


def _cell(options, mode: str, beside: str) -> list:
    train = Path(__file__).resolve().parents[3] / "examples" / "train.py"
    probe = [
        sys.executable,
        "-m",
        "sluice_tools.bench.parked_probe",
        "--device",
        str(options.device),
        "--seconds",
        str(options.seconds),
    ]
    with mps(options.sluice, mode == "MPS") as environment, session(options.sluice) as opened:
        training = None
        if beside != "nobody":
            training = opened.start(
                [sys.executable, str(train), "--device", f"cuda:{options.device}", "--amp", "bf16", "--seconds", "600"],
                0,
                "device:4",
                environment(True),
            )
            training.wait_for("step 20:")
        probing = opened.start(probe, 1, "gate", environment(False))
        probing.wait_for("in a job")
        if training:
            _wait_until_held(opened, training.process.pid)
        return [{"mode": mode, "beside": beside, **row} for row in probing.result()["calls"]]


def run(options) -> list:
    return [
        row
        for mode in options.modes
        for beside in ("nobody", "parked training")
        for row in _cell(options, mode, beside)
    ]


def failures(rows: list) -> list:
    return []
