"""The command line of `sluice bench programs`."""

import argparse
import contextlib
import math
from pathlib import Path

from sluice_tools.bench.programs import conditions, plan, progress, report, rounds
from sluice_tools.bench.programs.conditions import BARE, DEFAULT, Condition, condition_of
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.bench.programs.smoke import smoke
from sluice_tools.bench.programs.stage import MORE_FOR_SEVERAL_S, SETTLE_S, stage
from sluice_tools.bench.programs.workers import run_workers
from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, CommandError, Parser, usage_error
from sluice_tools.common.grammar import WHOLE
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, commit, driver_and_slices, gpus, need_mps, torch_version, version
from sluice_tools.measure.rows import Cell, Rows, output_folder
from sluice_tools.measure.sitting import Group, Sitting
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE

_EXAMPLES = """\
examples:
  sluice bench programs --smoke                      each program alone for a second: do all work
  sluice bench programs --mixes graph,busy           two kinds of mixes, 5 to 12 rounds, on GPU 0
  sluice bench programs --mixes graph --rounds 4:4   four rounds, whatever they decide
  sluice bench programs --limit-s 540                as much as fits; run it again to go on
  sluice bench programs --mixes gang --conditions default,ranks=first   two GPUs; skipped where there is one
  sluice bench programs --mixes decode+prefill --conditions "default,target=p99=1.2x,policy=device:400us"
  sluice bench programs --mixes kernels --conditions default,slice=off,"policy=none slice=100us"
  sluice bench programs --mixes pairs --conditions default,policy=event:1,announce=2ms
  sluice bench programs --mixes llama-token-busy+matrix-products --conditions default,give=0 --learn 40
  sluice bench programs --mixes kernels-1ms+kernels-1ms:2 --conditions weights=1:1,weights=3:1
  sluice bench programs --modes "MPS + priority" --mixes busy --conditions "default,sms=50%%,sms=25%%+policy=none"
  sluice bench programs --table results/programs     makes table and page anew, without a GPU

Conditions take turns, a window each, in the same processes: each program alone, all of them bare (as without
Sluice: policy none, no short slices, equal priorities), and those of --conditions: default, or words of
  policy=P slice=S weights=A:B    of the best-effort programs; with spaces or + between them
  sms=W                           the same, as sms=50%%: of the SMs; only under MPS. They have a process for each
                                  width, of which one at a time works, and each takes GPU memory
  ranks=first                     of a best-effort program with several processes, only the first is held
  target=T give=10%%               of the critical program, in a process of its own: these hold from its start
  announce=2ms                    the same; it announces each request to Sluice so long before it arrives

A mix is CRITICAL+OTHER[+OTHER...] of any of these programs, or a kind:
%(kinds)s
programs that serve requests, and so can be critical; NAME-busy serves them back to back:
%(serving)s
programs that make steps:
%(stepping)s
NAME@1 runs on the next GPU, NAME:2 is a second copy.

exit codes: 0: all went well, also where the limit ended it; 1: a window failed (it is measured again
by the next call); 2: wrong usage
"""
_CSV = "programs.csv"
_SWITCH_S = 0.3  # to set, start and pause the programs of a window
_LOADING_S = 30


def _epilog() -> str:
    def listed(serves: bool) -> str:
        chosen = [program for program in plan.PROGRAMS.values() if program.serves == serves]
        return "\n".join(f"  {program.name:20}{program.text}" for program in chosen)

    kinds = "\n".join(f"  {kind:12}{' '.join(mix.name for mix in mixes)}" for kind, mixes in plan.KINDS.items())
    return _EXAMPLES % {"kinds": kinds, "serving": listed(True), "stepping": listed(False)}


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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench programs",
        description="Measure programs that Sluice was not tuned on: alone, together as without Sluice, and together "
        "under its default, in turns. Says for each mix whether Sluice is worse than no Sluice, by a test. What is in "
        "the CSV of --out already is not measured again.",
        epilog=_epilog(),
    )
    add = parser.add_argument
    add("--mixes", type=_list_of(plan.mixes_of), default=[plan.MIXES], metavar="M,...", help="or kinds (default: all)")
    modes = ", ".join(plan.MODES)
    modes = f"of {modes} (default: the first); programs of another mode are other processes"
    add("--modes", type=_list_of(_one_of(plan.MODES)), default=[plan.TIME_SLICED], metavar="M,...", help=modes)
    one = [condition_of(DEFAULT)]
    add("--conditions", type=_list_of(condition_of), default=one, metavar="C,...", help="see below (default: default)")
    goes_on = (
        "in each, every condition has a window. The least: rounds go on until each axis is decided, at most "
        f"{rounds.MOST_ROUNDS}, or M if given (default 5)"
    )
    add("--rounds", type=rounds.rounds_of, default=rounds.rounds_of("5"), metavar="N[:M]", help=goes_on)
    settles = f"of which the first {SETTLE_S:g} s do not count"
    add("--window", type=float, default=2.0, metavar="S", help=f"a window lasts this long (default 2), {settles}")
    learns = "programs run so long before the first round: Sluice learns when to close gates (default 10)"
    add("--learn", type=float, default=10.0, metavar="S", help=learns)
    add("--limit-s", type=float, metavar="S", help="begin no window that would end later")
    add("--gpus", type=int, default=1, metavar="N", help="spread the mixes over the first N GPUs (default 1)")
    add("--device", type=int, default=0, metavar="N", help="index of the GPU, without --gpus")
    sim = "sim runs tiny models on the CPU: to try the command, not to measure"
    add("--gpu", choices=("real", "sim"), default="real", help=sim)
    out = Path("results/programs")
    add("--out", type=Path, default=out, metavar="DIR", help=f"default: {out}")
    add("--commit", metavar="TEXT", help="of the build, for the table (default: that of its checkout)")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--smoke", action="store_true", help="only run each program alone for a second, and print its speed")
    add("--table", type=Path, metavar="DIR", help=f"measure nothing: table and page of DIR/{_CSV}")
    # For the tests: a stand-in for the programs. worker: measures for another call, which has locked --out.
    add("--programs", type=Path, help=argparse.SUPPRESS)
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def _options(arguments: list) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    positive = {"--gpus": options.gpus}
    positive |= {"--limit-s": options.limit_s} if options.limit_s is not None else {}
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise usage_error(f"{name} must be above 0")
    if options.gpus > 1 and (options.device or options.smoke):
        raise usage_error("--gpus takes the first N GPUs, and neither --device nor --smoke")
    if not SETTLE_S < options.window < math.inf:
        raise usage_error(f"--window must be above {SETTLE_S:g}: its first {SETTLE_S:g} s do not count")
    if not 0 <= options.learn < math.inf:
        raise usage_error("--learn must be 0 or more")
    options.mixes = list(dict.fromkeys(mix for mixes in options.mixes for mix in mixes))
    wanted = dict.fromkeys([condition_of(BARE), *options.conditions])
    options.conditions = list(wanted)
    if options.modes == [plan.TIME_SLICED] and any(one.width != WHOLE for one in wanted):
        raise usage_error("sms= needs MPS: --modes 'MPS + priority'")
    options.uuids = []
    return options


def _groups(options, rows: Rows) -> list[Group]:
    return [_group(options, rows, mix, mode) for mix in options.mixes for mode in options.modes]


def _seconds(options, mix: plan.Mix, condition: Condition) -> float:
    """About how long a condition takes in a round."""
    one, several = options.window + _SWITCH_S, len(mix.best_effort)
    if condition.name == BEST_EFFORT_ALONE:
        return several * one
    return one + MORE_FOR_SEVERAL_S * (several > 1 and not condition.name.startswith(ALONE))


def _group(options, rows: Rows, mix: plan.Mix, mode: str) -> Group:
    """One loading of the programs. Every second round goes through the conditions backwards, so that none always comes
    after the same one."""
    found = {}
    wanted = conditions.cells(mix, options.conditions, mode)
    for round_ in range(1, options.rounds.most + 1):
        for condition in wanted if round_ % 2 else reversed(wanted):
            found[Cell(mix.name, mode, condition.name, round_, _seconds(options, mix, condition))] = condition

    def further() -> list[Cell]:
        """Of the next round, while something is undecided; a round that was begun is ended."""
        missing = [cell for cell in found if not rows.has(cell)]
        own = [cell for cell in found if missing and cell.repeat == missing[0].repeat]
        missing = [cell for cell in own if cell in missing]
        if not missing or len(missing) < len(own):
            return missing
        undecided = rounds.undecided([r for r in rows.rows if (r["subject"], r["mode"]) == (mix.name, mode)])
        if undecided:
            progress.say(
                f"{mix.name}, {mode}: round {own[0].repeat} of at most {options.rounds.most}, because undecided: "
                f"{rounds.said(undecided)}"
            )
        return missing if undecided else []

    @contextlib.contextmanager
    def opened():
        missing = [found[cell] for cell in found if not rows.has(cell)]
        owns, widths = ({getattr(one, what) for one in missing} for what in ("own", "width"))
        needed = [one for one in wanted if one.own in owns and one.width in widths]
        with stage(options, mix, mode, needed) as loaded:
            yield lambda cell: loaded.measure(found[cell], cell.repeat)

    return Group([cell for cell in found if cell.repeat <= options.rounds.least], opened, further)


def _without_gpus(options) -> None:
    """Takes away the mixes that need more GPUs than there are, with a line for each."""
    there = 1 if options.worker or options.gpus > 1 else max(len(options.uuids), 1)
    left_out = [mix for mix in options.mixes if mix.gpus > there]
    for mix in left_out:
        why = "--gpus measures on one GPU at a time" if options.worker or options.gpus > 1 else "there is one"
        progress.say(f"{mix.name}: skipped, needs {mix.gpus} GPUs, and {why}")
    options.mixes = [mix for mix in options.mixes if mix not in left_out]


def _say_estimate(options, groups: list[Group], rows: Rows) -> None:
    groups = [group for group in groups if any(not rows.has(cell) for cell in group.cells)]
    windows = sum(cell.seconds for group in groups for cell in group.cells if not rows.has(cell))
    learning = len(groups) * options.learn * sum(condition.hooked for condition in options.conditions)
    total = (windows + learning + len(groups) * _LOADING_S) / 60
    more = options.rounds.most > options.rounds.least
    progress.say(
        f"{len(groups)} mixes and modes, {options.rounds.least} rounds{' or more' if more else ''}: "
        f"{'at least' if more else 'about'} {total:.1f} min, of which {windows / 60:.1f} are windows and "
        f"{learning / 60:.1f} learning; loading is taken to last {_LOADING_S} s for each"
    )
    if more and windows:
        progress.say(
            f"rounds go on until each axis is decided, at most {options.rounds.most}; one of all takes "
            f"{windows / options.rounds.least / 60:.1f} min"
        )


def _use_gpu(options) -> str:
    """Chooses which GPUs the programs see, the one of --device first. Gives its name."""
    if options.gpu == "sim":
        return "CPU (tiny models), simulated GPU (kernels)"
    found = gpus(options.sluice, "real", options.device, ON_CPU)["devices"]
    if options.gpus > len(found):
        raise usage_error(f"--gpus: found {options.gpus}, and there are {len(found)} GPUs here")
    if len(found) > 1:
        options.uuids = [one["uuid"] for one in found[options.device :] + found[: options.device]]
    return found[options.device]["name"]


def _measure(options, rows: Rows, name: str) -> int:
    machine = {
        "gpu": name,
        "driver": driver_and_slices(options.sluice, options.device, ON_CPU) if options.gpu == "real" else "",
        "torch": torch_version(),
        "sluice": version(options.sluice),
        "commit": options.commit,
    }
    groups = _groups(options, rows)
    _say_estimate(options, groups, rows)
    label = f"sluice bench, GPU {options.device}" if options.worker else "sluice bench"
    result = Sitting(label, rows, groups, options.limit_s, machine, progress.one_line).run()
    if result.left:
        progress.say(f"{result.left} windows are left; the same command goes on")
    return result.exit_code


def _run(options) -> int:
    if options.table:
        if not (options.table / _CSV).is_file():
            raise usage_error(f"no {_CSV} in {options.table}")
        report.show(Rows(options.table / _CSV, FIELDS, older=True), options.table, options.json)
        return EXIT_FINE
    options.sluice = sluice_program()
    name = _use_gpu(options)
    options.commit = commit(options.sluice) if options.commit is None else options.commit
    _without_gpus(options)
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
