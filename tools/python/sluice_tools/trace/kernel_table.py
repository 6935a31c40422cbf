"""A traced run as the table of `nsys stats -r kernexectrace`, in ns since its first client began.

On the simulated GPU in the GPU's time, as all figures of a run: real time divided by the scale, the
launch calls included.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sluice_tools.errors import run_error
from sluice_tools.trace import format as fmt
from sluice_tools.trace.reader import Client, Run

HEADS = ("API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),"
         "Kernel Dur (ns),Total Dur (ns),PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name")
_CHUNK_ROWS = 200_000


def require_executions(run: Run) -> list[Client]:
    """The clients of which the trace knows what ran on the GPU."""
    if not run.clients:
        raise run_error(f"{run.folder} has no trace; `sluice run --trace` records one")
    able = [client for client in run.clients if client.exec_source != fmt.EXEC_NONE]
    if not able:
        why = next((client.note for client in run.clients if client.note), "nothing recorded them")
        raise run_error(f"the trace of {run.folder} lacks the times of execution: {why}")
    return able


def client_table(client: Client, kernels: pd.DataFrame, zero_ns: int) -> pd.DataFrame:
    """The numbers of these kernels of a client, and their names."""

    def scaled(ns):
        ns = np.asarray(ns, np.int64)
        return ns if client.time_scale == 1 else np.round(ns / client.time_scale).astype(np.int64)

    # Not the difference of two rounded times: a duration must not depend on when it was.
    return pd.DataFrame({
        "API Start": scaled(kernels["issue_begin_ns"] - zero_ns),
        "API Dur": scaled(kernels["issue_end_ns"] - kernels["issue_begin_ns"]),
        "Kernel Start": scaled(kernels["begin_ns"] - zero_ns),
        "Kernel Dur": scaled(kernels["end_ns"] - kernels["begin_ns"]),
        "PID": np.int64(client.pid), "TID": kernels["tid"], "Entry": kernels["flags"],
        "Kernel Name": kernels["name"]})


def table(run: Run) -> pd.DataFrame:
    """Of all clients, by time of issue."""
    parts = [client_table(client, client.kernels(), run.begin_ns)
             for client in require_executions(run)]
    names = pd.api.types.union_categoricals([part["Kernel Name"] for part in parts])
    whole = pd.concat([part.drop(columns="Kernel Name") for part in parts], ignore_index=True)
    whole["Kernel Name"] = names
    return whole.sort_values("API Start", kind="stable", ignore_index=True)


def csv_chunks(run: Run) -> Iterator[str]:
    """The lines, the heads first. No queue where the kernel began before its call returned, as nsys
    has it; the trace knows no grids and blocks, and one device."""
    yield HEADS + "\n"
    whole = table(run)
    entries = np.array([*fmt.ENTRIES, "?"])
    for at in range(0, len(whole), _CHUNK_ROWS):
        rows = whole.iloc[at:at + _CHUNK_ROWS]
        issued = rows["API Start"] + rows["API Dur"]
        queued = rows["Kernel Start"] > issued
        yield pd.DataFrame({
            "API Start": rows["API Start"], "API Dur": rows["API Dur"],
            "Queue Start": issued.where(queued).astype("Int64"),
            "Queue Dur": (rows["Kernel Start"] - issued).where(queued).astype("Int64"),
            "Kernel Start": rows["Kernel Start"], "Kernel Dur": rows["Kernel Dur"],
            "Total Dur": rows["Kernel Start"] + rows["Kernel Dur"] - rows["API Start"],
            "PID": rows["PID"], "TID": rows["TID"], "DevId": 0,
            "API Function": entries[np.minimum(rows["Entry"], len(fmt.ENTRIES))],
            "GridXYZ": "", "BlockXYZ": "", "Kernel Name": rows["Kernel Name"].astype(object),
        }).to_csv(header=False, index=False, lineterminator="\n")
