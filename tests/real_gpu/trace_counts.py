"""Counts the records in the traces of a run: python3 trace_counts.py RUN/trace

Reads the files only by docs/reference/trace-files.md and not with the reader of the tools, so that each checks the
other. Exits 1 if a process with execution times lacks more than 1 % of them.
"""

import sys
from pathlib import Path

import numpy as np

RECORD = np.dtype(
    [
        ("kind", "<u2"),
        ("flags", "<u2"),
        ("thread", "<u4"),
        ("begin", "<i8"),
        ("end", "<i8"),
        ("correlation", "<u8"),
        ("stream", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("name", "<u8"),
    ]
)
HEADER = 4096
LAUNCH, EXEC = 1, 2
# Later launches of a killed process may still be on the GPU, or in CUPTI.
TAIL_NS = 100_000_000


def text(header: bytes, begin: int, end: int) -> str:
    return header[begin:end].split(b"\0")[0].decode(errors="replace")


def number(header: bytes, begin: int) -> int:
    return int.from_bytes(header[begin : begin + 4], "little")


def microseconds(values: np.ndarray) -> str:
    return " / ".join(f"{v / 1e3:.1f}" for v in np.percentile(values, [0, 50, 99, 100]))


def show(file: Path) -> bool:
    header = file.open("rb").read(HEADER)
    whole = (file.stat().st_size - HEADER) // RECORD.itemsize
    records = np.memmap(file, RECORD, "r", HEADER, whole)
    launches, runs = (records[records["kind"] == kind] for kind in (LAUNCH, EXEC))
    source = ["none", "CUPTI", "the simulator"][number(header, 28)]
    print(
        f"{file.name}: {text(header, 128, 384)}\n  priority {number(header, 20)}, policy "
        f"{text(header, 64, 128)}, execution times: {source} {text(header, 384, 512)}"
    )
    graphs = launches[launches["a"] == 1]
    print(
        f"  {len(launches)} launches ({len(graphs)} of graphs), {len(runs)} executions, "
        f"{int((launches['b'] != 0).sum())} launches refused by the driver"
    )
    if number(header, 28) != 1 or not len(launches):
        return number(header, 28) == 2
    settled = launches[launches["end"] < launches["end"].max() - TAIL_NS]
    have = np.isin(settled["correlation"], runs["correlation"])
    share = have.mean() if len(settled) else 1.0
    print(
        f"  matched: {int(have.sum())} of {len(settled)} launches made until 100 ms before the last "
        f"({share:.2%}); executions without a launch: "
        f"{int((~np.isin(runs['correlation'], launches['correlation'])).sum())}"
    )
    order = np.argsort(launches["correlation"])
    place = np.searchsorted(launches["correlation"][order], runs["correlation"])
    mine = launches[order][np.minimum(place, len(launches) - 1)]
    known = mine["correlation"] == runs["correlation"]
    if known.any():
        wait = (runs["begin"] - mine["begin"])[known]
        print("  from the call to the GPU, us (min / p50 / p99 / max): " + microseconds(wait))
        print("  on the GPU, us (min / p50 / p99 / max): " + microseconds((runs["end"] - runs["begin"])[known]))
        print(f"  begun on the GPU before the call: {int((wait < 0).sum())}")
        pairs = {(int(a), int(b)) for a, b in zip(mine["stream"][known], runs["stream"][known])}
        print(f"  streams (of the launch, of its executions): {sorted(pairs)[:8]}")
    print(
        f"  from the last execution to the last call: "
        f"{(launches['end'].max() - runs['begin'].max()) / 1e6 if len(runs) else float('nan'):.1f} ms"
    )
    return share >= 0.99


def main() -> int:
    files = sorted(Path(sys.argv[1]).glob("*.sltrace"))
    if not files:
        print(f"trace_counts.py: no .sltrace in {sys.argv[1]}", file=sys.stderr)
        return 1
    return 0 if all([*map(show, files)]) else 1


if __name__ == "__main__":
    sys.exit(main())
