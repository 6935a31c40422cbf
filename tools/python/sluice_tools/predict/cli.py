"""The command line of `sluice predict report`."""

import argparse
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser
from sluice_tools.measure.answer_page import write
from sluice_tools.predict import page, reader

_EXAMPLES = """\
examples:
  sluice predict report predictor
  sluice predict report predictor/transformer predictor/xgboost -o compared.html

Exit code 0; 1 the page could not be written; 2 wrong usage, or no predictions.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice predict report",
        epilog=_EXAMPLES,
        description="Make one HTML page: predicted against measured, error by operator, error over the training.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="where train or run wrote predictions.csv")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the page (default: predict.html in the first)")
    return parser


def _report(options) -> int:
    found = [reader.read(folder) for folder in options.folders]
    reader.unique_labels(found, options.folders)
    out = options.out or options.folders[0] / "predict.html"
    write(out, page.render(found))
    print(f"page: {out}")
    return EXIT_FINE


def main(args: list[str] | None = None) -> int:
    options = _parser().parse_args(args)
    return run_command("predict report", lambda: _report(options))
