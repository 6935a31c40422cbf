"""The command line of `sluice demo`."""

import argparse
import contextlib
import datetime
import json
import math
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import Parser, usage_error
from sluice_tools.demo.plan import DEFAULT, PHASES, ROLES, experiment
from sluice_tools.measure import answer_page, experiments, needs, table, verdict
from sluice_tools.measure.rows import Cell, Rows, claim, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import summarize

_EXAMPLES = """\
examples:
  sluice demo
  sluice demo --gpu sim --seconds-per-phase 3 --out /tmp/demo

Each folder below DIR is one phase: its experiment.json runs again with
  cd DIR/device-200us && sluice run experiment.json
exit codes: 0; 1 a phase failed; 2 wrong usage; 130 ended by Ctrl-C (prints the finished phases)
"""
_SECONDS = {"simulated": 10.0, "real": 5.0}


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice demo",
        description="Run a critical and a best-effort model as processes of their own: each alone, then "
        "together under every policy. Ends with a table and a verdict.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--gpu",
        choices=("auto", "real", "sim"),
        default="auto",
        help="auto (the default) is the real GPU where there is one",
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="index of the GPU")
    parser.add_argument(
        "--seconds-per-phase",
        type=float,
        metavar="S",
        help=f"real seconds of each of the {len(PHASES)} phases (default "
        f"{_SECONDS['simulated']:g} simulated, {_SECONDS['real']:g} real)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for logs and results (default results/demo-TIME)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser


def _groups(how: experiments.How, folder: Path) -> list[Group]:
    def measure(phase):
        return lambda cell: experiments.measure(how, folder / phase.folder, experiment(phase), ROLES)

    return [
        Group(
            [Cell("", "time-sliced", phase.name, seconds=how.seconds)],
            lambda phase=phase: contextlib.nullcontext(measure(phase)),
        )
        for phase in PHASES
    ]


def _about(gpus: dict, device: int) -> str:
    name = gpus["devices"][device]["name"]
    if gpus["kind"] != "simulated":
        return f"GPU {device}: {name}, time-sliced"
    return (
        f"GPU {device}: {name}. SIMULATED: no NVIDIA GPU took part "
        f"({gpus.get('why_simulated') or 'as asked for'}); times are the simulated GPU's"
    )


_COMMANDS = "critical: ResNet-50 as one CUDA graph, about every 6 ms; best effort: ResNet-152, batch 256"


def _verdict(entries: list) -> list[str]:
    by_cell = {entry.cell: entry for entry in entries}
    return [verdict.judge(by_cell["none"], by_cell[DEFAULT])] if {"none", DEFAULT} <= by_cell.keys() else []


def _next(folder: Path) -> list[str]:
    sluice = experiments.sluice_word()
    return [
        f"your own two programs: `{sluice} compare --load CMD -- SERVER COMMAND -- BEST-EFFORT COMMAND`",
        f"the timeline of these: `{sluice} report {folder}`",
    ]


def _text(entries: list, about: str, folder: Path) -> str:
    following = [text.replace("`", "") for text in _next(folder)]
    lines = [about, _COMMANDS, "", table.text(entries), *table.notes(entries), "", *_verdict(entries), ""]
    return table.wrapped([*lines, f"next: {following[0]}", *(f"      {text}" for text in following[1:])]) + "\n"


def _page(entries: list, gpus: dict, device: int, folder: Path) -> str:
    about = _about(gpus, device)
    kinds = [(about, gpus["kind"] == "simulated")]
    answers = _verdict(entries) or ["Not all phases were measured."]
    return answer_page.render(
        "demo",
        "Two models on one GPU",
        kinds,
        answers,
        entries,
        notes=table.notes(entries),
        following=_next(folder),
        closing=[_COMMANDS],
    )


def _json(entries: list, gpus: dict) -> str:
    return (
        json.dumps(
            {"simulated": gpus["kind"] == "simulated", "gpus": gpus, "cells": [vars(entry) for entry in entries]},
            indent=2,
        )
        + "\n"
    )


def _demo(options) -> int:
    sluice = experiments.sluice_program()
    gpus = needs.gpus(sluice, options.gpu, options.device)
    seconds = options.seconds_per_phase or _SECONDS[gpus["kind"]]
    if not 0.1 <= seconds < math.inf:
        raise usage_error("--seconds-per-phase must be at least 0.1")
    now = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    how = experiments.How(sluice, "sim" if gpus["kind"] == "simulated" else "real", options.device, seconds)
    with output_folder(options.out or Path("results") / f"demo-{now}") as folder:
        settings = {"gpu": gpus["devices"][options.device]["name"], "seconds": seconds, "sluice": needs.version(sluice)}
        claim(folder / "settings.json", settings, "a demo with another --seconds-per-phase, GPU or version")
        rows = Rows(folder / "rows.csv")
        outcome = Sitting("sluice demo", rows, _groups(how, folder)).run()
        entries = summarize(rows.rows)
        text = _text(entries, _about(gpus, options.device), folder)
        print(_json(entries, gpus) if options.json else text, end="", flush=True)  # first: the disk may be full
        (folder / "table.txt").write_text(text)
        (folder / "results.json").write_text(_json(entries, gpus))
        (folder / "demo.html").write_text(_page(entries, gpus, options.device, folder))
        if not options.json:
            print(f"page: {folder / 'demo.html'}")
    return outcome.exit_code


def main() -> int:
    options = _parser().parse_args()
    return run_command("demo", lambda: _demo(options))
