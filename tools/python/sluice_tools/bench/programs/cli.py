"""The command line of `sluice bench programs`."""

import argparse
from pathlib import Path

from sluice_tools.bench.programs import plan
from sluice_tools.bench.programs.smoke import smoke
from sluice_tools.command import run_command
from sluice_tools.errors import Parser
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, gpus
from sluice_tools.measure.rows import output_folder


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="sluice bench programs")
    parser.add_argument("--smoke", action="store_true", help="only run each program alone for 1 s")
    parser.add_argument(
        "--gpu",
        choices=("real", "sim"),
        default="real",
        help="sim runs tiny models on the CPU: to try the command, not to measure",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/programs"), metavar="DIR", help="default: results/programs"
    )
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)  # for the tests: a stand-in
    return parser


def _run(options) -> int:
    if options.gpu == "real":
        gpus(sluice_program(), "real", 0, ON_CPU)
    options.names = list(plan.PROGRAMS)
    with output_folder(options.out):
        return smoke(options)


def main(arguments: list) -> int:
    options = _parser().parse_args(arguments)
    return run_command("bench", lambda: _run(options))
