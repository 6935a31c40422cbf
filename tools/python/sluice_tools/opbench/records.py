"""Reads the records of `sluice opbench`, and says what is in them. Times are seconds."""

import csv
import json
import lzma
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sluice_tools.common.errors import first_line, usage_error

_KINDS = ("*.jsonl", "*.jsonl.xz", "Performance/*.json.tmp")


@dataclass(frozen=True)
class Record:
    task: str  # id and name
    name: str
    program: str
    device: str
    sms: int
    seconds: tuple[float, ...]
    error: int
    spread: float
    disturbed: bool
    index: int  # of the program, in the space of its task

    @property
    def good(self) -> bool:
        return self.error == 0 and not self.disturbed and bool(self.seconds)

    @property
    def cost(self) -> float:
        return statistics.median(self.seconds)


def _record(line: str) -> Record:
    found = json.loads(line)
    # AutoTVM's own records have none.
    details = found.get("sluice", {})
    name = found["input"][1]
    seconds, error = found["result"][:2]
    return Record(
        details.get("task", name),
        name,
        details.get("program") or str(found["config"]["index"]),
        details.get("device", "unknown"),
        details.get("sms", 0),
        tuple(seconds),
        error,
        details.get("spread", 0.0),
        details.get("disturbed", False),
        found["config"]["index"],
    )


def whole_lines(path: Path, data: bytes) -> list[str]:
    """A torn last line, as an interrupted run leaves it, is dropped, and said."""
    try:
        *lines, torn = data.decode().split("\n")
    except UnicodeDecodeError:
        raise usage_error(f"{path} is not text: records are JSON lines, as sluice opbench measure writes") from None
    if torn:
        print(f"sluice opbench report: {path}: the last line is torn: dropped", file=sys.stderr)
    return lines


def opened(path: Path) -> IO[bytes]:
    """A file that may be compressed."""
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def content(path: Path) -> bytes:
    try:
        with opened(path) as file:
            return file.read()
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise usage_error(f"{path} cannot be read: {first_line(error)}") from None


def read(path: Path) -> list[Record]:
    """In the order of the lines."""
    records = []
    for number, line in enumerate(whole_lines(path, content(path)), 1):
        try:
            records.append(_record(line))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise usage_error(f"{path}: line {number}: not a record: {error!r}") from None
    return records


def inside(folder: Path) -> list[Path]:
    """The files of records in a folder of `opbench run` or of `opbench measure`."""
    return sorted(one for kind in _KINDS for one in folder.rglob(kind))


def find(paths: list[Path]) -> list[Path]:
    """The files of records in folders; files are themselves."""
    files = []
    for path in paths:
        found = inside(path) if path.is_dir() else [path]
        if not found:
            raise usage_error(f"{path}: no records in it ({', '.join(_KINDS)})")
        files += found
    return files


def labels(records: list[Record]) -> dict[tuple[str, str], float]:
    """The cost by program and device. Of two records the later counts."""
    return {(one.program, one.device): one.cost for one in records if one.good}


def rows(records: list[Record]) -> list[dict]:
    """A row for each device: how many records, and what their times are."""
    found = []
    for device in sorted({one.device for one in records}, key=lambda name: (name.split("@")[0], -_share(name))):
        group = [one for one in records if one.device == device]
        costs = sorted(one.cost for one in group if one.good)
        found.append(
            {
                "device": device,
                "records": len(group),
                "good": len(costs),
                "disturbed": sum(one.error == 0 and one.disturbed for one in group),
                "errors": dict(sorted(Counter(one.error for one in group if one.error).items())),
                "least_us": costs[0] * 1e6 if costs else None,
                "median_us": statistics.median(costs) * 1e6 if costs else None,
                "most_us": costs[-1] * 1e6 if costs else None,
            }
        )
    return found


def _share(device: str) -> int:
    share = device.partition("@")[2]
    return int(share) if share.isdecimal() else 1 << 30


def ratios(records: list[Record]) -> dict[str, list[float]]:
    """By share of a GPU: the times over those on the whole GPU, of the programs that have both."""
    costs = labels(records)
    found: dict[str, list[float]] = {}
    for (program, device), cost in costs.items():
        whole, _, share = device.partition("@")
        if share and (program, whole) in costs:
            found.setdefault(device, []).append(cost / costs[program, whole])
    return found


def turning_points(records: list[Record]) -> dict[str, int]:
    """How many tasks need how many SMs: the smallest share on which the best program of the task is at most
    5 % slower than on the share where it is fastest. A task counts once for each GPU."""
    best: dict[tuple[str, str], dict[str, float]] = {}
    sms: dict[str, int] = {}
    for one in records:
        if one.good and one.sms:
            costs = best.setdefault((one.task, one.device.partition("@")[0]), {})
            costs[one.device] = min(one.cost, costs.get(one.device, one.cost))
            sms[one.device] = one.sms
    found: Counter = Counter()
    for costs in best.values():
        if len(costs) > 1:
            limit = 1.05 * min(costs.values())
            found[min((sms[device], device) for device, cost in costs.items() if cost <= limit)[1]] += 1
    return dict(found)


def latencies(paths: list[Path]) -> dict[str, list[tuple[int, float]]]:
    """(trials, ms) of each tuning in the folders, and of TVM's own schedules without trials, by its name."""
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(one for path in paths if path.is_dir() for one in path.rglob("latency.csv")):
        try:
            with file.open(newline="") as lines:
                for row in csv.DictReader(lines):
                    network = f"{row['modelname']}, batch {row['batchsize']}, {row['device']}"
                    tuner = "TVM's own" if row["programs"] == "tvm" else f"{row['tuner']}, seed {row['seed']}"
                    if row["ms"] and row["programs"] != "both":
                        found.setdefault(f"{network}: {tuner}", []).append((int(row["trials"]), float(row["ms"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise usage_error(f"{file} is no latency.csv of sluice opbench run: {error!r}") from None
    return found
