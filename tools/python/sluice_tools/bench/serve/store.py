"""The models of a measurement: exported and split once, into the store of --out."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from sluice_tools.bench.serve.setting import Setting

_EXPORT_S = 400
_SPLIT_S = 8  # of searching for even blocks, for each model
SIDE = 32  # of the images of small models


def export(setting: Setting, names: list[str], train: bool = False) -> None:
    """Those that the store lacks. train: as models that can be trained. Raises RuntimeError."""
    missing = [name for name in names if not _has(setting, name, train)]
    size = ("--size", SIDE, SIDE) if setting.tiny else ()
    words = [*size, *(["--train"] if train else []), "--store", setting.store]
    # A large model takes half a minute of one processor. With threads for all processors in each process, they would
    # wait for one another.
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        list(pool.map(lambda name: _run(setting, ["models", "export", name, *words], _EXPORT_S, threads=2), missing))


def _has(setting: Setting, name: str, train: bool) -> bool:
    described = setting.store / name / "model.json"
    if not described.exists():
        return False
    return any((one["format"] == "training") == train for one in json.loads(described.read_text())["variants"])


def split(setting: Setting, name: str, blocks: int, batch: int) -> dict:
    """The entry of model.json for so many blocks; searches them if there is none. Raises RuntimeError."""
    if not (found := _split_of(setting, name, blocks, batch)):
        seconds = 1 if setting.tiny else _SPLIT_S
        place = ("--cpu",) if setting.tiny else ("--device", setting.device)
        words = ["split", name, "-c", blocks, "--batch", batch, "--limit-s", seconds, "--early-end", *place]
        _run(setting, [*words, "--store", setting.store, "--out", setting.out / "split"], 60 + 10 * seconds)
        found = _split_of(setting, name, blocks, batch)
    if not found:
        raise RuntimeError(f"sluice split wrote no split of {name} into {blocks} blocks")
    return found


def _split_of(setting: Setting, name: str, blocks: int, batch: int) -> dict:
    described = json.loads((setting.store / name / "model.json").read_text())
    fitting = [one for one in described.get("splits", ()) if (one["blocks"], one["batch"]) == (blocks, batch)]
    return fitting[0] if fitting else {}


def _run(setting: Setting, words: list, seconds: float, threads: int | None = None) -> None:
    command = [str(word) for word in (setting.sluice, *words)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)} if threads else None
    nothing = subprocess.DEVNULL
    try:
        said = subprocess.run(
            command, stdin=nothing, capture_output=True, text=True, timeout=seconds, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command[:4])}: no end after {seconds:.0f} s") from None
    if said.returncode != 0:
        last = said.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RuntimeError(f"{' '.join(command[:4])}: {last[0]}")
