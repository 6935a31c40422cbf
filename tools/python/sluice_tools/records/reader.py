"""Requests from the file of `sluice serve --records`, or from the published folders."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sluice_tools.common.errors import usage_error

OK = "ok"


@dataclass(slots=True)
class Request:
    """Times in ms; points in time since an unknown one that all requests of a file share."""

    id: str
    model: str
    arrived: float
    ended: float
    total: float
    limit: float  # of the whole model for one item on an idle device
    steps: list  # (begin, end) of each block, or of the whole model
    costs: list  # duration of each step, more exact than the points in time
    result: str = OK
    batch: int = 1  # items of the execution
    deadline: float | None = None  # after the arrival
    train_wait: float = 0.0  # until training had left

    @property
    def ratio(self) -> float:
        """The published response ratio."""
        return max(1.0, self.total / self.limit)


@dataclass
class Sitting:
    """The requests that one scheduler had, in the order of their answers."""

    scheduler: str
    name: str  # of the file or folder
    requests: list = field(default_factory=list)
    device: str | None = None  # what ran the models, if the records say so
    label: str = ""  # tells it from the others that are shown with it

    @property
    def answered(self) -> list:
        return [request for request in self.requests if request.result == OK]

    @property
    def models(self) -> list:
        return sorted({request.model for request in self.requests})


def read(paths: list) -> list[Sitting]:
    """A Sitting for each scheduler of each file or published folder."""
    found = []
    for path in dict.fromkeys(paths):
        found += _read_folders(path) if path.is_dir() else read_file(path)
    for sitting in found:
        twins = [other for other in found if other.scheduler == sitting.scheduler]
        sitting.label = sitting.scheduler if len(twins) == 1 else f"{sitting.scheduler} ({sitting.name})"
    if len({sitting.label for sitting in found}) < len(found):
        for number, sitting in enumerate(found, 1):
            sitting.label = f"{sitting.label}, {number}"
    return found


def read_file(path: Path) -> list[Sitting]:
    by_scheduler: dict[str, Sitting] = {}
    for place, record in _lines(path):
        scheduler = _text(record, "tag", place)
        sitting = by_scheduler.setdefault(scheduler, Sitting(scheduler, path.stem, device=record.get("device")))
        sitting.requests.append(_request(record, place, 1.0, str(record.get("id", ""))))
    if not by_scheduler:
        raise usage_error(f"{path} holds no record; `sluice serve --records FILE` writes a line for each request")
    return list(by_scheduler.values())


def _lines(path: Path) -> Iterator[tuple[str, dict]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(text, 1):
                if line.strip():
                    yield f"{path}:{number}", _object(line, f"{path}:{number}")
    except OSError as error:
        raise usage_error(f"cannot read {path}: {error.strerror}") from error


def _read_folders(path: Path) -> list[Sitting]:
    """data/MODE/HASH/I.json of the published request scheduler."""
    folders = sorted({file.parent for file in path.rglob("0.json")})
    if not folders:
        raise usage_error(f"{path} holds no 0.json; name a file of `sluice serve --records`, or data/MODE/HASH")
    return [_read_folder(folder) for folder in folders]


def _read_folder(folder: Path) -> Sitting:
    place = folder.resolve()
    sitting = Sitting(place.parent.name, place.name)
    for file in sorted(folder.glob("*.json"), key=lambda one: (len(one.name), one.name)):
        if file.stem.isdigit():
            record = _object(file.read_text(encoding="utf-8", errors="replace"), str(file))
            # The published times are microseconds, and the tag is the request's.
            sitting.requests.append(_request(record, str(file), 1e-3, _text(record, "tag", str(file))))
    return sitting


def _object(text: str, place: str) -> dict:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise usage_error(f"{place}: not JSON: {error.msg}, column {error.colno}") from error
    if not isinstance(record, dict):
        raise usage_error(f"{place}: not a record of a request, but {json.dumps(record)[:40]}")
    return record


def _request(record: dict, place: str, unit: float, name: str) -> Request:
    """unit: ms of the points in time."""
    result = str(record.get("result", OK))
    limit = _number(record, "limit_cost_by_ms", place)
    if result == OK and limit <= 0:
        raise usage_error(f"{place}: 'limit_cost_by_ms' is {limit:g}, must be above 0")
    deadline = record.get("deadline_ms")
    return Request(
        id=name,
        model=_text(record, "model_name", place),
        arrived=_number(record, "recv_time", place) * unit,
        ended=_number(record, "finish_time", place) * unit,
        total=_number(record, "total_cost_by_ms", place),
        limit=limit,
        steps=_steps(record, place, unit),
        costs=_list(record, "child_model_execute_cost_by_ms", place),
        result=result,
        batch=int(_number(record, "batch", place)) if "batch" in record else 1,
        deadline=None if deadline is None else _number(record, "deadline_ms", place),
        train_wait=_number(record, "train_wait_ms", place) if "train_wait_ms" in record else 0.0,
    )


def _steps(record: dict, place: str, unit: float) -> list:
    key = "child_model_run_time"
    steps = []
    for pair in _list(record, key, place):
        if not isinstance(pair, list) or len(pair) != 2:
            raise usage_error(f"{place}: '{key}' holds {json.dumps(pair)[:40]}, must hold pairs of begin and end")
        begin, end = ({key: point} for point in pair)
        steps.append((_number(begin, key, place) * unit, _number(end, key, place) * unit))
    return steps


def _get(record: dict, key: str, place: str):
    if key not in record:
        raise usage_error(f"{place}: no '{key}'; a record has the keys of docs/reference/server-files.md")
    return record[key]


def _number(record: dict, key: str, place: str) -> float:
    value = _get(record, key, place)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise usage_error(f"{place}: '{key}' is {json.dumps(value)[:40]}, must be a number")
    return value


def _text(record: dict, key: str, place: str) -> str:
    value = _get(record, key, place)
    if not isinstance(value, str) or not value:
        raise usage_error(f"{place}: '{key}' is {json.dumps(value)[:40]}, must be a text")
    return value


def _list(record: dict, key: str, place: str) -> list:
    value = _get(record, key, place)
    if not isinstance(value, list):
        raise usage_error(f"{place}: '{key}' is {json.dumps(value)[:40]}, must be a list")
    return value
