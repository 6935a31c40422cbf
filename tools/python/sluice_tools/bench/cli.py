"""The command line of `sluice bench`."""

import argparse
import csv
import subprocess
import sys
from pathlib import Path

from sluice_tools.bench import coverage, outputs, parked, published
from sluice_tools.bench.llm import cli as llm
from sluice_tools.bench.programs import cli as programs
from sluice_tools.bench.serve import cli as serve
from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, EXIT_USAGE, Parser
from sluice_tools.measure import table
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, gpus, need_mps
from sluice_tools.measure.rows import Rows, output_folder
from sluice_tools.measure.sitting import Sitting
from sluice_tools.measure.summary import summarize

_EXAMPLES = """\
examples:
  sluice bench published                          all parts, three repeats, on GPU 0
  sluice bench published --part python --repeats 1
  sluice bench published --out results/h200       goes on where an earlier call was stopped
  sluice bench checks --part coverage             does every launch pass the gate
  sluice bench programs --help                    its own options, as those of llm and serve

programs   programs that Sluice was not tuned on, against the same without Sluice
llm        a real LLM server next to training and offline generation
serve      the model server: its schedulers, training next to it, its cost
published  the pair of FasterRCNN models of docs/results/published-experiment.md
  published  under every policy
  large      the same with a best-effort job that fills the queue
  python     serve.py and train.py of the examples, time-sliced and under MPS
checks     is every launch gated, and every output right?
  coverage   does every launch pass the gate: TorchScript, AOTInductor, CUDA graphs, eager and compiled Python
  outputs    are outputs equal to the bit alone and together
  parked     what do calls of a critical process cost next to a parked one

Exit codes: 0; 1 a cell failed (the same command measures it again); 2 wrong usage, or packages missing.
"""
_OWN = {"programs": programs.main, "llm": llm.main, "serve": serve.main}  # commands with options of their own
_PARTS = {"published": tuple(published.SUBJECTS), "checks": ("coverage", "outputs", "parked")}
_CHECKS = {"coverage": coverage, "outputs": outputs, "parked": parked}
_MODES = ("time-sliced", "MPS")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="sluice bench", description="Measure what sharing a GPU costs and gives.", epilog=_EXAMPLES)
    parser.add_argument("bench", choices=(*_PARTS, *_OWN), metavar="published|checks|programs|llm|serve")
    parser.add_argument(
        "--part", choices=sum(_PARTS.values(), ()), action="append", help="only this part; may be given again"
    )
    parser.add_argument(
        "--mode",
        choices=_MODES,
        action="append",
        help="only this way of sharing (default: time-sliced for published, large and coverage, else both)",
    )
    parser.add_argument("--cell", action="append", metavar="CELL", help="only this cell, for instance alone or event:2")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of `published` (default 3)")
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="measured time of a cell (default 10, 4 for `checks`)"
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument(
        "--gpu",
        choices=("real", "sim"),
        default="real",
        help="sim runs the models on the CPU: to try the command, not to measure",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: results/BENCH")
    return parser


def _options():
    parser = _parser()
    options = parser.parse_args()
    if options.bench in _OWN:
        parser.error(f"{options.bench} comes first: sluice bench {options.bench} [OPTIONS]")
    own = _PARTS[options.bench]
    for part in options.part or ():
        if part not in own:
            parser.error(f"argument --part: {part} is not of {options.bench} ({', '.join(own)})")
    options.parts = options.part or own
    options.sluice = sluice_program()
    options.modes = options.mode or _MODES
    options.seconds = options.seconds or (10.0 if options.bench == "published" else 4.0)
    options.out = options.out or Path("results") / options.bench
    return options


def _published(options) -> int:
    rows = Rows(options.out / "published.csv")
    result = Sitting("sluice bench", rows, published.groups(options)).run()
    entries = summarize(rows.rows)
    text = "\n".join([table.markdown(entries), *table.notes(entries), *table.failures(rows.errors)]) + "\n"
    (options.out / "published.md").write_text(text)
    print(text, end="")
    print(f"rows: {rows.file}", file=sys.stderr)
    return result.exit_code


def _checks(options) -> int:
    failed = EXIT_FINE
    for part in options.parts:
        print(f"sluice bench: {part}", file=sys.stderr, flush=True)
        check = _CHECKS[part]
        try:
            rows = check.run(options)
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"sluice bench: {part}: {error}", file=sys.stderr)
            failed = EXIT_FAILED
            continue
        with (options.out / f"{part}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, check.FIELDS)
            writer.writeheader()
            writer.writerows(rows)
        lines = [tuple(str(row[name]) for name in check.FIELDS) for row in rows]
        text = f"### {part}\n" + table.as_markdown(check.FIELDS, lines) + "\n"
        (options.out / f"{part}.md").write_text(text)
        print(text)
        for failure in check.failures(rows):
            print(f"sluice bench: {failure}", file=sys.stderr)
            failed = EXIT_FAILED
    return failed


def _run(options) -> int:
    if options.gpu == "real":
        gpus(options.sluice, "real", options.device, ON_CPU)
    # Without --mode, the parts of which a half runs under MPS.
    if "MPS" in (options.mode or ()) or (not options.mode and {"python", "outputs", "parked"} & set(options.parts)):
        need_mps("--mode time-sliced")
    with output_folder(options.out):
        return _published(options) if options.bench == "published" else _checks(options)


def main() -> int:
    if (own := _OWN.get("".join(sys.argv[1:2]))) is not None:
        return own(sys.argv[2:])
    if sys.argv[1:2] == ["pairs"]:
        print("sluice bench: pairs is gone; use sluice bench programs --mixes pairs,graph", file=sys.stderr)
        return EXIT_USAGE
    options = _options()
    return run_command("bench", lambda: _run(options))
