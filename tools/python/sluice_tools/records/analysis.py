"""The files of the published analysis: response ratios, how many there are of each, and their statistic."""

import json
import math
import statistics
from pathlib import Path

from sluice_tools.records.folders import file_name
from sluice_tools.records.reader import Sitting

TOTAL = "total"


def statistic(ratios: list) -> dict:
    """As published; the standard deviation is that of a sample, and None for one request."""
    if not ratios:
        return {"min": None, "avg": None, "max": None, "std": None}
    return {
        "min": min(ratios),
        "avg": math.fsum(ratios) / len(ratios),
        "max": max(ratios),
        "std": statistics.stdev(ratios) if len(ratios) > 1 else None,
    }


def blocks(ratios: list) -> list:
    """(upper end, how many ratios are above the end before and at most this one), in steps of 0.1 from 1.0."""
    found, upper, count = [(1.0, 0)], 1100, 0
    for ratio in sorted(ratios):
        while ratio * 1000 > upper:
            found.append((upper / 1000, count))
            upper, count = upper + 100, 0
        count += 1
    return [*found, (upper / 1000, count)]


def write(sitting: Sitting, out: Path) -> Path:
    """Into OUT/MODE/NAME. Returns that folder."""
    folder = out / file_name(sitting.scheduler) / file_name(sitting.name)
    by_model: dict[str, list] = {file_name(model): [] for model in sitting.models}
    rows = [(request.id or str(number), request) for number, request in enumerate(sitting.answered)]
    for _, request in rows:
        by_model[request.model].append(request.ratio)
    by_model = {model: ratios for model, ratios in by_model.items() if ratios}
    every = [request.ratio for _, request in rows]
    folder.mkdir(parents=True, exist_ok=True)
    _write_ratios(folder / "radios.csv", rows)
    _write_ratios(folder / "radios_sort.csv", sorted(rows, key=lambda row: row[1].ratio))
    for model, ratios in by_model.items():
        _write_blocks(folder / "models", model, ratios)
    _write_blocks(folder, TOTAL, every)
    content = {model: statistic(ratios) for model, ratios in [*by_model.items(), (TOTAL, every)]}
    (folder / "statistic.json").write_text(json.dumps(content, indent=4) + "\n")
    return folder


def _write_ratios(file: Path, rows: list) -> None:
    lines = [f"{name} , {request.model} , {request.ratio}" for name, request in rows]
    file.write_text("\n".join(["id, model-name, radio", *lines]) + "\n")


def _write_blocks(folder: Path, name: str, ratios: list) -> None:
    """Those of models are in folders of their own, those of all requests are not."""
    counted, so_far = blocks(ratios), 0
    summed = []
    for upper, count in counted:
        so_far += count
        summed.append((upper, so_far))
    for kind, table in (("block", counted), ("accumulate", summed)):
        place = folder if name == TOTAL else folder / kind
        place.mkdir(parents=True, exist_ok=True)
        lines = [f"{upper} ,  {count}" for upper, count in table]
        (place / f"{name}_{kind}.csv").write_text("\n".join(["limit, count", *lines]) + "\n")
