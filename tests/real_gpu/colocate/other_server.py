"""Part E: an unmodified server of another make next to an unmodified training, with and without `sluice exec`.

tritonserver of nvidia-pytriton serves resnet50, a request every 20 ms on average.

    other_server.py --out DIR --store DIR [--limit-s 60]
"""

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from findings import finding, progress
from sluice_tools.bench.serve import peers, store
from sluice_tools.bench.serve.clients import poisson, send_all
from stage import ROOT, Place, parse, told

_MODEL = "resnet50"
_GAP_MS = 20.0
_WARM_UP_S = 1.5
_SECONDS = 6.0
_START_S = 40
_SESSION = f"other-server-{os.getpid()}"


def gated(place: Place, priority: int) -> tuple:
    return (place.setting.sluice, "exec", "--session", _SESSION, "--priority", priority, "--")


@contextlib.contextmanager
def training(prefix: tuple) -> Iterator[subprocess.Popen]:
    """Runs when this gives it."""
    python = os.environ.get("SLUICE_PYTHON", sys.executable)
    words = [*prefix, python, ROOT / "tools/python/examples/train.py", "--batch", 64, "--seconds", 600]
    pipe = subprocess.PIPE
    with subprocess.Popen([str(word) for word in words], stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr
            if not any(line.startswith("training ") for line in process.stderr):
                raise RuntimeError("the training does not begin")
            yield process
        finally:
            process.kill()


def measure(place: Place, found: peers.Installation, what: str, trains: bool, under_sluice: bool) -> None:
    parameters = (("file", str(place.setting.store / _MODEL / "model.pt")), ("device", "cuda"))
    model = peers.PeerModel(
        _MODEL, "torch_script", 8, ("INPUT__0", (3, 224, 224)), ("OUTPUT__0", (1000,)), parameters, gpu=True
    )
    server = gated(place, 1) if under_sluice else ()
    trained = {}
    with peers.running(found, place.setting.out / what.replace(" ", "-"), [model], 0, server) as triton:
        with contextlib.ExitStack() as stack:
            prefix = gated(place, 0) if under_sluice else ()
            process = stack.enter_context(training(prefix)) if trains else None
            send_all(place.setting, triton, [poisson(_MODEL, _GAP_MS, _WARM_UP_S, 0)])
            (report,) = send_all(place.setting, triton, [poisson(_MODEL, _GAP_MS, _SECONDS, 1)])
            if process:
                process.terminate()  # it then says how fast it was
                out, _ = process.communicate(timeout=_START_S)
                trained = {"ms_per_step": json.loads(out.splitlines()[-1])["ms_per_step"]}
        triton.check()
    latency = {f"{name}_ms": report["latency_ms"][name] for name in ("p50", "p99", "max")}
    finding("E", what, sent=report["sent"], answered=report["answered"], errors=report["errors"], **latency, **trained)


def main() -> None:
    place, _ = parse(argparse.ArgumentParser(description=__doc__))
    tell = functools.partial(finding, "E")
    found = peers.find(None)
    if place.sim or not found:
        tell("not tried", why="no GPU" if place.sim else peers.WITHOUT)
        return
    store.export(place.setting, [_MODEL])
    for what, trains, under_sluice in (
        ("server alone", False, False),
        ("next to training without Sluice", True, False),
        ("next to training under sluice exec", True, True),
    ):
        progress(what)
        with told(what, tell):
            measure(place, found, what, trains, under_sluice)


if __name__ == "__main__":
    main()
