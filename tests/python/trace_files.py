"""Makes .sltrace files, as a traced client would leave them, and logs of the simulated GPU."""

import struct
from pathlib import Path

import numpy as np
from sluice_tools.trace import format as fmt

# As shm/trace_format.hpp has it; test_trace_golden.py reads files that a real client wrote.
SCHEMA_TEXT = (
    "header magic:S8 version:u4 record_size:u4 pid:u4 priority:u4 simulated:u4 exec_source:u4 "
    "time_scale:f8 begin_monotonic_ns:u8 begin_realtime_ns:u8 lost:u8 policy:S64 command:S256 "
    "note:S128 device_uuid:V16\n"
    "record kind:u2 flags:u2 thread:u4 begin_ns:i8 end_ns:i8 correlation:u8 stream:u8 a:u8 b:u8 "
    "name:u8\n"
    "name kind:u2 part:u2 thread:u4 text:V16 length:u8 text_goes_on:V24 name:u8\n"
    "entries cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz "
    "cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuGraphLaunch cuGraphLaunch_ptsz\n"
)
SCHEMA = fmt.Schema.parse(SCHEMA_TEXT)

BEGIN_NS = 1_000_000_000_000  # CLOCK_MONOTONIC of the header
REALTIME_NS = 1_795_000_000_000_000_000


def header_page(header: np.ndarray) -> bytes:
    page = header.tobytes().ljust(fmt.SCHEMA_OFFSET, b"\0") + SCHEMA_TEXT.encode()
    return page.ljust(fmt.HEADER_SIZE, b"\0")


class TraceFile:
    """Records in the order in which they are asked for. Times are ns after BEGIN_NS."""

    def __init__(self, pid: int, priority: int = 0, policy: str = "gate", **header):
        self.pid = pid
        fields = {"magic": fmt.MAGIC, "version": 2, "record_size": SCHEMA.record.itemsize, "pid": pid}
        fields |= {"priority": priority, "policy": policy.encode(), "command": f"program-{pid} --flag".encode()}
        fields |= {"exec_source": fmt.EXEC_CUPTI, "time_scale": 1.0, "device_uuid": b"\1" * 16}
        fields |= {"begin_monotonic_ns": BEGIN_NS, "begin_realtime_ns": REALTIME_NS} | header
        self.header = np.zeros(1, SCHEMA.header)
        for name, value in fields.items():
            self.header[name] = value if name != "device_uuid" else np.void(value)
        self.records: list[bytes] = []
        self.names: dict[str, int] = {}
        self.correlation = 0

    def record(
        self,
        kind: int,
        flags: int = 0,
        tid: int = 0,
        begin: int = 0,
        end: int = 0,
        correlation: int = 0,
        stream: int = 0,
        a: int = 0,
        b: int = 0,
        name: int = 0,
    ):
        self.records.append(
            struct.pack(
                "<HHIqqQQQQQ",
                kind,
                flags,
                tid or self.pid,
                BEGIN_NS + begin,
                BEGIN_NS + end,
                correlation,
                stream,
                a,
                b,
                name,
            )
        )
        return self

    def hole(self, count: int = 1):
        """Records that were reserved and never written."""
        self.records.append(bytes(SCHEMA.record.itemsize * count))
        return self

    def name(self, text: str, number: int | None = None) -> int:
        if text in self.names:
            return self.names[text]
        number = self.names[text] = number or len(self.names) + 1
        data = text.encode()[:1000]
        for part in range(-(-len(data) // SCHEMA.name_piece)):
            piece = data[part * SCHEMA.name_piece :][: SCHEMA.name_piece].ljust(SCHEMA.name_piece, b"\0")
            self.records.append(
                struct.pack("<HHI16sQ24sQ", fmt.NAME_KIND, part, self.pid, piece[:16], len(data), piece[16:], number)
            )
        return number

    def launch(
        self,
        begin: int,
        end: int,
        name: str | None = "kernel",
        stream: int = 7,
        graph: bool = False,
        result: int = 0,
        tid: int = 0,
        entry: int = 0,
    ) -> int:
        """Returns the correlation."""
        self.correlation += 1
        number = 0 if graph or name is None else self.name(name)
        self.record(
            fmt.LAUNCH, 6 if graph else entry, tid, begin, end, self.correlation, stream, int(graph), result, number
        )
        return self.correlation

    def exec(self, begin: int, end: int, correlation: int, name: str = "kernel", stream: int = 7, node: int = 0):
        return self.record(fmt.EXEC, 0, 0, begin, end, correlation, stream, node, 0, self.name(name))

    def kernel(
        self,
        issue: int,
        begin: int,
        end: int,
        name: str = "kernel",
        stream: int = 7,
        tid: int = 0,
        issue_dur: int = 5_000,
    ) -> int:
        """A launch and its execution."""
        correlation = self.launch(issue, issue + issue_dur, name, stream, tid=tid)
        self.exec(begin, end, correlation, name, stream)
        return correlation

    def hold(self, begin: int, end: int, correlation: int, why: int = 1, holder: int = 0, gate: int = 1, tid: int = 0):
        return self.record(fmt.HOLD, why, tid, begin, end, correlation, 0, gate, holder)

    def step(self, begin: int, end: int, kind: int):
        return self.record(fmt.STEP, 0, 0, begin, end, a=kind)

    def window(self, begin: int, end: int, job: int):
        return self.record(fmt.WINDOW, 0, 0, begin, end, job)

    def job(self, begin: int, end: int | None, number: int, flags: int = 1, began: int = 0):
        """end None: the process died in it. began: after gates were closed for it; -1: it did not
        come."""
        self.record(fmt.JOB_BEGIN, flags, 0, begin, begin, number)
        if end is not None:
            self.record(fmt.JOB_END, 0, 0, begin, end, number, a=BEGIN_NS + began if began > 0 else began % 2**64)
        return self

    def clock(self, at: int, step: int = 0):
        """A look at both clocks; `step`: by how much the real one has been set since the header."""
        self.records.append(
            struct.pack("<HHIqqQQQQQ", fmt.CLOCK, 0, self.pid, BEGIN_NS + at, REALTIME_NS + at + step, 0, 0, 0, 0, 0)
        )
        return self

    def write(self, folder: Path, tail: int = 10, cut: int = 0) -> Path:
        """tail: records of zeros at the end; cut: bytes missing there."""
        folder.mkdir(parents=True, exist_ok=True)
        data = header_page(self.header) + b"".join(self.records)
        data += bytes(tail * SCHEMA.record.itemsize)
        path = folder / f"{self.pid}.sltrace"
        path.write_bytes(data[: len(data) - cut])
        return path


def log_line(kind: str, pid: int, stream: int, sequence: int, begin: int, end: int, name: str = "-") -> str:
    """A line of the simulated GPU's log; times as in TraceFile."""
    return f"{kind} {pid} {stream} {sequence} {BEGIN_NS + begin} {BEGIN_NS + end} {name}\n"
