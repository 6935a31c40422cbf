"""The file a traced client writes (shm/trace_format.hpp): a header, then records of one size."""

import dataclasses
import re
from pathlib import Path

import numpy as np

from sluice_tools.errors import run_error

MAGIC = b"SLTRACE1"
VERSION = 1
HEADER_SIZE = 4096

HEADER = np.dtype({
    "names": ["magic", "version", "record_size", "pid", "priority", "simulated", "exec_source",
              "time_scale", "begin_monotonic_ns", "begin_realtime_ns", "lost", "policy", "command",
              "note", "device_uuid"],
    "formats": ["S8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f8", "<u8", "<u8", "<u8", "S64",
                "S256", "S128", "V16"],
    "offsets": [0, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 128, 384, 512],
    "itemsize": HEADER_SIZE,
})
RECORD = np.dtype([
    ("kind", "<u2"), ("flags", "<u2"), ("tid", "<u4"), ("begin_ns", "<i8"), ("end_ns", "<i8"),
    ("correlation", "<u8"), ("stream", "<u8"), ("a", "<u8"), ("b", "<u8"), ("name", "<u8")])
# A piece of a name; `flags` of RECORD is its number.
NAME = np.dtype({
    "names": ["kind", "part", "text", "length", "text_goes_on", "name"],
    "formats": ["<u2", "<u2", "V16", "<u8", "V24", "<u8"],
    "offsets": [0, 2, 8, 24, 32, 56], "itemsize": 64})
NAME_PIECE = 40

LAUNCH, EXEC, NAME_KIND, HOLD, JOB_BEGIN, JOB_END, CLOCK = 1, 2, 3, 4, 6, 7, 8
NO_JOB = -1  # kTraceNoJob
KINDS = (LAUNCH, EXEC, NAME_KIND, HOLD, JOB_BEGIN, JOB_END, CLOCK)

EXEC_NONE, EXEC_CUPTI, EXEC_SIMULATOR = 0, 1, 2
HOLDS = {1: "gate", 2: "event group", 3: "sync point"}
# The launch entries in the order of intercept/hooks.def.
ENTRIES = ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz",
           "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz", "cuGraphLaunch",
           "cuGraphLaunch_ptsz")


@dataclasses.dataclass(frozen=True)
class Header:
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
        raise run_error(f"cannot read {path}: {error.strerror}")
    if len(head) < HEADER_SIZE:
        raise run_error(f"{path} is no trace: {len(head)} bytes, shorter than its header of "
                        f"{HEADER_SIZE}; remove it to read the others")
    if head[:8] != MAGIC:
        # The digit tells versions of the header apart.
        other = re.fullmatch(rb"SLTRACE[0-9]", head[:8])
        what = f"has the layout {head[:8].decode()}, not {MAGIC.decode()}" if other else \
            f"is no trace: it begins with {head[:8]!r}, not {MAGIC!r}"
        raise run_error(f"{path} {what}; " + ("read it with the Sluice that wrote it" if other else
                                             "remove it to read the others"))
    fields = np.frombuffer(head, HEADER)[0]
    if fields["version"] != VERSION or fields["record_size"] != RECORD.itemsize:
        raise run_error(f"{path} is of version {fields['version']} with records of "
                        f"{fields['record_size']} bytes, not {VERSION} with {RECORD.itemsize}; read "
                        "it with the Sluice that wrote it")
    scale = float(fields["time_scale"])
    return Header(
        pid=int(fields["pid"]), priority=int(fields["priority"]),
        simulated=bool(fields["simulated"]), exec_source=int(fields["exec_source"]),
        time_scale=scale if np.isfinite(scale) and scale > 0 else 1.0,
        begin_monotonic_ns=int(fields["begin_monotonic_ns"]),
        begin_realtime_ns=int(fields["begin_realtime_ns"]), lost=int(fields["lost"]),
        policy=_text(bytes(fields["policy"])), command=_text(bytes(fields["command"])),
        note=_text(bytes(fields["note"])), device_uuid=bytes(fields["device_uuid"]))
