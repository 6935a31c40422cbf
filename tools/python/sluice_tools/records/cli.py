"""The command line of `sluice records`."""

import argparse
import json
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error
from sluice_tools.measure.answer_page import write
from sluice_tools.records import analysis, folders, page, reader, summary
from sluice_tools.records import profile as server_profile

_EXAMPLES = """\
examples:
  sluice serve --models resnet50,bert_base --scheduler DLIR --records dlir.jsonl
  sluice records report dlir.jsonl edf.jsonl -o compared.html
  sluice records report requests.jsonl --profile server-profile
  sluice records stat dlir.jsonl --out BenchMark
  sluice records files dlir.jsonl --lambda 105 --out data

Exit codes: 0; 1 a file could not be written; 2 wrong usage, or broken records.
"""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice records",
        epilog=_EXAMPLES,
        description="Analyse the requests that `sluice serve --records FILE` wrote (docs/reference/server-files.md).",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_files(commands)
    stat = commands.add_parser("stat", help="latency, response ratio and violations, as a table")
    stat.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help="records, or a folder of `records files`")
    stat.add_argument("--out", type=Path, metavar="DIR", help="also write the published analysis, into DIR/MODE/NAME")
    stat.add_argument("--json", action="store_true", help="print one line of JSON for scripts")
    report = commands.add_parser("report", help="one HTML page of a scheduler, or of several to compare")
    report.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help="records of one scheduler each")
    report.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: records.html next to the first FILE)"
    )
    report.add_argument(
        "--profile", type=Path, metavar="FILE", help="of the same server: memory over time, and handovers"
    )
    return parser


def _add_files(commands) -> None:
    files = commands.add_parser("files", help="the folders of the published request scheduler")
    files.add_argument("paths", nargs="+", type=Path, metavar="FILE")
    files.add_argument("--out", type=Path, default=Path("data"), metavar="DIR", help="(default: data)")
    files.add_argument(
        "--lambda",
        dest="lambdas",
        action="append",
        default=[],
        metavar="[MODEL=]MS",
        help="ms between arrivals, of all models or of one (default: measured); the hash depends on the order in "
        "which models are named",
    )


def _lambdas(texts: list) -> dict:
    """ms by model; of all other models by None."""
    found = {}
    for text in texts:
        model, sign, ms = text.rpartition("=")
        if not ms.isdecimal() or (sign and not model):
            raise usage_error(f"--lambda: found '{text}', allowed: MS or MODEL=MS, in whole ms")
        found[model if sign else None] = int(ms)
    return found


def _files(options) -> int:
    given = _lambdas(options.lambdas)
    for path in options.paths:
        if path.is_dir():
            raise usage_error(f"{path} is a folder; give a file of `sluice serve --records`")
        for sitting in reader.read_file(path):
            done = folders.write(sitting, options.out, given)
            lambdas = ", ".join(f"{model} {ms} ms" for model, ms in done.lambdas.items())
            if done.skipped:
                print(f"{done.folder}: the data of this load exists, skipped")
            else:
                left = f"; {done.left_out} without an answer left out" if done.left_out else ""
                print(f"{done.folder}: {done.count} requests{left}; mean time between arrivals: {lambdas}")
    return EXIT_FINE


_COLUMNS = ("requests", "ok", "refused", "expired", "cancelled", "failed", "late")


def _print_table(sittings: list) -> None:
    wide = max((len(name) for sitting in sittings for name in [*sitting.models, "MODEL"]), default=5)
    head = f"{'p50 ms':>9} {'p99 ms':>9} {'RATIO':>6} {'max':>7} {'std':>6} {'>2x':>6} {'>4x':>6}"
    counts = " ".join(f"{name:>9}" for name in _COLUMNS)
    for sitting in sittings:
        print(f"{sitting.label}\n{'MODEL':<{wide}} {head} {counts}")
        for row in summary.rows(sitting):
            shares = [row[name] / row["ok"] if row["ok"] else None for name in ("above_2x", "above_4x")]
            ratio = [_cell(row[f"ratio_{key}"], size, ".2f") for key, size in (("avg", 6), ("max", 7), ("std", 6))]
            cells = [_cell(row[key], 9, ".2f") for key in ("p50_ms", "p99_ms")] + ratio
            cells += [_cell(share, 6, ".1%") for share in shares]
            print(f"{row['model']:<{wide}}", *cells, *(f"{row[name]:>9}" for name in _COLUMNS))


def _cell(value, width: int, form: str) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}{form}}"


def _stat(options) -> int:
    sittings = reader.read(options.paths)
    written = [str(analysis.write(sitting, options.out)) if options.out else None for sitting in sittings]
    if options.json:
        content = [
            {"scheduler": sitting.scheduler, "name": sitting.name, "folder": folder, "models": summary.rows(sitting)}
            for sitting, folder in zip(sittings, written)
        ]
        print(json.dumps({"schedulers": content}))
        return EXIT_FINE
    _print_table(sittings)
    for folder in filter(None, written):
        print(f"written: {folder}")
    return EXIT_FINE


def _report(options) -> int:
    sittings = reader.read(options.paths)
    if options.profile and len(sittings) > 1:
        raise usage_error("--profile: the profile of one server goes with the records of one scheduler")
    profile = server_profile.read(options.profile) if options.profile else None
    answers = page.explanations(sittings)
    first = options.paths[0]
    out = options.out or (first if first.is_dir() else first.parent) / "records.html"
    write(out, page.render(sittings, answers, profile))
    for label, (sentence, more) in answers.items():
        print(f"{label}: {' '.join([sentence, *more])}")
    print(f"page: {out}")
    return EXIT_FINE


def main(args: list[str] | None = None) -> int:
    options = _parser().parse_args(args)
    job = {"files": _files, "stat": _stat, "report": _report}[options.command]
    return run_command("records", lambda: job(options))
