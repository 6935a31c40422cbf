"""The command line of `sluice compare`."""

import argparse
import contextlib
import json
import math
import re
import sys
from pathlib import Path

from sluice_tools.command import run_command
from sluice_tools.errors import Parser, usage_error
from sluice_tools.grammar import Target, required_policy, required_target
from sluice_tools.measure import page, table, verdict
from sluice_tools.measure.commands import Commands, Timing
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import gpus, need_mps, time_scale, version
from sluice_tools.measure.programs import mps
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, FIELDS, TARGET_FIELDS, Cell, Rows, claim, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, summarize

_USAGE = "sluice compare [OPTIONS] -- CRITICAL COMMAND -- BEST-EFFORT COMMAND"
_EXAMPLES = """\
Both commands must run until SIGTERM ends them. Every cell starts them again. They need no change: a job
of the critical command begins with the first launch when the command is idle, and ends when its GPU work
is done. A program can also mark its jobs with sluice_job_begin() and sluice_job_end(). The speed of the
best-effort command is its launches per second.

examples:
  sluice compare -- python serve.py -- python train.py
  sluice compare --target p99=20ms --seconds 30 -- ./server --port 8000 -- python train.py
  sluice compare --policy device:200us --policy event:2 --mps -- python serve.py -- python train.py
  sluice compare --gpu sim --seconds 5 -- sluice-example-spin --period-ms 20 -- sluice-example-spin

Called again with the same --out, it measures only what is missing. Exit codes: 0; 1 a cell failed;
2 wrong usage; 130 ended by Ctrl-C (prints what is measured)
"""
BARE = "bare"
DEFAULT = "device:200us"
ROW_FIELDS = (*FIELDS, *TARGET_FIELDS)
_POLICIES = ("device:100us", DEFAULT, "device:500us", "device:2000us")
_FIGURES = ("p50", "p99", "mean", "max")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice compare",
        usage=_USAGE,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure two programs of your own on one GPU: each alone, both bare (nothing gated), "
        "both under the default policy and other values of T. Ends with a table, a verdict "
        "and a page.",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="P",
        help=f"a policy of the best-effort command; may be given again (default: {', '.join(_POLICIES)})",
    )
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="T",
        help="what is good enough, as p99=20ms or p99=1.2x: chooses T for it, and also measures the critical command "
        "with this target (of p50 and p99; mean and max only choose T); may be given again",
    )
    parser.add_argument("--seconds", type=float, default=15.0, metavar="S", help="measured time of a cell (default 15)")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=5.0,
        metavar="S",
        help="time between the first work and the measured time (default 5)",
    )
    parser.add_argument(
        "--start-limit",
        type=float,
        default=300.0,
        metavar="S",
        help="the longest that a command may load (default 300)",
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--mps", action="store_true", help="under an MPS daemon of its own, best effort with the lower client priority"
    )
    parser.add_argument(
        "--gpu", choices=("real", "sim"), default="real", help="sim: the simulated GPU, for programs of the driver API"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/compare"), metavar="DIR", help="default results/compare"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser


def split(arguments: list) -> tuple[list, list, list]:
    """Options, critical command, best-effort command. Raises CommandError."""
    parts: list[list] = [[]]
    for word in arguments:
        if word == "--" and len(parts) < 3:
            parts.append([])
        else:
            parts[-1].append(word)
    if len(parts) < 3 or not parts[1] or not parts[2]:
        raise usage_error(f"two commands are needed, each after --, as in: {_USAGE}")
    return parts[0], parts[1], parts[2]


def _options(arguments: list):
    parser = _parser()
    if {"-h", "--help"} & set(arguments[: arguments.index("--") if "--" in arguments else None]):
        parser.parse_args(["--help"])
    own, critical, best_effort = split(arguments)
    options = parser.parse_args(own)
    options.commands = {CRITICAL: critical, BEST_EFFORT: best_effort}
    options.policies = list(dict.fromkeys(str(required_policy(text)) for text in options.policy or _POLICIES))
    if "none" in options.policies:
        raise usage_error("--policy: 'none' is always measured, as bare")
    options.targets = [(text, required_target(text, _FIGURES)) for text in dict.fromkeys(options.target)]
    if not all(0 < value < math.inf for value in (options.seconds, options.start_limit, options.repeats)):
        raise usage_error("--seconds, --start-limit and --repeats must be above 0")
    if not 0 <= options.warm_up < math.inf:
        raise usage_error("--warm-up must be 0 or more")
    return options


def _usual(options) -> str:
    """The policy of best effort next to a critical command with a target."""
    return DEFAULT if DEFAULT in options.policies else options.policies[0]


def _row_of(target: str, options) -> str:
    policy = _usual(options)
    return f"target {target}" + ("" if policy == DEFAULT else f", {policy}")


def _is_held(target: Target) -> bool:
    """Whether `sluice exec --target` takes it."""
    return target.figure in ("p50", "p99")


def _for_exec(text: str, target: Target, scale: float) -> str:
    """In real time; scale: real time per time of the GPU."""
    return text if target.relative or scale == 1 else f"{target.figure}={target.limit * 1e3 * scale:.0f}us"


def _group(options, sluice: str, folder: Path, mode: str, scale: float) -> Group:
    """All cells before the next repeat, so that a drift of the machine shows as range."""
    timing = Timing(options.seconds, options.warm_up, options.start_limit)
    shown = {ALONE: (CRITICAL,), BEST_EFFORT_ALONE: (BEST_EFFORT,)}
    held = {
        _row_of(text, options): _for_exec(text, target, scale) for text, target in options.targets if _is_held(target)
    }
    lasting = options.seconds + options.warm_up

    @contextlib.contextmanager
    def opened():
        with mps(sluice, options.mps) as environment:
            commands = Commands(sluice, options.gpu, options.commands, timing, folder / "output", environment, scale)

            def measure(cell: Cell) -> list:
                roles = shown.get(cell.name, (CRITICAL, BEST_EFFORT))
                target = held.get(cell.name, "")
                policy = _usual(options) if target else "none" if cell.name in (*shown, BARE) else cell.name
                label = re.sub(r"[ =,]+", "-", f"{cell.name}-{cell.repeat}")
                return commands.measure(roles, policy, label, target)

            yield measure

    return Group(
        [
            Cell("", mode, name, repeat, lasting)
            for repeat in range(1, options.repeats + 1)
            for name in (*shown, BARE, *options.policies, *held)
        ],
        opened,
    )


def _settings(options, sluice: str, name: str) -> dict:
    """What the rows of one folder have in common. The folder: commands have relative paths."""
    return options.commands | {
        "folder": str(Path.cwd()),
        "gpu": name,
        "seconds": options.seconds,
        "warm_up": options.warm_up,
        "sluice": version(sluice),
    }


def answers(options, entries: list[Entry]) -> list[str]:
    """The verdict, the most important sentence first."""
    by_cell = {entry.cell: entry for entry in entries}
    found = []
    if BARE in by_cell:
        judged = [policy for policy in dict.fromkeys((DEFAULT, *options.policies)) if policy in by_cell]
        found += [verdict.judge(by_cell[BARE], by_cell[policy]) for policy in judged[:1]]
    wanted = [target for _, target in options.targets] or [None]
    found += [verdict.choose_spacing(entries, target, by_cell.get(BARE)) for target in wanted]
    found += [
        verdict.judge_target(text, by_cell[_row_of(text, options)], by_cell.get(_usual(options)))
        for text, _ in options.targets
        if _row_of(text, options) in by_cell
    ]
    return [text for text in found if text]


def _about(name: str, options, mode: str) -> list[str]:
    simulated = " SIMULATED: times are the simulated GPU's." if options.gpu == "sim" else ""
    return [
        f"{name}, {mode}.{simulated}",
        f"critical: {' '.join(options.commands[CRITICAL])}",
        f"best effort: {' '.join(options.commands[BEST_EFFORT])}",
        f"{BARE}: policy none, so Sluice observes both and gates nothing.",
    ]


def _show(options, rows: Rows, folder: Path, name: str, mode: str) -> None:
    entries = summarize([row for row in rows.rows if row["mode"] == mode])
    about, said = _about(name, options, mode), answers(options, entries)
    failures = table.failures([row for row in rows.errors if row["mode"] == mode])
    markdown = "\n\n".join(["\n".join(about), table.markdown(entries), *table.notes(entries), *failures, *said])
    (folder / "compare.md").write_text(markdown + "\n")
    has_page = page.can_write()
    if has_page:
        page.write(
            folder / "compare.html",
            "compare",
            "Sluice: two programs on one GPU",
            [(about[0], options.gpu == "sim")],
            entries,
            said,
            closing=about[1:] + failures,
        )
    if options.json:
        print(
            json.dumps(
                {
                    "gpu": name,
                    "mode": mode,
                    "cells": [vars(entry) for entry in entries],
                    "verdict": said,
                    "failed": failures,
                },
                indent=2,
            )
        )
        return
    print(table.wrapped([*about, "", table.text(entries), *table.notes(entries), *failures, "", *said]))
    print(f"\npage: {folder / 'compare.html'}" if has_page else f"\n{page.MISSING}")


def _run(options) -> int:
    sluice = sluice_program()
    name = gpus(sluice, options.gpu)["devices"][0]["name"]
    if options.mps:
        need_mps("time slicing (without --mps)")
    mode = "MPS + priority" if options.mps else "time-sliced"
    with output_folder(options.out) as folder:
        claim(
            folder / "commands.json",
            _settings(options, sluice, name),
            "the comparison of other commands, or of these with another --seconds, --warm-up, GPU, folder or version",
        )
        rows = Rows(folder / "compare.csv", ROW_FIELDS)
        result = Sitting(
            "sluice compare", rows, [_group(options, sluice, folder, mode, time_scale(name))], machine={"gpu": name}
        ).run()
        _show(options, rows, folder, name, mode)
    return result.exit_code


def main() -> int:
    return run_command("compare", lambda: _run(_options(sys.argv[1:])))
