"""The command line of `sluice bench pairs`."""

import argparse
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

from sluice_tools.bench.needs import need_gpu, need_mps
from sluice_tools.bench.pairs import plan
from sluice_tools.bench.pairs.picture import draw
from sluice_tools.bench.pairs.records import Records
from sluice_tools.bench.pairs.sitting import Sitting
from sluice_tools.bench.pairs.summary import goals, summary
from sluice_tools.bench.pairs.table import table
from sluice_tools.command import run_command
from sluice_tools.errors import Parser, usage_error

_EXAMPLES = """\
examples:
  sluice bench pairs                                   all of it, on GPU 0; takes over an hour
  sluice bench pairs --limit-s 540                     as much as fits; run it again to go on
  sluice bench pairs --pairs bert+bert --repeats 1 --modes time-sliced
  sluice bench pairs --policies device:200us,event:1 --jobs 300 --out results/short
  sluice bench pairs --table results/pairs             draws table and pictures anew, without a GPU

exit codes: 0: all went well, also where the limit ended it; 1: a cell failed (it is measured again
by the next call); 2: wrong usage
"""


def _list_of(known: tuple):
    def read(text: str) -> list:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return text.split(",")

    return read


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench pairs",
        description="Measure a critical PyTorch program beside a best-effort one under every "
                    "policy, time-sliced and under MPS. What is in the CSV of --out already is not "
                    "measured again.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=_list_of(plan.PAIRS), default=plan.PAIRS, metavar="P,...",
                        help=f"CRITICAL+BEST_EFFORT (default: all): {', '.join(plan.PAIRS)}")
    parser.add_argument("--policies", type=_list_of(tuple(plan.cell_names())), default=(),
                        metavar="P,...", help="only these cells and what they are held against "
                        f"(default: all): {', '.join(plan.cell_names())}")
    parser.add_argument("--modes", type=_list_of(plan.MODES), default=plan.MODES, metavar="M,...",
                        help="time-sliced, MPS (default: both)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N",
                        help=f"of {', '.join(plan.NAMED)}; the others once (default 3)")
    parser.add_argument("--jobs", type=int, default=500, metavar="N",
                        help="critical jobs of a cell (default 500)")
    parser.add_argument("--cell-s", type=float, default=20.0, metavar="S",
                        help="a cell ends after this time if it has fewer (default 20)")
    parser.add_argument("--limit-s", type=float, metavar="S",
                        help="begin no cell that would end later")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument("--gpu", choices=("real", "sim"), default="real",
                        help="sim runs tiny models on the CPU: to try the command, not to measure")
    parser.add_argument("--out", type=Path, default=Path("results/pairs"), metavar="DIR",
                        help="default: results/pairs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--table", type=Path, metavar="DIR",
                        help="measure nothing: table and pictures of DIR/pairs.csv")
    # For the tests: a folder with other critical.py and best_effort.py.
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    return parser


def _show(options, records: Records, pictures: bool):
    entries = summary(records.rows)
    text = table(records.rows, records.errors, entries)
    (records.folder / "pairs.md").write_text(text)
    if pictures and importlib.util.find_spec("matplotlib") is None:
        print("sluice bench: no pictures: this Python has no matplotlib (./x reports); "
              f"sluice bench pairs --table {records.folder} draws them later", file=sys.stderr)
    elif pictures:
        draw(entries, records.folder)
    if options.json:
        pairs = dict.fromkeys(entry["pair"] for entry in entries)
        print(json.dumps({"cells": entries, "goals": {pair: goals(pair, entries) for pair in pairs},
                          "errors": records.errors}, indent=2))
    else:
        print(text, end="")
    print(f"rows: {records.file}", file=sys.stderr)


def _run(options) -> int:
    if options.table:
        if not (options.table / "pairs.csv").is_file():
            raise usage_error(f"no pairs.csv in {options.table}")
        _show(options, Records(options.table), pictures=True)
        return 0
    options.sluice = os.environ["SLUICE_PROGRAM"]
    if options.gpu == "real":
        need_gpu(options.sluice, options.device)
        if "MPS" in options.modes:
            need_mps("--modes time-sliced")
    options.torch_device = f"cuda:{options.device}" if options.gpu == "real" else "cpu"
    options.out.mkdir(parents=True, exist_ok=True)
    records = Records(options.out)
    groups = plan.groups(options.pairs, options.modes, options.policies, options.repeats)
    sitting, left = Sitting(options, records, groups), None
    try:
        left = sitting.run()
    finally:
        # Pictures take seconds, and the GPU may be lent by the second.
        _show(options, records, pictures=left == 0)
    if left:
        print(f"sluice bench: {left} cells are left; the same command goes on", file=sys.stderr)
    return 1 if sitting.failed else 0


def main(arguments: list) -> int:
    options = _parser().parse_args(arguments)
    # The programs and the MPS daemon end with this one, as they do with Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run_command("bench", lambda: _run(options))
