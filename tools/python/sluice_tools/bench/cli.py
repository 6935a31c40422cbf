"""The command line of `sluice bench`."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from sluice_tools.bench import experiments, programs
from sluice_tools.bench.results import Results, table

_EXAMPLES = """\
examples:
  sluice bench published                          all parts, three repeats, on GPU 0
  sluice bench published --part python --repeats 1
  sluice bench published --out results/h200       goes on where an earlier call was stopped
"""

_PARTS = ("published", "large", "python")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice bench",
        description="Measure what sharing a GPU costs and gives. `published`: the published pair of "
                    "FasterRCNN models under every policy (part published), the same with a "
                    "low-priority job that fills the queue (large), and ResNet-50 serving beside "
                    "ResNet-50 training in unmodified Python, time-sliced and under MPS (python).",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", choices=("published",), metavar="published")
    parser.add_argument("--part", choices=_PARTS, action="append",
                        help="only this part; may be given again")
    parser.add_argument("--mode", choices=("time-sliced", "MPS"), action="append",
                        help="only this way of sharing (default: both for python, else time-sliced)")
    parser.add_argument("--cell", action="append", metavar="CELL",
                        help="only this cell, for instance 'B alone' or event:2")
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S",
                        help="measured time of a cell (default 10)")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument("--gpu", choices=("real", "sim"), default="real",
                        help="sim runs the models on the CPU: to try the command, not to measure")
    parser.add_argument("--out", type=Path, default=Path("results/published"), metavar="DIR")
    return parser


def _cells(options):
    """(part, mode, cell, repeat, job) in order: all cells before the next repeat, so that a drift
    of the machine shows as range and not as a difference between cells."""
    sluice = os.environ["SLUICE_PROGRAM"]
    examples = Path(__file__).resolve().parents[3] / "examples"
    parts = options.part or _PARTS
    for repeat in range(1, options.repeats + 1):
        for name, (part, changes) in zip(_PARTS, experiments.PARTS.items()):
            if name not in parts:
                continue
            for mode in options.mode or ("time-sliced",):
                for cell in experiments.CELLS:
                    content = experiments.experiment(cell, changes, mode == "MPS")
                    folder = options.out / f"{name}-{mode}" / cell.replace(" ", "-") / str(repeat)
                    flags = ["--gpu", options.gpu, "--device", str(options.device),
                             "--duration", str(options.seconds), "--export"]
                    yield part, mode, cell, repeat, (
                        lambda content=content, folder=folder, flags=flags:
                        experiments.run(sluice, folder, content, flags))
        if "python" not in parts:
            continue
        device = f"cuda:{options.device}" if options.gpu == "real" else "cpu"
        for mode in options.mode or ("time-sliced", "MPS"):
            for cell in programs.CELLS:
                yield "Python", mode, cell, repeat, (
                    lambda cell=cell, mode=mode:
                    programs.run(sluice, examples, cell, options.seconds, device, mode == "MPS"))


def main() -> int:
    options = _parser().parse_args()
    if options.mode and "MPS" in options.mode and not shutil.which("nvidia-cuda-mps-control"):
        print("sluice bench: nvidia-cuda-mps-control is in no folder of PATH", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "published.csv")
    failed = 0
    cells = [entry for entry in _cells(options) if not options.cell or entry[2] in options.cell]
    for index, (part, mode, cell, repeat, job) in enumerate(cells, 1):
        if results.has(part, mode, cell, repeat):
            continue
        print(f"[{index}/{len(cells)}] {part}, {mode}, {cell}, repeat {repeat}", file=sys.stderr,
              flush=True)
        try:
            rows = job()
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"sluice bench: {part}, {mode}, {cell}: {error}", file=sys.stderr)
            failed = 1
            continue
        key = {"part": part, "mode": mode, "cell": cell, "repeat": repeat}
        results.add([{**key, **row} for row in rows])
    (options.out / "published.md").write_text(table(results.rows))
    print(table(results.rows), end="")
    print(f"rows: {results.file}", file=sys.stderr)
    return failed
