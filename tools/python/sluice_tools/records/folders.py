"""The folders of the published request scheduler: data/MODE/HASH/I.json, and data/catalogue.json."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from sluice_tools.common.errors import usage_error
from sluice_tools.records.reader import Sitting

_MASK = (1 << 64) - 1
_MODES = {"PARALLER": "PARALLEL"}  # whose folder has another name than the scheduler


@dataclass
class Written:
    folder: Path
    lambdas: dict  # by model, ms between arrivals
    count: int
    left_out: int  # requests without an answer
    skipped: bool  # the folder was complete already


def write(sitting: Sitting, out: Path, given: dict) -> Written:
    """given: lambdas by model that are not to be measured, or one for all by None."""
    answered = sitting.answered
    if not answered:
        raise usage_error(f"{sitting.name}: {sitting.scheduler} answered no request")
    lambdas = lambdas_of(sitting, given)
    name = folder_hash(len(answered), lambdas)
    folder = out / file_name(_MODES.get(sitting.scheduler, sitting.scheduler)) / name
    catalogue = _read_catalogue(out / "catalogue.json")
    left_out = len(sitting.requests) - len(answered)
    done = Written(folder, lambdas, len(answered), left_out, name in catalogue and _last(folder, answered).exists())
    if not done.skipped:
        folder.mkdir(parents=True, exist_ok=True)
        # The last file is written last: it marks a complete folder.
        for number, request in enumerate(answered):
            (folder / f"{number}.json").write_text(_dump(_record(request, number)))
        catalogue[name] = {"count": len(answered), **lambdas}
        _write_whole(out / "catalogue.json", _dump(catalogue))
    return done


def lambdas_of(sitting: Sitting, given: dict) -> dict:
    """Whole ms by model: first the named ones in their order, which the hash depends on, then the others."""
    named = [model for model in given if model is not None]
    for model in named:
        if model not in sitting.models and given[model]:
            raise usage_error(f"--lambda {model}={given[model]}: {sitting.name} has no request of {model}")
    rest = [model for model in sitting.models if model not in named]
    return {model: _lambda(sitting, model, given) for model in named + rest}


def _lambda(sitting: Sitting, model: str, given: dict) -> int:
    if model in given:
        return given[model]
    return given[None] if None in given else _measured(sitting, model)


def _measured(sitting: Sitting, model: str) -> int:
    """The mean time between arrivals."""
    arrived = [request.arrived for request in sitting.requests if request.model == model]
    if len(arrived) < 2:
        raise usage_error(f"{sitting.name}: one request of {model} has no interval; give --lambda {model}=MS")
    return round((max(arrived) - min(arrived)) / (len(arrived) - 1))


def folder_hash(count: int, lambdas: dict) -> str:
    """The published name of a folder: what libstdc++'s std::hash makes of the published text."""
    text = ",".join([f"count={count}", *(f"{model}={ms}" for model, ms in lambdas.items())])
    return str(murmur(text.encode()))


def murmur(data: bytes) -> int:
    """MurmurHash64A with the seed of libstdc++."""
    factor = 0xC6A4A7935BD1E995
    value = 0xC70F6907 ^ (len(data) * factor & _MASK)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * factor & _MASK
        word = (word ^ word >> 47) * factor & _MASK
        value = (value ^ word) * factor & _MASK
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * factor & _MASK
    value = (value ^ value >> 47) * factor & _MASK
    return value ^ value >> 47


def file_name(text: str) -> str:
    """Raises CommandError where it would lead out of its folder."""
    if "/" in text or text in ("", ".", ".."):
        raise usage_error(f"'{text}' cannot be the name of a file: the records name a model or scheduler so")
    return text


def _record(request, number: int) -> dict:
    """With the published keys and units: points in time are whole microseconds."""
    execute = sum(request.costs)
    return {
        "tag": request.id or str(number),
        "model_name": request.model,
        "recv_time": round(request.arrived * 1e3),
        "finish_time": round(request.ended * 1e3),
        "total_cost_by_ms": request.total,
        "child_model_execute_cost_by_ms": request.costs,
        "child_model_run_time": [[round(begin * 1e3), round(end * 1e3)] for begin, end in request.steps],
        "execute_cost": execute,
        "wait_cost": request.total - execute,
        "limit_cost_by_ms": request.limit,
    }


def _last(folder: Path, answered: list) -> Path:
    return folder / f"{len(answered) - 1}.json"


def _dump(content: dict) -> str:
    return json.dumps(content, indent=4, sort_keys=True) + "\n"


def _read_catalogue(file: Path) -> dict:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise usage_error(f"{file} is not JSON: {error}; move it away") from error
    if not isinstance(content, dict):
        raise usage_error(f"{file} is not a catalogue; move it away")
    return content


def _write_whole(file: Path, text: str) -> None:
    """Renamed into place: a reader never sees half a catalogue."""
    part = file.with_name(file.name + ".part")
    part.write_text(text)
    os.replace(part, file)
