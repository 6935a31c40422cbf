"""The command line of `sluice bench programs`."""

import argparse
import contextlib
import math
import os
from pathlib import Path

from sluice_tools.bench.programs import plan, progress, report
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.bench.programs.smoke import smoke
from sluice_tools.bench.programs.stage import stage
from sluice_tools.bench.programs.targets import parse_target
from sluice_tools.bench.programs.workers import run_workers
from sluice_tools.command import run_command
from sluice_tools.errors import EXIT_FINE, CommandError, Parser, usage_error
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, driver_and_slices, gpus, need_mps, torch_version, version
from sluice_tools.measure.rows import Cell, Rows, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

_EXAMPLES = """\
examples:
  sluice bench programs --smoke                        each program alone for a second: do all work
  sluice bench programs                                all of it, on GPU 0
  sluice bench programs --limit-s 540                  as much as fits; run it again to go on
  sluice bench programs --gpus 4 --modes time-sliced   a quarter of the mixes on each of four GPUs
  sluice bench programs --mixes decode+prefill,gpt2+prefill --targets p99=1.2x,p99=60ms
  sluice bench programs --table results/programs       makes table and page anew, without a GPU

Mixes are CRITICAL+OTHER[+OTHER...] of any of these programs; those that are measured by default:
  %(mixes)s
programs that serve requests, and so can be critical; NAME-busy serves them back to back:
%(serving)s
programs that make steps:
%(stepping)s

exit codes: 0: all went well, also where the limit ended it; 1: a cell failed (it is measured again
by the next call); 2: wrong usage
"""
_CSV = "programs.csv"


def _epilog() -> str:
    def listed(serves: bool) -> str:
        chosen = [program for program in plan.PROGRAMS.values() if program.serves == serves]
        return "\n".join(f"  {program.name:20}{program.text}" for program in chosen)

    mixes = "\n  ".join(mix.name for mix in plan.MIXES)
    return _EXAMPLES % {"mixes": mixes, "serving": listed(True), "stepping": listed(False)}


def _list_of(read):
    """An argument type: names between commas, each read by `read`, which raises ValueError or CommandError."""

    def read_all(text: str) -> list:
        try:
            return [read(part.strip()) for part in text.split(",")]
        except (ValueError, CommandError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_all


def _one_of(known: tuple):
    def read(name: str) -> str:
        if name not in known:
            raise ValueError(f"'{name}' is not one of {', '.join(known)}")
        return name

    return read


def _checked_target(text: str) -> str:
    if text != "none":
        parse_target(text)
    return text


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench programs",
        description="Measure programs that Sluice was not tuned on: alone, together without Sluice, and together "
        "under its default. Says for each mix whether Sluice is worse than no Sluice. What is in the CSV of --out "
        "already is not measured again.",
        epilog=_epilog().replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--mixes", type=_list_of(plan.mix_of), default=plan.MIXES, metavar="M,...", help="default: those below")
    modes = ", ".join(plan.MODES)
    add("--modes", type=_list_of(_one_of(plan.MODES)), default=plan.MODES, metavar="M,...", help=f"of {modes}")
    add(
        "--targets",
        type=_list_of(_checked_target),
        metavar="T,...",
        help=f"latency targets of the critical program, each a condition; none: without "
        f"(default: {plan.TARGET} for host-bound ones)",
    )
    add("--seconds", type=float, default=8.0, metavar="S", help="a cell lasts this long (default 8),")
    add("--jobs", type=int, default=600, metavar="N", help="or until so many critical requests (default 600)")
    add("--repeats", type=int, default=2, metavar="N", help="of the cells with several programs (default 2)")
    add("--limit-s", type=float, metavar="S", help="begin no cell that would end later")
    add("--gpus", type=int, default=1, metavar="N", help="spread the mixes over the first N GPUs (default 1)")
    add("--device", type=int, default=0, metavar="N", help="index of the GPU, without --gpus")
    sim = "sim runs tiny models on the CPU: to try the command, not to measure"
    add("--gpu", choices=("real", "sim"), default="real", help=sim)
    out = Path("results/programs")
    add("--out", type=Path, default=out, metavar="DIR", help=f"default: {out}")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--smoke", action="store_true", help="only run each program alone for a second, and print its speed")
    add("--table", type=Path, metavar="DIR", help=f"measure nothing: table and page of DIR/{_CSV}")
    # For the tests: a stand-in for the programs. worker: measures for another call, which has locked --out.
    add("--programs", type=Path, help=argparse.SUPPRESS)
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def _options(arguments: list) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    positive = {"--seconds": options.seconds, "--jobs": options.jobs, "--repeats": options.repeats}
    positive |= {"--gpus": options.gpus} | ({"--limit-s": options.limit_s} if options.limit_s is not None else {})
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise usage_error(f"{name} must be above 0")
    if options.gpus > 1 and (options.device or options.smoke):
        raise usage_error("--gpus takes the first N GPUs, and neither --device nor --smoke")
    if options.targets is not None:
        options.targets = [target for target in options.targets if target != "none"]
    options.exec_gpu = options.gpu
    return options


def _groups(options, rows: Rows) -> list[Group]:
    return [_group(options, rows, mix, mode) for mix in options.mixes for mode in options.modes]


def _group(options, rows: Rows, mix: plan.Mix, mode: str) -> Group:
    """One loading of the programs. Cells alone are measured once: no verdict compares their spread."""
    cells = {}
    for repeat in range(1, options.repeats + 1):
        for condition in plan.conditions(mix, options.targets):
            if repeat == 1 or condition.name not in (ALONE, BEST_EFFORT_ALONE):
                cells[Cell(mix.name, mode, condition.name, repeat, options.seconds + 1)] = condition

    @contextlib.contextmanager
    def opened():
        missing = dict.fromkeys(condition for cell, condition in cells.items() if not rows.has(cell))
        with stage(options, mix, mode, missing) as loaded:
            yield lambda cell: loaded.measure(cells[cell])

    return Group(list(cells), opened)


def _use_gpu(options) -> str:
    """Makes the chosen GPU the only one that the programs see. Gives its name."""
    if options.gpu == "sim":
        return "CPU, tiny models"
    found = gpus(options.sluice, "real", options.device, ON_CPU)["devices"]
    if options.gpus > len(found):
        raise usage_error(f"--gpus: found {options.gpus}, and there are {len(found)} GPUs here")
    if len(found) > 1 and options.gpus == 1:
        # By UUID: under MPS the daemon and its clients would count the indices differently.
        os.environ["CUDA_VISIBLE_DEVICES"] = found[options.device]["uuid"]
    return found[options.device]["name"]


def _measure(options, rows: Rows, name: str) -> int:
    machine = {
        "gpu": name,
        "driver": driver_and_slices(options.sluice, 0, ON_CPU) if options.gpu == "real" else "",
        "torch": torch_version(),
        "sluice": version(options.sluice),
    }
    groups = _groups(options, rows)
    label = f"sluice bench, GPU {options.device}" if options.worker else "sluice bench"
    result = Sitting(label, rows, groups, options.limit_s, machine, progress.one_line).run()
    if result.left:
        progress.say(f"{result.left} cells are left; the same command goes on")
    return result.exit_code


def _run(options) -> int:
    if options.table:
        if not (options.table / _CSV).is_file():
            raise usage_error(f"no {_CSV} in {options.table}")
        report.show(Rows(options.table / _CSV, FIELDS), options.table, options.json)
        return EXIT_FINE
    options.sluice = sluice_program()
    name = _use_gpu(options)
    if plan.MPS_PRIORITY in options.modes and options.gpu == "real" and not options.smoke:
        need_mps("--modes time-sliced")
    if options.worker:
        return _measure(options, Rows(options.out / _CSV, FIELDS), name)
    with output_folder(options.out) as folder:
        if options.smoke:
            return smoke(options)
        rows = Rows(folder / _CSV, FIELDS)
        if options.gpus == 1:
            code = _measure(options, rows, name)
        else:
            rows.begin()
            code = run_workers(options)
            rows = Rows(folder / _CSV, FIELDS)
        report.show(rows, folder, options.json)
        return code


def main(arguments: list) -> int:
    return run_command("bench", lambda: _run(_options(arguments)))
