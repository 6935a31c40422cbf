"""Records of requests as `sluice serve --records` writes them, with times that are easy to add up."""

import json
from pathlib import Path

from sluice_tools.records import reader

ZERO = 1_795_000_000_000.0  # the real time of 0 ms


def record(
    arrived: float, steps: list, model: str = "a", limit: float = 10, ended: float | None = None, **more
) -> dict:
    """A request whose answer leaves at the end of its last step, if not said otherwise. Times in ms."""
    ended = steps[-1][1] if ended is None else ended
    execute = sum(end - begin for begin, end in steps)
    return {
        "model_name": model,
        "recv_time": ZERO + arrived,
        "finish_time": ZERO + ended,
        "total_cost_by_ms": ended - arrived,
        "child_model_execute_cost_by_ms": [end - begin for begin, end in steps],
        "child_model_run_time": [[ZERO + begin, ZERO + end] for begin, end in steps],
        "execute_cost": execute,
        "wait_cost": ended - arrived - execute,
        "limit_cost_by_ms": limit,
        "id": "",
        "batch": 1,
        "announced_us": 0.0,
        "result": "ok",
        "deadline_ms": None,
        "device": "simulated",
        "tag": "EDF",
    } | more


def lasting(*totals: float, **more) -> list:
    """Requests that ran at once, far from each other, and took so long."""
    return [record(1000 * i, [(1000 * i, 1000 * i + total)], **more) for i, total in enumerate(totals)]


def refused(arrived: float, ended: float, result: str, **more) -> dict:
    return record(arrived, [], ended=ended, result=result, **more)


def write(file: Path, records: list) -> Path:
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    return file


def sitting(folder: Path, records: list) -> reader.Sitting:
    (found,) = reader.read([write(folder / "requests.jsonl", records)])
    return found
