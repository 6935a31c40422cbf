"""Counts of kernels by `sluice predict` next to those of ncu, for predictor.sh.

predictor_counts.py pick FOLDER N PACK           N packs of one program each, of different tasks
predictor_counts.py compare FOLDER SLUICE_PREDICT    reads FOLDER/*.ncu, the CSV of ncu
"""

import csv
import json
import lzma
import subprocess
import sys
from pathlib import Path

RECORDS = Path(__file__).resolve().parents[2] / "docs/data/programs/h100.jsonl.xz"
# Columns of counts.csv, and the metric of ncu with its value for one such count of a warp.
METRICS = {
    "fma": ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 32),
    "global_load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1),
    "global_store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 1),
    "shared_load_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 1),
    "shared_store_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", 1),
}


def pick(folder: Path, count: int, pack: Path) -> None:
    """Programs with one kernel and without cp.async, whose sectors ncu counts elsewhere; spread over the tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    header = ""
    tasks: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    with lzma.open(pack, "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            if "task" in entry and "source" in entry:
                usable = len(entry["kernels"]) == 1 and "cp_async" not in entry["source"]
                if usable and entry["task"] in tasks:
                    found.setdefault(entry["task"], (entry["id"], line))
            elif entry.get("kind") == "task":
                tasks[entry["task"]] = line
            elif not header:
                header = line
    chosen = list(found.items())[:: max(1, len(found) // count)][:count]
    for task, (program, line) in chosen:
        with lzma.open(folder / f"{program}.programs", "wt") as out:
            out.write(header + tasks[task] + line)


def of_ncu(file: Path) -> dict[str, float]:
    """Metric and value of the only launch; empty if ncu counted nothing."""
    rows = [
        row
        for row in csv.reader(file.read_text(errors="replace").splitlines())
        if "Metric Name" in row or len(row) > 10
    ]
    if len(rows) < 2:
        return {}
    name, value = rows[0].index("Metric Name"), rows[0].index("Metric Value")
    return {row[name]: float(row[value].replace(",", "")) for row in rows[1:]}


def compare(folder: Path, predict: str) -> None:
    inputs = [argument for pack in folder.glob("*.programs") for argument in ("-i", str(pack))]
    command = [predict, "make_dataset", *inputs, "-i", str(RECORDS), "--out", str(folder / "dataset")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(folder / "dataset/counts.csv") as lines:
        ours = {row["program"]: row for row in csv.DictReader(lines)}
    close = {column: [0, 0] for column in METRICS}
    print("program,count,predicted,ncu,ratio")
    for file in sorted(folder.glob("*.ncu")):
        row, theirs = ours[file.stem], of_ncu(file)
        if not theirs:
            print(f"{file.stem}: no counts: {(file.read_text().splitlines() or ['nothing was printed'])[-1]}")
            continue
        warps = float(row["blocks"]) * -(-float(row["threads"]) // 32)
        for column, (metric, scale) in METRICS.items():
            mine, measured = float(row[column]) * warps, theirs[metric] / scale
            if mine == measured == 0:
                continue
            print(f"{file.stem},{column},{mine:.0f},{measured:.0f},{mine / measured if measured else float('inf'):.3f}")
            close[column][1] += 1
            close[column][0] += abs(mine - measured) <= 0.1 * measured
    for column, (right, all_) in close.items():
        print(f"{column}: {right} of {all_} within 10 %")


if __name__ == "__main__":
    if sys.argv[1] == "pick":
        pick(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        compare(Path(sys.argv[2]), sys.argv[3])
