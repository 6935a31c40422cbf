"""The command line of `sluice opbench report`."""

import argparse
import json
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error
from sluice_tools.measure.answer_page import write
from sluice_tools.opbench import page, pairs, records
from sluice_tools.predict import reader

_EXAMPLES = """\
examples:
  sluice opbench report h200.jsonl -o h200.html
  sluice opbench report data            the folder of opbench run: tuning curves too
  sluice opbench report h200.jsonl pairs.jsonl      pairs: a table of slowdowns
  sluice opbench report data predictor/transformer  predicted against measured, error by operator
  sluice opbench report h200.jsonl --json
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice opbench report",
        epilog=_EXAMPLES,
        description="Records of `sluice opbench` as a table and one HTML page (docs/reference/opbench.md).",
    )
    text = "records; folders with records, or with the predictions.csv of sluice predict"
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help=text)
    parser.add_argument("-o", "--out", type=Path, default=Path("opbench.html"), metavar="FILE", help="the page")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead, and write no page")
    return parser


def _report(options) -> int:
    folders = [path for path in options.paths if (path / "predictions.csv").exists()]
    predicted = [reader.read(folder) for folder in folders]
    reader.unique_labels(predicted, folders)
    files = records.find([path for path in options.paths if path not in folders or records.inside(path)])
    if not files:
        raise usage_error("no records, only predictions: `sluice predict report` makes a page of these")
    paired = [one for path in files if pairs.is_pairs(path) for one in pairs.read(path)]
    found = [one for path in files if not pairs.is_pairs(path) for one in records.read(path)]
    latencies = records.latencies(options.paths)
    if options.json:
        answer = {"devices": records.rows(found), "turning_points": records.turning_points(found)}
        answer |= {"pairs": pairs.rows(paired), "latencies": latencies}
        print(json.dumps({**answer, "predictions": {one.label: one.mape() for one in predicted}}))
        return EXIT_FINE
    write(options.out, page.render(found, paired, latencies, predicted))
    for row in records.rows(found):
        times = "" if row["median_us"] is None else f", median {row['median_us']:.1f} us"
        print(f"{row['device']}: {row['records']} records, {row['good']} good{times}")
    for row in pairs.rows(paired):
        gain = "" if row["median_speedup"] is None else f", median speed-up {row['median_speedup']:.2f}"
        print(f"{row['device']}, {row['kind']}: {row['pairs']} good pairs{gain}")
    for one in predicted:
        print(f"{one.label}: {len(one.names)} predictions, MAPE {one.mape():.1%}")
    print(f"page: {options.out}")
    return EXIT_FINE


def main(argv: list[str] | None = None) -> int:
    return run_command("opbench report", lambda: _report(_parser().parse_args(argv)))
