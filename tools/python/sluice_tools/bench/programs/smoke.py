"""Every program alone for a second: whether it works, and how fast it is."""

import contextlib
import time
from collections.abc import Iterator

from sluice_tools.bench.common.numbers import jobs_between
from sluice_tools.bench.common.talker import Talker
from sluice_tools.bench.programs import starting
from sluice_tools.bench.programs.plan import PROGRAMS, Program
from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE
from sluice_tools.measure.statistics import percentile

_SECONDS = 1.0
_AT_ONCE = 4  # programs that are loaded together


def smoke(options) -> int:
    """Prints a line for each program. Gives the exit code."""
    failed = []
    programs = [program for program in PROGRAMS.values() if program.gpus <= max(len(options.uuids), 1)]
    for name in PROGRAMS.keys() - {program.name for program in programs}:
        print(f"{name:20} skipped: needs two GPUs")
    for first in range(0, len(programs), _AT_ONCE):
        with _started(options, programs[first : first + _AT_ONCE]) as talkers:
            for program, talker in talkers:
                try:
                    said = _measure(options, program, talker)
                except RuntimeError as error:
                    failed.append(program.name)
                    log = starting.keep_output(options.out, talker)
                    said = f"FAILED: {str(error).removeprefix(f'{program.name}: ')}" + (f" ({log})" if log else "")
                print(f"{program.name:20} {said}", flush=True)
    print(f"{len(programs) - len(failed)} of {len(programs)} programs work")
    return EXIT_FAILED if failed else EXIT_FINE


@contextlib.contextmanager
def _started(options, programs: list[Program]) -> Iterator[list[tuple[Program, Talker]]]:
    with contextlib.ExitStack() as stack:
        talkers = []
        for program in programs:
            talker = Talker(starting.command(options, program), starting.environment(options, program, options.uuids))
            stack.callback(talker.end)
            talker.name = program.name
            talkers.append((program, talker))
        for talker in [talker for _, talker in talkers]:
            with contextlib.suppress(RuntimeError):  # of a program that has ended: _measure() hears why
                talker.say("load")  # which waits until the program has imported its packages
        yield talkers
        for _, talker in talkers:
            talker.ask_to_quit()


def _measure(options, program: Program, talker: Talker) -> str:
    talker.hear("imported", starting.LOADING_S)
    began = time.monotonic()
    talker.hear("loaded", starting.LOADING_S)
    loading = f", loaded in {time.monotonic() - began:.0f} s"
    if not program.serves:
        starting.run(talker, program, options.gpu == "sim")
        time.sleep(_SECONDS)
        ends = talker.ask("idle", "idle", starting.ANSWER_S)["ends_ns"]
        steps = jobs_between(ends, ends[0], ends[-1])
        return f"{steps / max(ends[-1] - ends[0], 1) * 1e9:.1f} steps/s{loading}"
    starting.run(talker, program, options.gpu == "sim", seed=1)
    time.sleep(_SECONDS)
    served = talker.ask("idle", "idle", starting.ANSWER_S, until_ns=time.monotonic_ns())["served_ns"]
    latency = percentile([(end - due) / 1e6 for due, _, end in served], 0.5) or 0
    work = percentile([(end - began) / 1e6 for _, began, end in served], 0.5) or 0
    return f"p50 {latency:.2f} ms, of which work {work:.2f} ms, {len(served)} requests{loading}"
