"""The command line of `sluice bench pairs`."""

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path

from sluice_tools.bench.pairs import goals, plan
from sluice_tools.bench.pairs.stage import stage
from sluice_tools.command import run_command
from sluice_tools.errors import EXIT_FINE, CommandError, Parser, usage_error
from sluice_tools.grammar import required_policy
from sluice_tools.measure import page, table
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, driver_and_slices, gpus, need_mps, version
from sluice_tools.measure.rows import CRITICAL, Cell, Rows, number, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import summarize

_EXAMPLES = """\
examples:
  sluice bench pairs                                   all of it, on GPU 0; takes over an hour
  sluice bench pairs --limit-s 540                     as much as fits; run it again to go on
  sluice bench pairs --pairs bert+bert --repeats 1 --modes time-sliced
  sluice bench pairs --policies device:200us,event:1 --jobs 300 --out results/short
  sluice bench pairs --table results/pairs             makes table and page anew, without a GPU

exit codes: 0: all went well, also where the limit ended it; 1: a cell failed (it is measured again
by the next call); 2: wrong usage
"""


def _list_of(known: tuple):
    def read(text: str) -> list:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(known)}")
        return names

    return read


def _policies(text: str) -> list:
    """announced and predicted stand for the default policy with that. A comma before `ahead:` belongs to a policy."""
    short = {"announced": plan.ANNOUNCED, "predicted": plan.PREDICTED}
    words = [short.get(word, word) for word in re.split(r" *, *(?!ahead:)", text.strip())]
    try:
        return [word if word in plan.CONDITIONS else str(required_policy(word)) for word in words]
    except CommandError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench pairs",
        description="Measure a critical PyTorch program next to a best-effort one under every policy, "
        "time-sliced and under MPS. What is in the CSV of --out already is not measured "
        "again.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--pairs",
        type=_list_of(plan.PAIRS),
        default=plan.PAIRS,
        metavar="P,...",
        help=f"CRITICAL+BEST_EFFORT (default: all): {', '.join(plan.PAIRS)}",
    )
    conditions = (*(name for name in plan.CONDITIONS if "," not in name), "announced", "predicted")
    parser.add_argument(
        "--policies",
        type=_policies,
        default=(),
        metavar="P,...",
        help="only these conditions and what they are compared with; other policies too (default: all of "
        f"{', '.join(conditions)})",
    )
    parser.add_argument(
        "--modes",
        type=_list_of(plan.MODES),
        default=plan.MODES,
        metavar="M,...",
        help=f"{', '.join(plan.MODES)} (default: all)",
    )
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help=f"of {', '.join(plan.NAMED)}; the others once (default 3)"
    )
    parser.add_argument("--jobs", type=int, default=500, metavar="N", help="critical jobs of a cell (default 500)")
    parser.add_argument(
        "--cell-s",
        type=float,
        default=20.0,
        metavar="S",
        help="a cell ends after this time if it has fewer (default 20)",
    )
    parser.add_argument("--limit-s", type=float, metavar="S", help="begin no cell that would end later")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument(
        "--gpu",
        choices=("real", "sim"),
        default="real",
        help="sim runs tiny models on the CPU: to try the command, not to measure",
    )
    parser.add_argument("--out", type=Path, default=Path("results/pairs"), metavar="DIR", help="default: results/pairs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--table", type=Path, metavar="DIR", help="measure nothing: table and page of DIR/pairs.csv")
    # For the tests: a folder with other critical.py and best_effort.py, and the GPU that they get.
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--exec-gpu", default="real", help=argparse.SUPPRESS)
    return parser


def _groups(options, rows: Rows) -> list[Group]:
    return [
        _group(options, rows, variant)
        for variant in plan.variants(options.pairs, options.modes, options.policies, options.repeats)
    ]


def _group(options, rows: Rows, variant: plan.Variant) -> Group:
    cells = {}
    for condition in variant.conditions:
        lasts = options.cell_s if condition.critical else min(options.cell_s, 4.0)
        cell = Cell(variant.subject, variant.mode, condition.name, variant.repeat, lasts)
        cells[cell] = condition

    @contextlib.contextmanager
    def opened():
        with stage(options, variant) as loaded:
            base_ms = _base_ms(rows, variant) or loaded.base_ms()
            yield lambda cell: loaded.measure(cells[cell], base_ms / variant.load)

    return Group(list(cells), opened)


def _base_ms(rows: Rows, variant: plan.Variant) -> float | None:
    """The p50 that the periods of a pair were made of, where it has been measured."""
    for row in rows.rows:
        if row["subject"] == variant.pair and row["role"] == CRITICAL and (period_ms := number(row, "period_ms")):
            return period_ms * plan.LOAD
    return None


def _machine(options) -> dict:
    driver = driver_and_slices(options.sluice, options.device, ON_CPU) if options.gpu == "real" else ""
    return {"driver": driver, "sluice": version(options.sluice)}


def _markdown(rows: Rows, entries: list) -> str:
    parts = ["# Pairs", *_measured_on(rows.rows), " ".join(table.notes(entries))]
    for subject in dict.fromkeys(entry.subject for entry in entries):
        own = [entry for entry in entries if entry.subject == subject]
        parts.append(f"## {subject}")
        if subject in plan.PAIRS:
            critical, best_effort = subject.split("+")
            parts.append(f"Critical: {plan.CRITICAL[critical]}. Best effort: {plan.BEST_EFFORT[best_effort]}.")
        parts.append(table.markdown(own))
        if subject in plan.PAIRS:
            parts.append("\n".join(f"- {line}" for line in goals.lines(subject, entries)))
    return "\n\n".join([*parts, *table.failures(rows.errors)]) + "\n"


def _measured_on(rows: list) -> list[str]:
    machines = dict.fromkeys(tuple(row[name] for name in ("gpu", "driver", "torch", "sluice")) for row in rows)
    days = sorted({row["date"][:10] for row in rows})
    return [
        f"{gpu}, driver {driver or '-'}, PyTorch {torch}, Sluice {sluice}" for gpu, driver, torch, sluice in machines
    ] + [" to ".join(dict.fromkeys(days[:1] + days[-1:]))]


def _show(options, rows: Rows, folder: Path) -> None:
    entries = summarize(rows.rows)
    text = _markdown(rows, entries)
    (folder / "pairs.md").write_text(text)
    pairs = [pair for pair in dict.fromkeys(entry.subject for entry in entries) if pair in plan.PAIRS]
    if page.can_write():
        page.write(
            folder / "pairs.html",
            "bench pairs",
            "Pairs of PyTorch programs",
            [(text, False) for text in _measured_on(rows.rows)],
            entries,
            goals.overview(pairs, entries),
        )
    else:
        print(f"sluice bench: {page.MISSING}; sluice bench pairs --table {folder} makes it later", file=sys.stderr)
    if options.json:
        print(
            json.dumps(
                {
                    "cells": [vars(entry) for entry in entries],
                    "goals": {pair: goals.goals(pair, entries) for pair in pairs},
                    "errors": rows.errors,
                },
                indent=2,
            )
        )
    else:
        print(text, end="")
    print(f"rows: {rows.file}", file=sys.stderr)


def _run(options) -> int:
    if options.table:
        if not (options.table / "pairs.csv").is_file():
            raise usage_error(f"no pairs.csv in {options.table}")
        _show(options, Rows(options.table / "pairs.csv"), options.table)
        return EXIT_FINE
    options.sluice = sluice_program()
    if options.gpu == "real":
        gpus(options.sluice, "real", options.device, ON_CPU)
        if {plan.MPS, plan.MPS_PRIORITY} & set(options.modes):
            need_mps("--modes time-sliced")
    options.torch_device = f"cuda:{options.device}" if options.gpu == "real" else "cpu"
    with output_folder(options.out) as folder:
        rows = Rows(folder / "pairs.csv")
        result = Sitting("sluice bench", rows, _groups(options, rows), options.limit_s, _machine(options)).run()
        _show(options, rows, folder)
    if result.left:
        print(f"sluice bench: {result.left} cells are left; the same command goes on", file=sys.stderr)
    return result.exit_code


def main(arguments: list) -> int:
    options = _parser().parse_args(arguments)
    return run_command("bench", lambda: _run(options))
