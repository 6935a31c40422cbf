"""The command line of `sluice bench llm`."""

import argparse
import contextlib
import math
import os
import sys
from pathlib import Path

from sluice_tools.bench.llm import plan, report
from sluice_tools.bench.llm.figures import FIELDS
from sluice_tools.bench.llm.stage import stage
from sluice_tools.common.command import need_packages, run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, commit, driver_version, gpus, need_mps, torch_version, version
from sluice_tools.measure.rows import Cell, Rows, claim, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import BEST_EFFORT_ALONE

_EXAMPLES = """\
examples:
  sluice bench llm                                           all of it, on GPU 0
  sluice bench llm --limit-s 540                             as much as fits; run it again to go on
  sluice bench llm --best-effort llama-finetuning --modes time-sliced --loads 70
  sluice bench llm --targets "step p99=1.2x,step p99=25ms"
  sluice bench llm --modes "MPS + priority" --conditions "none,default,sms=50%,sms=50%+target=step p99=1.2x"
  sluice bench llm --table results/llm                       makes table and page anew, without a GPU

The server is transformers' continuous batching with a random-weight Llama of 1B parameters in bf16, two steps in flight
and CUDA graphs. Requests arrive in bursts (Gamma, CV 2); lengths are lognormal. The capacity of the server is measured
first, and loads are parts of it. The conditions of a round take turns in the same processes, with the same requests.

Conditions, next to the server alone and best effort alone:
  none           as without Sluice: nothing is held
  default        the settings of sluice exec
  target=T       of the server, as in "target=step p99=1.2x"; --targets is a shorter way to say it
  sms=W          best effort may use W of the SMs, as sms=50%; needs MPS, and is left out of the mode time-sliced
  none+sms=W, target=T+sms=W    two of them
MPS fixes a width when a process starts. So best effort has a process for each width, of which one at a time works. All
of them, and the server, must fit into the memory of the GPU.

exit codes: 0: all went well, also where the limit ended it; 1: a cell failed (it is measured again
by the next call); 2: wrong usage
"""
_CSV = "llm.csv"
_DRAIN_S = 2  # about what requests of a window take after it


def _names(known: tuple):
    def read(text: str) -> list[str]:
        names = [part.strip() for part in text.split(",")]
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' is not one of {', '.join(known)}")
        return names

    return read


def _loads(text: str) -> list[int]:
    loads = [int(part) for part in text.split(",")]
    if any(not 0 < load <= 200 for load in loads):
        raise argparse.ArgumentTypeError("a load is 1 to 200 % of the capacity")
    return loads


def _conditions(text: str) -> list[plan.Condition]:
    try:
        return [plan.condition_of(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _targets(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip() != "none"]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench llm",
        description="Measure a real LLM server next to training or offline generation: time per token and to the first "
        "token, against what best effort keeps. What is in the CSV of --out already is not measured again.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    known = ", ".join(plan.BEST_EFFORT)
    add(
        "--best-effort",
        type=_names(plan.BEST_EFFORT),
        default=list(plan.BEST_EFFORT),
        metavar="P,...",
        help=f"all of {known}",
    )
    add("--modes", type=_names(plan.MODES), default=list(plan.MODES), metavar="M,...", help=", ".join(plan.MODES))
    add("--loads", type=_loads, default=list(plan.LOADS), metavar="L,...", help="%% of the capacity (30,70,100)")
    add("--conditions", type=_conditions, metavar="C,...", help="see below (default: none,default and --targets)")
    target = f"of the server, or none (default: {plan.TARGET}; without it, if there are --conditions)"
    add("--targets", type=_targets, metavar="T,...", help=target)
    add("--rounds", type=int, default=3, metavar="N", help="each condition has a window in every round (3)")
    add("--window", type=float, default=8.0, metavar="S", help="seconds in which requests count (8)")
    add("--settle", type=float, default=1.5, metavar="S", help="seconds before, in which they do not (1.5)")
    add("--limit-s", type=float, metavar="S", help="begin no window that would end later")
    add("--server", type=Path, metavar="FILE", help="a program of the same protocol instead (bench/llm/server.py)")
    add("--device", type=int, default=0, metavar="N", help="index of the GPU")
    sim = "sim runs tiny models on the CPU: to try the command, not to measure"
    add("--gpu", choices=("real", "sim"), default="real", help=sim)
    add("--out", type=Path, default=Path("results/llm"), metavar="DIR", help="default: results/llm")
    add("--commit", metavar="TEXT", help="of the build, for the table (default: that of its checkout)")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--table", type=Path, metavar="DIR", help=f"measure nothing: table and page of DIR/{_CSV}")
    add("--programs", type=Path, help=argparse.SUPPRESS)  # for the tests: a stand-in for the best-effort programs
    return parser


def _options(arguments: list) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    positive = {"--rounds": options.rounds, "--window": options.window, "--limit-s": options.limit_s or 1}
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise usage_error(f"{name} must be above 0")
    if not 0 <= options.settle < math.inf:
        raise usage_error("--settle must not be below 0")
    options.conditions = _wanted(options.conditions, options.targets)
    if options.modes == [plan.TIME_SLICED] and any(one.width != WHOLE for one in options.conditions):
        raise usage_error("sms= needs MPS: --modes 'MPS + priority'")
    return options


def _wanted(given: list[plan.Condition] | None, targets: list[str] | None) -> list[plan.Condition]:
    """Each once, in the order in which they were named."""
    if targets is None:
        targets = [] if given else [plan.TARGET]
    found = given or [plan.condition_of(name) for name in plan.USUAL]
    return list(dict.fromkeys([*found, *map(plan.target_condition, targets)]))


def cells(options, best_effort: str, mode: str) -> dict[Cell, tuple[plan.Condition, int, int]]:
    """The windows of one loading, in the order of measuring: condition, load and round of each."""
    found = {}
    seconds = options.settle + options.window
    for repeat in range(1, options.rounds + 1):
        for place, load in enumerate(options.loads):
            wanted = plan.order(plan.conditions(options.conditions, mode), repeat)
            for condition in (plan.Condition(BEST_EFFORT_ALONE), *wanted):
                took = seconds + _DRAIN_S if condition.server_runs else 0.0 if place else seconds
                cell = Cell(f"{best_effort}, {load} %", mode, condition.name, repeat, took)
                found[cell] = (condition, load, repeat)
    return found


def _group(options, best_effort: str, mode: str) -> Group:
    planned = cells(options, best_effort, mode)

    @contextlib.contextmanager
    def opened():
        with stage(options, best_effort, mode) as loaded:
            _say(f"the server can end {loaded.capacity:.3g} requests a second")
            yield lambda cell: loaded.measure(*planned[cell])

    return Group(list(planned), opened)


def _say(text: str) -> None:
    print(f"sluice bench: {text}", file=sys.stderr, flush=True)


def _use_gpu(options) -> str:
    """Makes the chosen GPU the only one that the programs see. Gives its name."""
    if options.gpu == "sim":
        return "CPU, tiny models"
    found = gpus(options.sluice, "real", options.device, ON_CPU)["devices"]
    if len(found) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = found[options.device]["uuid"]
    return found[options.device]["name"]


def _run(options) -> int:
    if options.table:
        if not (options.table / _CSV).is_file():
            raise usage_error(f"no {_CSV} in {options.table}")
        report.show(Rows(options.table / _CSV, FIELDS), options.table, options.json)
        return EXIT_FINE
    need_packages("bench llm", "torch", "torchvision", "transformers")
    options.sluice = sluice_program()
    name = _use_gpu(options)
    if options.gpu == "real" and options.modes != [plan.TIME_SLICED]:
        need_mps("--modes time-sliced")
    with output_folder(options.out) as folder:
        settings = {"window": options.window, "settle": options.settle, "gpu": options.gpu}
        claim(folder / "settings.json", settings, "windows of other settings")
        rows = Rows(folder / _CSV, FIELDS)
        groups = [_group(options, one, mode) for one in options.best_effort for mode in options.modes]
        machine = {"gpu": name, "driver": driver_version() if options.gpu == "real" else ""}
        machine |= {"torch": torch_version(), "sluice": version(options.sluice)}
        machine["commit"] = commit(options.sluice) if options.commit is None else options.commit
        result = Sitting("sluice bench", rows, groups, options.limit_s, machine).run()
        if result.left:
            _say(f"{result.left} windows are left; the same command goes on")
        report.show(rows, folder, options.json)
        return result.exit_code


def main(arguments: list) -> int:
    return run_command("bench", lambda: _run(_options(arguments)))
