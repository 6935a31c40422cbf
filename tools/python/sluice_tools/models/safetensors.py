"""The format safetensors: 8 bytes of length, a header in JSON, the bytes of the tensors. Holds no code.

https://github.com/huggingface/safetensors#format (2026-11-28)
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import torch

_LENGTH = 8
_LONGEST_HEADER = 100_000_000  # as the format says
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}


def is_one(path: Path) -> bool:
    """By content; a file with the suffix .safetensors is taken for one, so that its errors are those of the format."""
    with path.open("rb") as file:
        begin = file.read(_LENGTH + 1)
    length = int.from_bytes(begin[:_LENGTH], "little")
    return path.suffix == ".safetensors" or (begin[_LENGTH:] == b"{" and length <= _LONGEST_HEADER)


def read(path: Path) -> dict[str, torch.Tensor]:
    """Raises ValueError if the file is damaged, or has a type that torch lacks."""
    with path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, _LONGEST_HEADER):
            raise ValueError("it is shorter than its header says")
        header = _header(file.read(length))
        _require_whole(header, size - _LENGTH - length)
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(_LENGTH + length + begin)
            tensors[name] = _tensor(bytearray(file.read(end - begin)), _TYPES[entry["dtype"]], entry["shape"])
        return tensors


def _header(text: bytes) -> dict[str, dict]:
    def unique(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("its header has a name twice")
        return found

    try:
        header = json.loads(text, object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("its header is no JSON of this format") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    return header


def _require_whole(header: dict[str, dict], size: int) -> None:
    """Each byte belongs to one tensor, and each tensor has the bytes of its shape."""
    spans = [(0, 0), (size, size)]
    for name, entry in header.items():
        if (
            not isinstance(entry, dict)
            or not _are_counts(entry.get("shape"))
            or not _are_counts(entry.get("data_offsets"))
        ):
            raise ValueError(f"its header does not describe the tensor '{name}'")
        if entry.get("dtype") not in _TYPES:
            raise ValueError(f"the tensor '{name}' is of type {entry.get('dtype')}, which torch lacks")
        span = entry["data_offsets"]
        if len(span) != 2 or span[1] - span[0] != math.prod(entry["shape"]) * _TYPES[entry["dtype"]].itemsize:
            raise ValueError(f"the tensor '{name}' has not the bytes of its shape")
        spans.append(tuple(span))
    if any(one[1] != other[0] for one, other in pairwise(sorted(spans))):
        raise ValueError("its tensors are not the whole file")


def _are_counts(values) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _tensor(data: bytearray, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:
        return torch.frombuffer(data, dtype=torch.uint8).ne(0).reshape(shape)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)
