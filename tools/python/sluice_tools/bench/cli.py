"""The command line of `sluice bench`."""

import argparse
import csv
import os
import subprocess
import sys
from pathlib import Path

from sluice_tools.bench import coverage, experiments, outputs, parked, programs
from sluice_tools.bench.needs import need_gpu, need_mps
from sluice_tools.bench.pairs import cli as pairs
from sluice_tools.bench.results import Results, markdown, table
from sluice_tools.command import run_command
from sluice_tools.errors import Parser

_EXAMPLES = """\
examples:
  sluice bench published                          all parts, three repeats, on GPU 0
  sluice bench published --part python --repeats 1
  sluice bench published --out results/h200       goes on where an earlier call was stopped
  sluice bench checks --part coverage             does every launch pass the gate
  sluice bench pairs --help                       critical beside best effort, every policy: it has its own options
"""

_PARTS = {"published": ("published", "large", "python"),
          "checks": ("coverage", "outputs", "parked")}
_CHECKS = {"coverage": coverage, "outputs": outputs, "parked": parked}
_MODES = ("time-sliced", "MPS")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench",
        description="Measure what sharing a GPU costs and gives. `published`: the published pair of "
                    "FasterRCNN models under every policy (part published), the same with a "
                    "low-priority job that fills the queue (large), and ResNet-50 serving beside "
                    "ResNet-50 training in unmodified Python, time-sliced and under MPS (python). "
                    "`checks`: whether every launch of TorchScript, AOTInductor, CUDA graphs, eager "
                    "and compiled Python passes the gate (coverage), whether outputs are bitwise "
                    "equal alone and together (outputs), and what a critical process's calls cost "
                    "beside a parked one (parked). `pairs`: a critical program beside a "
                    "best-effort one under every policy.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", choices=(*_PARTS, "pairs"), metavar="published|checks|pairs")
    parser.add_argument("--part", choices=sum(_PARTS.values(), ()), action="append",
                        help="only this part; may be given again")
    parser.add_argument("--mode", choices=_MODES, action="append",
                        help="only this way of sharing (default: time-sliced for published, large "
                             "and coverage, else both)")
    parser.add_argument("--cell", action="append", metavar="CELL",
                        help="only this cell, for instance 'B alone' or event:2")
    parser.add_argument("--repeats", type=int, default=3, metavar="N",
                        help="of `published` (default 3)")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="measured time of a cell (default 10, 4 for `checks`)")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument("--gpu", choices=("real", "sim"), default="real",
                        help="sim runs the models on the CPU: to try the command, not to measure")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/BENCH")
    return parser


def _options():
    parser = _parser()
    options = parser.parse_args()
    if options.bench == "pairs":
        parser.error("pairs comes first: sluice bench pairs [OPTIONS]")
    own = _PARTS[options.bench]
    for part in options.part or ():
        if part not in own:
            parser.error(f"argument --part: {part} is not of {options.bench} ({', '.join(own)})")
    options.parts = options.part or own
    options.sluice = os.environ["SLUICE_PROGRAM"]
    options.modes = options.mode or _MODES
    options.seconds = options.seconds or (10.0 if options.bench == "published" else 4.0)
    options.out = options.out or Path("results") / options.bench
    return options


def _cells(options):
    """(part, mode, cell, repeat, job) in order: all cells before the next repeat, so that a drift
    of the machine shows as range and not as a difference between cells."""
    examples = Path(__file__).resolve().parents[3] / "examples"
    for repeat in range(1, options.repeats + 1):
        for name, (part, changes) in zip(_PARTS["published"], experiments.PARTS.items()):
            if name not in options.parts:
                continue
            for mode in options.mode or ("time-sliced",):
                for cell in experiments.CELLS:
                    content = experiments.experiment(cell, changes, mode == "MPS")
                    folder = options.out / f"{name}-{mode}" / cell.replace(" ", "-") / str(repeat)
                    yield part, mode, cell, repeat, (
                        lambda content=content, folder=folder:
                        experiments.run(options, folder, content))
        if "python" not in options.parts:
            continue
        device = f"cuda:{options.device}" if options.gpu == "real" else "cpu"
        for mode in options.modes:
            for cell in programs.CELLS:
                yield "Python", mode, cell, repeat, (
                    lambda cell=cell, mode=mode:
                    programs.run(options.sluice, examples, cell, options.seconds, device,
                                 mode == "MPS"))


def _published(options) -> int:
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


def _checks(options) -> int:
    failed = 0
    for part in options.parts:
        print(f"[{part}]", file=sys.stderr, flush=True)
        check = _CHECKS[part]
        try:
            rows = check.run(options)
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"sluice bench: {part}: {error}", file=sys.stderr)
            failed = 1
            continue
        with (options.out / f"{part}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, check.FIELDS)
            writer.writeheader()
            writer.writerows(rows)
        text = f"### {part}\n" + markdown(check.FIELDS, rows)
        (options.out / f"{part}.md").write_text(text)
        print(text)
        for failure in check.failures(rows):
            print(f"sluice bench: {failure}", file=sys.stderr)
            failed = 1
    return failed


def _run(options) -> int:
    if options.gpu == "real":
        need_gpu(options.sluice, options.device)
    # Without --mode, the parts of which a half runs under MPS.
    if "MPS" in (options.mode or ()) or (not options.mode and {"python", "outputs", "parked"} &
                                         set(options.parts)):
        need_mps("--mode time-sliced")
    options.out.mkdir(parents=True, exist_ok=True)
    return _published(options) if options.bench == "published" else _checks(options)


def main() -> int:
    if sys.argv[1:2] == ["pairs"]:
        return pairs.main(sys.argv[2:])
    options = _options()
    return run_command("bench", lambda: _run(options))
