"""The command line of `sluice trace`."""

import argparse
import contextlib
import gzip
import os
import sys
from pathlib import Path

from sluice_tools.common.command import need_packages, run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, run_error, usage_error

_EXAMPLES = """\
examples:
  sluice run exp.json --trace --out results/seen
  sluice trace results/seen                          what was recorded
  sluice trace results/seen -o seen.json.gz          for ui.perfetto.dev: open trace file
  sluice trace results/seen -o part.json --from 1.2 --to 1.5
  sluice trace results/seen --csv seen.csv           the table of nsys stats -r kernexectrace

Exit codes: 0; 1 no trace, or a file cannot be written; 2 wrong usage, or packages missing.
"""
_ENDINGS = (".json", ".json.gz", ".perfetto-trace")


_EVERYTHING = (0.0, float("inf"))  # the window without --from and --to


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice trace",
        description="Turn the trace of a run into a file for a viewer or for other tools, or say what it "
        "holds (docs/guide/traces.md).",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="folder of `sluice run --trace` or of `sluice exec --trace`"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="for ui.perfetto.dev: .json, .json.gz (Chrome's trace events) or "
        ".perfetto-trace (protobuf; half the size)",
    )
    parser.add_argument(
        "--from", dest="since", type=float, default=0.0, metavar="S", help="only what ends after S seconds (with -o)"
    )
    parser.add_argument(
        "--to",
        dest="until",
        type=float,
        default=float("inf"),
        metavar="S",
        help="only what begins before S seconds (with -o)",
    )
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FILE",
        help="a row for each kernel, in the columns of `nsys stats -r kernexectrace`",
    )
    return parser


@contextlib.contextmanager
def _whole(path: Path):
    """The name of a file that is `path` when all of it is written, and gone if it is not."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise run_error(f"cannot write {path}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _about(run) -> dict:
    simulated = any(client.simulated for client in run.clients)
    return {
        "run": str(run.folder),
        "zero": f"CLOCK_MONOTONIC {run.begin_ns} ns",
        "time": "of the simulated GPU" if simulated else "real",
    }


def _write_viewer_file(run, path: Path, window) -> None:
    with _whole(path) as draft:
        if path.name.endswith(".perfetto-trace"):
            from sluice_tools.trace import perfetto

            with draft.open("wb") as file:
                slices = perfetto.write(run, file, window)
        else:
            from sluice_tools.trace import chrome

            with gzip.open(draft, "wt", 6) if path.suffix == ".gz" else draft.open("w") as file:
                slices = chrome.write(run, file, _about(run), window)
        if not slices and window != _EVERYTHING:
            raise usage_error(f"nothing was recorded from --from to --to; the trace ends after {_length_s(run):.3g} s")


def _length_s(run) -> float:
    """Of the recording, in the times of the viewer file."""
    return max((client.last_ns - run.begin_ns) / client.time_scale for client in run.clients) / 1e9


def _write_csv(run, path: Path) -> None:
    from sluice_tools.trace.kernel_table import csv_chunks

    lines = csv_chunks(run)
    first = next(lines)
    with _whole(path) as draft, draft.open("w") as file:
        file.write(first)
        file.writelines(lines)


def _tell(run) -> None:
    """What was recorded, and what is missing."""
    sources = {0: "host only", 1: "CUPTI", 2: "simulator"}
    print(
        f"{'PROCESS':<36} {'PRIO':>4}  {'POLICY':<10} {'LAUNCHES':>9} {'KERNELS':>9} {'HOLDS':>7} "
        f"{'JOBS':>6}  {'GPU TIMES':<9}"
    )
    for client in run.clients:
        counts = client.counts
        kernels = len(client.execs()) if client.simulated else counts["execs"]
        print(
            f"{client.label:<36} {client.priority:>4}  {client.policy:<10} {counts['launches']:>9} "
            f"{kernels:>9} {counts['holds']:>7} {counts['jobs']:>6}  "
            f"{sources.get(client.exec_source, '?'):<9}"
        )
    traced = {client.pid for client in run.clients}
    for model, pid in run.models:
        if pid not in traced:
            print(f"{model} ({pid}): no trace: the process ran without Sluice")
    for client in run.clients:
        if client.note:
            print(f"{client.label}: {client.note}")
        if client.counts["unwritten"] or client.lost:
            print(
                f"{client.label}: {client.lost} records lost because there was no room, "
                f"{client.counts['unwritten']} unfinished when a thread was killed"
            )
        for at, step in client.clock.steps():
            print(
                f"{client.label}: the clock was set by {step / 1e9:+.3f} s, "
                f"{(at - run.begin_ns) / 1e9:.1f} s after the run began"
            )


def _run(options) -> int:
    if options.out and not options.out.name.endswith(_ENDINGS):
        raise usage_error(f"-o {options.out}: the name must end with {', '.join(_ENDINGS[:2])} or {_ENDINGS[2]}")
    if options.since >= options.until:
        raise usage_error(f"--from {options.since:g} --to {options.until:g}: nothing is between them")
    if not options.out and (options.since > 0 or options.until < float("inf")):
        raise usage_error("--from and --to are for -o FILE, and none is given")
    need_packages("trace", "numpy", "pandas")
    if options.out and options.out.name.endswith(_ENDINGS[2]):
        try:
            need_packages("trace", "perfetto")
        except Exception as error:
            raise usage_error(f"{error}; or let the name of -o end with .json, which needs none") from error
    from sluice_tools.trace.reader import read_run

    run = read_run(options.run)
    if not run.clients:
        raise run_error(f"{run.folder} has no trace; `sluice run --trace` records one")
    if options.csv:
        _write_csv(run, options.csv)
    if options.out:
        _write_viewer_file(run, options.out, (options.since * 1e9, options.until * 1e9))
        print(f"{options.out}: open it at https://ui.perfetto.dev", file=sys.stderr)
    if not options.csv and not options.out:
        _tell(run)
    return EXIT_FINE


def main(args: list[str] | None = None) -> int:
    options = _parser().parse_args(args)
    return run_command("trace", lambda: _run(options))
