"""The command line of `sluice compare`."""

import argparse
import contextlib
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, CommandError, Parser, run_error, usage_error
from sluice_tools.common.grammar import WHOLE, Target, required_policy, required_target
from sluice_tools.compare import show
from sluice_tools.compare.answer import MOST_ROUNDS, Answer, decide
from sluice_tools.compare.choice import MPS_PRIORITY, TIME_SLICED, WIDTHS, Choice, Way, cell_of, choose
from sluice_tools.measure import ends, table, verdict
from sluice_tools.measure.commands import Commands, Requests, Setting, Timing
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.load import Latency, run_once
from sluice_tools.measure.needs import gpus, need_mps, others_on_gpu, time_scale, version
from sluice_tools.measure.programs import mps
from sluice_tools.measure.rows import (
    BEST_EFFORT,
    CRITICAL,
    FIELDS,
    KEY,
    TARGET_FIELDS,
    Cell,
    Rows,
    claim,
    output_folder,
)  # fmt: skip
from sluice_tools.measure.sitting import Group, Outcome, Sitting
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, one_line, summarize

_USAGE = "sluice compare [OPTIONS] -- CRITICAL COMMAND -- BEST-EFFORT COMMAND"
_EXAMPLES = """\
Both commands must run until SIGTERM ends them. They need no change: a job of
the critical command begins with the first launch when the command is idle, and
ends when its GPU work is done. A command that is never idle is compared by its
steps. The speed of the best-effort command is its launches per second.

A server that waits for requests needs a load generator: --load runs a shell
command when the server is ready, and again whenever it ends. The first verdict
comes after one round, of about a minute and the time to load; more rounds
follow until it is sure.

examples:
  sluice compare -- python serve_and_send.py -- python train.py
  sluice compare --load 'hey -z 1h http://127.0.0.1:8000/' \\
      -- uvicorn app:app -- python train.py
  sluice compare --ready http://127.0.0.1:8000/health --load ./send.sh \\
      --latency 'took ([0-9.]+) ms' -- vllm serve MODEL -- python train.py
  sluice compare --target p99=20ms -- ./server_with_load -- python train.py
  sluice compare --gpu sim --seconds 5 -- sluice-example-spin --period-ms 20 \\
      -- sluice-example-spin

Called again with the same --out, it goes on. Files: compare.md, compare.json
and compare.html there. Exit codes: 0; 1 a cell failed, or nobody sent requests;
2 wrong usage; 130 ended by Ctrl-C (prints what is measured)
"""
BARE = "bare"
DEFAULT = "device:200us"
ROW_FIELDS = (*FIELDS, *TARGET_FIELDS, *ends.END_FIELDS)
_HELD = ("p50", "p99", "step p50", "step p99")  # what `sluice exec --target` takes, too
_FIGURES = (*_HELD, "mean", "max")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice compare",
        usage=_USAGE,
        epilog=_EXAMPLES,
        description="Is Sluice worth it for two programs of your own? Measures each alone, both as\n"
        "without Sluice (bare), and both with it, in rounds. Ends with a verdict, a table\nand a page.",
    )
    add = parser.add_argument
    add("--load", default="", metavar="CMD", help="a shell command that sends requests to the critical command")
    add(
        "--ready",
        default="",
        metavar="WHAT",
        help="when the load begins: a port that is open, a URL that answers, or a shell command that succeeds "
        "(default: the critical command listens on a port)",
    )
    add("--setup", default="", metavar="CMD", help="a shell command to run before the two of a round start")
    add("--cleanup", default="", metavar="CMD", help="and one to run after they have ended")
    add(
        "--latency",
        metavar="REGEX|FILE",
        help="the latency that counts, instead of jobs: what a group of this expression finds in the lines of the "
        "load generator, in ms (or in a group named us, ms, s; or p50, p99, mean of a summary), or the last number "
        "of each line that it appends to this file",
    )
    add("--policy", action="append", metavar="P", help=f"of best effort; may be given again (default: {DEFAULT})")
    add(
        "--target",
        action="append",
        default=[],
        metavar="T",
        help="what is good enough, as p99=20ms, p99=1.2x or 'step p99=25ms': also measures the critical command with "
        "this target (of p50 and p99), and chooses among several policies device:Tus; may be given again",
    )
    add("--seconds", type=float, default=8.0, metavar="S", help="measured time of a cell (default 8)")
    add("--warm-up", type=float, default=5.0, metavar="S", help="time before the measured time (default 5)")
    add("--start-limit", type=float, default=300.0, metavar="S", help="the longest that a command may load (300)")
    add("--repeats", type=int, metavar="N", help=f"rounds (default: until the answer is sure, at most {MOST_ROUNDS})")
    add(
        "--mps",
        action="store_true",
        help="also measure under an MPS daemon of its own, best effort with the lower client priority and in all, 50, "
        "25 and 12 %% of the SMs; says whether to use MPS, and which width (--sms of sluice exec)",
    )
    add("--gpu", choices=("real", "sim"), default="real", help="sim: the simulated GPU, for driver API programs")
    add("--out", type=Path, default=Path("results/compare"), metavar="DIR", help="default results/compare")
    add("--json", action="store_true", help="print JSON instead of the table")
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
    options.policies = list(dict.fromkeys(str(required_policy(text)) for text in options.policy or [DEFAULT]))
    if "none" in options.policies:
        raise usage_error("--policy: 'none' is always measured, as bare")
    options.targets = [(text, required_target(text, _FIGURES)) for text in dict.fromkeys(options.target)]
    rounds = MOST_ROUNDS if options.repeats is None else options.repeats
    if not all(0 < value < math.inf for value in (options.seconds, options.start_limit, rounds)):
        raise usage_error("--seconds, --start-limit and --repeats must be above 0")
    if options.ready and not options.load:
        raise usage_error("--ready says when --load begins, and there is no --load")
    if options.latency and not options.load:
        raise usage_error("--latency is what --load prints, and there is no --load")
    options.latency = Latency(options.latency) if options.latency else None
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
    return target.figure in _HELD


def _for_exec(text: str, target: Target, scale: float) -> str:
    """In real time; scale: real time per time of the GPU."""
    return text if target.relative or scale == 1 else f"{target.figure}={target.limit * 1e3 * scale:.0f}us"


@contextlib.contextmanager
def _prepared(options, folder: Path) -> Iterator[None]:
    """Between --setup and --cleanup."""
    log, environment = folder / "setup.log", {}
    folder.mkdir(parents=True, exist_ok=True)
    if options.setup and (why := run_once(options.setup, log, environment)):
        raise run_error(f"the --setup command {why}")
    try:
        yield
    finally:
        if options.cleanup and (why := run_once(options.cleanup, log, environment)):
            print(f"sluice compare: the --cleanup command {why}", file=sys.stderr)


def _conditions(options, held: dict[str, str], widths: tuple, repeat: int) -> dict[str, Setting]:
    """By the name of its cell, in the order of measuring. held: the targets of critical commands, by row.

    In turns, so that a drift of the machine favours none. Widths go back and forth, so that best effort starts seldom.
    """
    both, usual = (CRITICAL, BEST_EFFORT), _usual(options)
    together = {BARE: Setting(both, usual, bare=True)} | {policy: Setting(both, policy) for policy in options.policies}
    together |= {cell_of(usual, width): Setting(both, usual, width=width) for width in widths}
    back = repeat % 2 == 1
    found = {ALONE: Setting((CRITICAL,), usual)} | (together if back else dict(reversed(together.items())))
    for name, target in held.items():
        turn = reversed(widths) if back else widths
        found |= {cell_of(name, width): Setting(both, usual, target, width=width) for width in turn}
        back = not back
    found[BEST_EFFORT_ALONE] = Setting((BEST_EFFORT,), usual)
    return found


def _group(options, sluice: str, folder: Path, mode: str, scale: float, repeat: int) -> Group:
    """One round: the commands are started once, and again where a condition asks for it."""
    timing = Timing(options.seconds, options.warm_up, options.start_limit)
    held = {
        _row_of(text, options): _for_exec(text, target, scale) for text, target in options.targets if _is_held(target)
    }
    lasting = options.seconds + options.warm_up
    settings = _conditions(options, held, WIDTHS if mode == MPS_PRIORITY else (WHOLE,), repeat)

    logged = "-mps" if mode == MPS_PRIORITY else ""

    @contextlib.contextmanager
    def opened():
        output = folder / "output"
        requests = Requests(options.load, options.ready, options.latency)
        with (
            _prepared(options, output),
            mps(sluice, mode == MPS_PRIORITY) as environment,
            Commands(sluice, options.gpu, options.commands, timing, output, environment, scale, requests) as commands,
        ):
            yield lambda cell: commands.measure(
                settings[cell.name], re.sub(r"[ =,:%]+", "-", f"{cell.name}-{cell.repeat}{logged}")
            )

    return Group([Cell("", mode, name, repeat, lasting) for name in settings], opened)


def _settings(options, sluice: str, name: str) -> dict:
    """What the rows of one folder have in common. The folder: commands have relative paths."""
    return options.commands | {
        "folder": str(Path.cwd()),
        "gpu": name,
        "seconds": options.seconds,
        "warm_up": options.warm_up,
        "sluice": version(sluice),
        "load": options.load,
        "latency": options.latency.text if options.latency else "",
    }


def _said(options, entries: list[Entry]) -> list[str]:
    """What follows the answer: which T, and what targets bring."""
    by_cell = {entry.cell: entry for entry in entries}
    # T is chosen by what is measured of a latency, and a target of steps is judged by Sluice.
    wanted = [target for _, target in options.targets if not target.figure.startswith("step")]
    wanted = wanted or [None] * (not options.targets)
    found = [verdict.choose_spacing(entries, target, by_cell.get(BARE)) for target in wanted]
    found += [
        verdict.judge_target(text, by_cell[_row_of(text, options)], by_cell.get(_usual(options)))
        for text, _ in options.targets
        if _row_of(text, options) in by_cell
    ]
    return [text for text in found if text]


class _Comparison:
    """Rounds, until the answer is sure."""

    def __init__(self, options, sluice: str, gpu: dict, folder: Path, rows: Rows):
        self._options = options
        self._sluice = sluice
        self._name, self._uuid = gpu["name"], gpu["uuid"]
        self._folder = folder
        self._rows = rows
        self._modes = [TIME_SLICED, MPS_PRIORITY] if options.mps else [TIME_SLICED]
        self._others: dict[str, None] = {}

    def _chosen(self) -> tuple[str, list[dict]]:
        return ends.chosen([row for row in self._rows.rows if row["mode"] in self._modes])

    def _way(self, rows: list[dict]) -> tuple[Way, Choice | None]:
        """How to start the two; under --mps, the better of the modes and widths."""
        usual = _usual(self._options)
        choice = choose(rows, usual) if self._options.mps else None
        return (choice.way if choice else Way(TIME_SLICED, usual)), choice

    def _answer(self) -> Answer | None:
        counted, rows = self._chosen()
        if not rows:
            return None
        way, choice = self._way(rows)
        answer = decide([row for row in rows if row["mode"] == way.mode], BARE, way.cell, counted)
        answer.flags = way.flags
        if choice:
            answer.text.append(choice.text)
            answer.sure = answer.sure and choice.sure
        return answer

    def _describe(self, measured: list, _) -> str:
        counted, rows = self._chosen()
        keys = {tuple(row[name] for name in KEY) for row in measured}
        return one_line([row for row in rows if tuple(row[name] for name in KEY) in keys], rows, counted)

    def _look_around(self) -> None:
        """Says once who else uses the GPU: nobody else looks."""
        for text in others_on_gpu(self._uuid) if self._options.gpu == "real" else []:
            if text not in self._others:
                print(f"sluice compare: another program uses this GPU: {text}; end it, or its work counts, too",
                      file=sys.stderr)  # fmt: skip
            self._others[text] = None

    def _round(self, repeat: int) -> Outcome:
        self._look_around()
        groups = [
            _group(self._options, self._sluice, self._folder, mode, time_scale(self._name), repeat)
            for mode in self._modes
        ]
        sitting = Sitting("sluice compare", self._rows, groups, machine={"gpu": self._name}, describe=self._describe)
        if sitting.missing:
            print(f"sluice compare: round {repeat}", file=sys.stderr)
        return sitting.run()

    def measure(self) -> int:
        """The exit code."""
        most, code = self._options.repeats or MOST_ROUNDS, EXIT_FINE
        for repeat in range(1, most + 1):
            outcome = self._round(repeat)
            code = code or outcome.exit_code
            if outcome.interrupted:
                return outcome.exit_code
            answer = self._answer()
            if answer and repeat < most:
                print("\n".join(f"sluice compare: {text}" for text in answer.text), file=sys.stderr)
            if outcome.failed or (not self._options.repeats and answer and answer.sure):
                break
        return code

    def show(self) -> int:
        counted, rows = self._chosen()
        entries = summarize(rows, counted)
        failures = table.failures([row for row in self._rows.errors if row["mode"] in self._modes])
        head = show.about(self._options, self._name, " and ".join(self._modes), list(self._others))
        answer, mode = self._answer(), self._way(rows)[0].mode
        said = _said(self._options, [entry for entry in entries if entry.mode == mode])
        said += self._said_of_widths(rows)
        return show.Shown(self._options, head, entries, answer, said, failures).write(self._folder)

    def _said_of_widths(self, rows: list[dict]) -> list[str]:
        """For each target, how to start the two."""
        held = [(text, target) for text, target in self._options.targets if self._options.mps and _is_held(target)]
        found = [choose(rows, _row_of(text, self._options), text) for text, _ in held]
        return [choice.text for choice in found if choice]


def _run(options) -> int:
    sluice = sluice_program()
    gpu = gpus(sluice, options.gpu)["devices"][0]
    if options.mps:
        need_mps("time slicing (without --mps)")
    with output_folder(options.out) as folder:
        claim(
            folder / "commands.json",
            _settings(options, sluice, gpu["name"]),
            "the comparison of other commands, or of these with another --seconds, --warm-up, --load, --latency, GPU, "
            "folder or version",
        )
        rows = Rows(folder / "compare.csv", ROW_FIELDS)
        comparison = _Comparison(options, sluice, gpu, folder, rows)
        try:
            code = comparison.measure()
        except CommandError:
            if rows.rows:
                comparison.show()
            raise
        return comparison.show() or code if rows.rows or rows.errors else code or EXIT_FAILED


def main() -> int:
    return run_command("compare", lambda: _run(_options(sys.argv[1:])))
