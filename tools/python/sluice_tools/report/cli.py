"""The command line of `sluice report`."""

import argparse
from pathlib import Path

from sluice_tools.common.command import need_packages, run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, run_error, usage_error
from sluice_tools.measure.answer_page import write
from sluice_tools.report import answer, page, runs, summary, targets

_EXAMPLES = """\
examples:
  sluice run exp.json --trace --out results/device
  sluice report results/device                       writes results/device/report.html
  sluice report results/none results/device --alone results/B_alone -o pair.html
  sluice report results/demo-20261121-071500         a folder of runs: all of them

Exit codes: 0; 1 the page could not be written; 2 wrong usage, no run; packages missing that a trace needs.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice report",
        epilog=_EXAMPLES,
        description="Make one self-contained HTML page of a run, or of several to compare: what the slowest "
        "critical job waited for, JCTs, gate waits, queue depth, a timeline.",
    )
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="DIR", help="the --out folder of a run, or a folder of such folders"
    )
    parser.add_argument(
        "--alone",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="a run in which a model ran alone, to compare with; may be given again",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: report.html in the first DIR)"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the summary table as CSV")
    parser.add_argument("--json", action="store_true", help="print a summary of one line of JSON")
    return parser


def _read(folders: list, others: list) -> tuple:
    found, alone = runs.find_runs(folders), runs.find_runs(others)
    every = list(dict.fromkeys(folder.resolve() for folder in found + alone))
    known = {}
    for folder, label in zip(every, runs.labels(every)):
        run = known[folder] = runs.read_run(folder, label)
        # Of a run that others are only held against, the job logs will do.
        if run.kind == "traced" or folder in {one.resolve() for one in found}:
            _add_trace(run)
    shown = [known[folder.resolve()] for folder in found]
    return shown, list(known.values()), {run.label: answer.explain(run) for run in shown}


def _add_trace(run: runs.Run) -> None:
    if not runs.is_traced(run.folder):
        return
    need_packages("report", "numpy", "pandas")  # of a trace only
    from sluice_tools.report import activity

    run.trace = activity.read(run.folder, run.models, run.notes)
    if run.kind == "traced":
        activity.fill(run)


def _report(options) -> int:
    if not options.out and not runs.is_ours(options.runs[0]):
        raise usage_error(
            f"{options.runs[0]} is neither a run nor a measurement; name the runs to show, or the page with -o"
        )
    shown, everything, answers = _read(options.runs, options.alone)
    alone = [run for run in everything if len(run.models) == 1]
    table = summary.rows(shown, alone)
    for run in shown:
        said = targets.sentences([row for row in table if row["run"] == run.label])
        answers[run.label].text += said
    out = options.out or options.runs[0] / "report.html"
    try:
        write(out, page.report(shown, alone, answers, table))
        if options.csv:
            summary.write_csv(options.csv, table)
    except OSError as error:
        raise run_error(f"cannot write {error.filename}: {error.strerror}") from error
    if options.json:
        print(summary.json_line(out, shown, table, {name: one.line() for name, one in answers.items()}))
        return EXIT_FINE
    for run in shown:
        if len(run.models) > 1 or len(shown) == 1:
            print(f"{run.label}: {run.kind_text()} {answers[run.label].line()}")
    print(f"page: {out}")
    return EXIT_FINE


def main() -> int:
    options = _parser().parse_args()
    return run_command("report", lambda: _report(options))
