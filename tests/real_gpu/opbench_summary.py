#!/usr/bin/env python3
"""What tests/real_gpu/opbench.sh measured: counts by device, times, and how well labels repeat.

usage: opbench_summary.py FOLDER      needs the standard library only
"""

import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def good(records: list[dict]) -> dict[tuple[str, str], float]:
    """The median seconds by program and device."""
    return {
        (record["sluice"]["program"], record["sluice"]["device"]): statistics.median(record["result"][0])
        for record in records
        if record["result"][1] == 0 and not record["sluice"]["disturbed"]
    }


def ratios(first: dict, second: dict) -> list[float]:
    return sorted(second[key] / first[key] for key in first.keys() & second.keys())


def spread_line(name: str, values: list[float]) -> str:
    if not values:
        return f"{name}: no program in both"
    within = sum(abs(value - 1) <= 0.02 for value in values) / len(values)
    ends = f"{values[len(values) // 20]:.3f} to {values[-1 - len(values) // 20]:.3f}"
    middle = f"median {statistics.median(values):.3f}, {ends} (5 to 95 %), {within:.0%} within 2 %"
    return f"{name}: {len(values)} programs, {middle}"


def main() -> int:
    folder = Path(sys.argv[1])
    records = read(folder / "records.jsonl")
    by_device = defaultdict(list)
    for record in records:
        by_device[record["sluice"]["device"]].append(record)
    for device, group in by_device.items():
        errors = Counter(record["result"][1] for record in group if record["result"][1])
        disturbed = sum(record["sluice"]["disturbed"] for record in group)
        times = sorted(time for (_, name), time in good(group).items() if name == device)
        text = f"{device}: {len(group)} records, {len(times)} good, {disturbed} disturbed, errors {dict(errors)}"
        if times:
            text += (
                f", {times[0] * 1e6:.1f} us to {times[-1] * 1e3:.1f} ms, median {statistics.median(times) * 1e6:.1f} us"
            )
        print(text)
    labels = good(records)
    whole = min((name for _, name in labels), key=len, default="")
    for device in by_device:
        if device != whole:
            pairs = [
                labels[program, device] / time
                for (program, name), time in labels.items()
                if name == whole and (program, device) in labels
            ]
            if pairs:
                print(f"{device} over {whole}: median {statistics.median(pairs):.2f} of {len(pairs)} programs")
    spreads = [record["sluice"]["spread"] for record in records if record["result"][1] == 0]
    if spreads:
        print(
            f"spread of the repeats: median {statistics.median(spreads):.4f}, "
            f"above 1.05 in {sum(spread > 1.05 for spread in spreads)} of {len(spreads)}"
        )
    print(spread_line("measured again over first", ratios(labels, good(read(folder / "again.jsonl")))))
    beside = read(folder / "beside.jsonl")
    disturbed = sum(record["sluice"]["disturbed"] for record in beside)
    print(f"next to a critical program: {len(beside)} records, {disturbed} disturbed")
    print(spread_line("good ones of them over first", ratios(labels, good(beside))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
