"""A traced run as the table of `nsys stats -r kernexectrace`, in ns since its first client began.

On the simulated GPU in the GPU's time, as all figures of a run: real time divided by the scale, the
launch calls included.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sluice_tools.common.errors import run_error
from sluice_tools.common.progress import counted
from sluice_tools.trace import format as fmt
from sluice_tools.trace.client import Client, kernels_of
from sluice_tools.trace.reader import Run
from sluice_tools.trace.spill import Sorter, columns

HEADS = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),"
    "Kernel Dur (ns),Total Dur (ns),PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name"
)
ROW = np.dtype(
    [
        ("start", "<i8"),
        ("api", "<i8"),
        ("kernel_start", "<i8"),
        ("kernel", "<i8"),
        ("name", "<u8"),
        ("client", "<i4"),
        ("tid", "<u4"),
        ("entry", "<u2"),
    ]
)


def require_executions(run: Run) -> list[Client]:
    """The clients of which the trace knows what ran on the GPU."""
    if not run.clients:
        raise run_error(f"{run.folder} has no trace; `sluice run --trace` records one")
    able = [client for client in run.clients if client.exec_source != fmt.EXEC_NONE]
    if not able:
        why = next((client.note for client in run.clients if client.note), "nothing recorded them")
        raise run_error(f"the trace of {run.folder} lacks the times of execution: {why}")
    return able


def sorted_rows(clients: list[Client], zero_ns: int) -> Iterator[np.ndarray]:
    """ROW for each kernel, by time of issue. ROW["client"] is the client's place in the list."""
    rows = Sorter(ROW, "start", "client", "kernel_start")
    for number, client in enumerate(clients):
        for records in client.by_launch():
            rows.add(_rows(number, client, zero_ns, *kernels_of(records)))
    return counted("writing", len(rows), rows.chunks())


def _rows(number: int, client: Client, zero_ns: int, execs: np.ndarray, launches: np.ndarray) -> np.ndarray:
    def scaled(ns):
        return ns if client.time_scale == 1 else np.round(ns / client.time_scale).astype(np.int64)

    # Not the difference of two rounded times: a duration must not depend on when it was.
    return columns(
        ROW,
        len(execs),
        start=scaled(launches["begin_ns"] - zero_ns),
        api=scaled(launches["end_ns"] - launches["begin_ns"]),
        kernel_start=scaled(execs["begin_ns"] - zero_ns),
        kernel=scaled(execs["end_ns"] - execs["begin_ns"]),
        client=number,
        tid=launches["thread"],
        entry=launches["flags"],
        name=execs["name"],
    )


def csv_chunks(run: Run) -> Iterator[str]:
    """The lines, the heads first. No queue where the kernel began before its call returned, as nsys
    has it; the trace knows no grids and blocks, and one device."""
    clients = require_executions(run)
    yield HEADS + "\n"
    pids = np.array([client.pid for client in clients])
    for rows in sorted_rows(clients, run.begin_ns):
        issued = pd.Series(rows["start"] + rows["api"])
        queued = rows["kernel_start"] > issued
        yield pd.DataFrame(
            {
                "API Start": rows["start"],
                "API Dur": rows["api"],
                "Queue Start": issued.where(queued).astype("Int64"),
                "Queue Dur": (rows["kernel_start"] - issued).where(queued).astype("Int64"),
                "Kernel Start": rows["kernel_start"],
                "Kernel Dur": rows["kernel"],
                "Total Dur": rows["kernel_start"] + rows["kernel"] - rows["start"],
                "PID": pids[rows["client"]],
                "TID": rows["tid"],
                "DevId": 0,
                "API Function": _entries(clients, rows),
                "GridXYZ": "",
                "BlockXYZ": "",
                "Kernel Name": _names(clients, rows),
            }
        ).to_csv(header=False, index=False, lineterminator="\n")


def _entries(clients: list[Client], rows: np.ndarray) -> np.ndarray:
    entries = np.empty(len(rows), object)
    for number in np.unique(rows["client"]):
        mine = rows["client"] == number
        names = np.array([*clients[number].header.schema.entries, "?"])
        entries[mine] = names[np.minimum(rows["entry"][mine], len(names) - 1)]
    return entries


def _names(clients: list[Client], rows: np.ndarray) -> np.ndarray:
    names = np.empty(len(rows), object)
    for number in np.unique(rows["client"]):
        mine = rows["client"] == number
        names[mine] = clients[number].names.categorical(rows["name"][mine], "?")
    return names
