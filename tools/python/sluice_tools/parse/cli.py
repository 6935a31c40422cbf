"""The command line of `sluice parse`."""

import argparse
import json
import sys
from pathlib import Path

from sluice_tools.common.command import need_packages, run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error

_EXAMPLES = """\
examples:
  nsys stats -r kernexectrace --format csv -o run report.nsys-rep
  sluice parse -f run_kernexectrace.csv -p models_pid.json
  sluice parse results                      the folder of `sluice run --trace`

Exit codes: 0; 1 nothing to split; 2 wrong usage, broken files, or packages missing.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice parse",
        description="Split a kernel trace by model: a table per model, counts and medians, queue "
        "depth and delays, completion times, as CSV and as pictures (docs/guide/traces.md).",
        epilog=_EXAMPLES,
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="folder of a run with a trace, in place of -f")
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        metavar="CSV",
        help="what `nsys stats -r kernexectrace --format csv` or `sluice trace --csv` wrote; or the folder of a run",
    )
    parser.add_argument(
        "-p",
        "--pids",
        type=Path,
        metavar="JSON",
        help="models_pid.json (default: the one next to the CSV, else in this folder)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the folder NAME_YYYYmmddHHMMSS is made (default: in RUN; of a CSV: here)",
    )
    parser.add_argument("--no-pictures", action="store_true", help="tables only")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for scripts")
    return parser


def _print_table(result: dict) -> None:
    mark = ", simulated" if result["simulated"] else ""
    print(f"{'MODEL':<36} {'KERNELS':>9} {'MEDIAN us':>10} {'DELAY p50':>10} {'p99 us':>10} {'DEPTH':>7} {'max':>6}")
    for m in result["models"]:
        print(
            f"{m['model'] + '_' + str(m['pid']):<36} {m['kernels']:>9} "
            f"{m['median_kernel_ns'] / 1e3:>10.2f} {m['queue_delay_p50_ns'] / 1e3:>10.1f} "
            f"{m['queue_delay_p99_ns'] / 1e3:>10.1f} {m['queue_depth_mean']:>7.1f} "
            f"{m['queue_depth_max']:>6}"
        )
    print(f"written{mark}: {result['folder']}")


def _warn(text: str) -> None:
    print(f"sluice parse: {text}", file=sys.stderr)


def _run(options) -> int:
    if (options.run is None) == (options.file is None):
        raise usage_error("name one thing to parse: -f CSV, or the folder of a run")
    need_packages("parse", "numpy", "pandas", "pyarrow", *([] if options.no_pictures else ["matplotlib"]))
    from sluice_tools.parse.outputs import parse

    path = options.file or options.run
    out = options.out or (path if path.is_dir() else Path())
    result = parse(path, options.pids, out, not options.no_pictures)
    for pid, count in result["unknown_pids"].items():
        kernels = f"{count} kernels are" if count > 1 else "1 kernel is"
        _warn(f"pid {pid} is not in models_pid.json: its {kernels} under unknown_{pid}")
    if result["rows_left_out"]:
        many = result["rows_left_out"] > 1
        _warn(f"{result['rows_left_out']} row{'s' * many} without a time or a pid {'are' if many else 'is'} left out")
    if options.json:
        print(json.dumps(result))
    else:
        _print_table(result)
    return EXIT_FINE


def main(args: list[str] | None = None) -> int:
    options = _parser().parse_args(args)
    return run_command("parse", lambda: _run(options))
