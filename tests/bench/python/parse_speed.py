"""Measures the time and the memory of `sluice parse` for a CSV of the given size, next to those of
pandas for reading the same file: parse_speed.py [GIGABYTES]. Removes all its files.

The commands run one after the other in processes of their own, with the file in the page cache."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).resolve().parents[3] / "tools" / "python"
sys.path.insert(0, str(PACKAGE))

from sluice_tools.trace.kernel_table import HEADS  # noqa: E402

REPEATS = 3
TABLE = "| | s | peak MiB |\n| --- | --- | --- |"
# As long as the names that nsys prints for a network.
NAMES = (
    '"void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, '
    'std::array<char *, (unsigned long)3>>(int, T2, T3)"',
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3",
    '"void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, (bool)1, (int)1>(T2, T2, const T1 *)"',
)


def make_csv(path: Path, size: int) -> int:
    """Writes kernels of 1 to 100 us from two processes. Returns the number of rows."""
    rng = np.random.default_rng(0)
    rows, at = 0, 0
    with path.open("w") as file:
        file.write(HEADS + "\n")
        while file.tell() < size:
            count = 100_000
            issue = at + np.cumsum(rng.integers(3_000, 20_000, count))
            at = int(issue[-1])
            api, wait, duration = (
                rng.integers(*span, count) for span in ((2_000, 9_000), (100, 2_000_000), (1_000, 100_000))
            )
            pid, name = rng.integers(11, 13, count), rng.integers(0, len(NAMES), count)
            file.writelines(
                f"{i},{a},{i + a},{w},{i + a + w},{d},{a + w + d},{p},{p},0,cudaLaunchKernel,"
                f" 148    1    1, 256    1    1,{NAMES[n]}\n"
                for i, a, w, d, p, n in zip(*(column.tolist() for column in (issue, api, wait, duration, pid, name)))
            )
            rows += count
    return rows


def measure(name: str, command: list[str], folder: Path, repeats: int = REPEATS) -> None:
    """Prints a table row: median and range of seconds, and peak memory."""
    seconds, memory = [], []
    for _ in range(repeats):
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, cwd=folder, env=os.environ | {"PYTHONPATH": str(PACKAGE)}
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds.append(time.monotonic() - began)
        memory.append(usage.ru_maxrss / 1024)
        if status:
            sys.exit(f"{name} failed")
    print(
        f"| {name} | {sorted(seconds)[repeats // 2]:.1f} [{min(seconds):.1f}-{max(seconds):.1f}] | {max(memory):.0f} |",
        flush=True,
    )


def main() -> None:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e9)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        table = folder / "run.csv"
        print(f"{make_csv(table, size)} rows, {table.stat().st_size / 1e9:.2f} GB of CSV\n\n{TABLE}", flush=True)
        (folder / "models_pid.json").write_text(json.dumps([["a", 11], ["b", 12]]))
        python, parse = sys.executable, [sys.executable, "-m", "sluice_tools.parse", "--out", "out"]
        measure("pandas.read_csv(FILE)", [python, "-c", f"import pandas; pandas.read_csv({str(table)!r})"], folder)
        measure(
            "pandas.read_csv(FILE, usecols=...), in chunks",
            [
                python,
                "-c",
                "import pandas\nfrom sluice_tools.parse.kernel_csv import KernelCsv\n"
                "from pathlib import Path\n"
                f"for chunk in KernelCsv(Path({str(table)!r})).chunks(): pass",
            ],
            folder,
        )
        measure("sluice parse --no-pictures -f FILE", [*parse, "--no-pictures", "-f", str(table)], folder)
        measure("sluice parse -f FILE", [*parse, "-f", str(table)], folder)


if __name__ == "__main__":
    main()
