"""The file a traced client writes (shm/trace_format.hpp): a header page, then records of one size.

The page describes the header, the records and the launch entries in text, so nothing of them is
typed here again. What the numbers of a record mean is in the enums of trace_format.hpp.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np

from sluice_tools.common.errors import run_error

MAGIC = b"SLTRACE2"
HEADER_SIZE = 4096
SCHEMA_OFFSET = 1024

LAUNCH, EXEC, NAME_KIND, HOLD, JOB_BEGIN, JOB_END, CLOCK, STEP, WINDOW = 1, 2, 3, 4, 6, 7, 8, 9, 10
NO_JOB = -1  # kTraceNoJob
KINDS = (LAUNCH, EXEC, NAME_KIND, HOLD, JOB_BEGIN, JOB_END, CLOCK, STEP, WINDOW)

EXEC_NONE, EXEC_CUPTI, EXEC_SIMULATOR = 0, 1, 2
HOLDS = {1: "gate", 2: "event group", 3: "sync point", 4: "run ahead"}


# The fields that a reader needs, and the kinds of numpy that they may have. A file may have more.
_WHOLE, _REAL, _BYTES = "iu", "f", "SV"
_NEEDED = {
    "header": dict.fromkeys(("record_size", "pid", "priority", "simulated", "exec_source"), _WHOLE)
    | dict.fromkeys(("begin_monotonic_ns", "begin_realtime_ns", "lost"), _WHOLE)
    | {"time_scale": _REAL}
    | dict.fromkeys(("policy", "command", "note", "device_uuid"), _BYTES),
    "record": dict.fromkeys(
        ("kind", "flags", "thread", "begin_ns", "end_ns", "correlation", "stream", "a", "b", "name"), _WHOLE
    ),
    "name": dict.fromkeys(("kind", "part", "length", "name"), _WHOLE) | dict.fromkeys(("text", "text_goes_on"), _BYTES),
}


@dataclasses.dataclass(frozen=True)
class Schema:
    """What a header page says of itself and of the file behind it."""

    header: np.dtype
    record: np.dtype
    name: np.dtype  # a record that holds a piece of a name; as large as `record`
    entries: tuple[str, ...]  # the driver entry of a launch, by its flags

    @classmethod
    def parse(cls, text: str) -> "Schema":
        """Raises ValueError where the text describes no such file."""
        lines = dict(line.split(" ", 1) for line in text.splitlines())
        try:
            dtypes = {key: cls._dtype(lines[key]) for key in _NEEDED}
            entries = tuple(lines["entries"].split())
        except (LookupError, TypeError, SyntaxError) as error:
            raise ValueError(f"no description of {error}") from None
        for key, needed in _NEEDED.items():
            for name, kinds in needed.items():
                if name not in (dtypes[key].names or ()) or dtypes[key][name].kind not in kinds:
                    raise ValueError(f"no {name} in its {key}")
        if dtypes["record"].itemsize != dtypes["name"].itemsize:
            raise ValueError("records and names of different sizes")
        return cls(entries=entries, **dtypes)

    @staticmethod
    def _dtype(text: str) -> np.dtype:
        fields = [field.rsplit(":", 1) for field in text.split()]
        return np.dtype([(name, code if code[0] in "SV" else "<" + code) for name, code in fields])

    @property
    def name_piece(self) -> int:
        """Bytes of a name in one record."""
        return self.name["text"].itemsize + self.name["text_goes_on"].itemsize


@dataclasses.dataclass(frozen=True)
class Header:
    schema: Schema
    pid: int
    priority: int
    simulated: bool
    exec_source: int
    time_scale: float
    begin_monotonic_ns: int
    begin_realtime_ns: int
    lost: int
    policy: str
    command: str
    note: str
    device_uuid: bytes


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def read_header(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_SIZE)
    except OSError as error:
        raise run_error(f"cannot read {path}: {error.strerror}") from error
    if len(head) < HEADER_SIZE:
        raise run_error(
            f"{path} is no trace: {len(head)} bytes, shorter than its header of "
            f"{HEADER_SIZE}; remove it to read the others"
        )
    if head[:8] != MAGIC:
        # The digit tells versions of the page apart.
        other = re.fullmatch(rb"SLTRACE[0-9]", head[:8])
        what = (
            f"has the layout {head[:8].decode()}, not {MAGIC.decode()}"
            if other
            else f"is no trace: it begins with {head[:8]!r}, not {MAGIC!r}"
        )
        raise run_error(
            f"{path} {what}; " + ("read it with the Sluice that wrote it" if other else "remove it to read the others")
        )
    try:
        schema = Schema.parse(_text(head[SCHEMA_OFFSET:]))
        fields = np.frombuffer(head, schema.header, 1)[0]
        if fields["record_size"] != schema.record.itemsize:
            raise ValueError(f"records of {fields['record_size']} bytes, described as of {schema.record.itemsize}")
    except ValueError as error:
        raise run_error(f"{path} does not describe its records ({error}); remove it to read the others") from None
    scale = float(fields["time_scale"])
    return Header(
        schema=schema,
        pid=int(fields["pid"]),
        priority=int(fields["priority"]),
        simulated=bool(fields["simulated"]),
        exec_source=int(fields["exec_source"]),
        time_scale=scale if np.isfinite(scale) and scale > 0 else 1.0,
        begin_monotonic_ns=int(fields["begin_monotonic_ns"]),
        begin_realtime_ns=int(fields["begin_realtime_ns"]),
        lost=int(fields["lost"]),
        policy=_text(bytes(fields["policy"])),
        command=_text(bytes(fields["command"])),
        note=_text(bytes(fields["note"])),
        device_uuid=bytes(fields["device_uuid"]),
    )
