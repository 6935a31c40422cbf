"""`--gpus N`: a process for each GPU, which measures its part of the mixes into the same CSV."""

import subprocess
import sys
import time

from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED

_LOOK_S = 0.1
_END_S = 30


def parts(mixes: list, workers: int) -> list[list]:
    """As equal as possible; no empty ones."""
    return [part for part in (mixes[first::workers] for first in range(workers)) if part]


def command(options, index: int, mixes: list) -> list[str]:
    """The call that measures `mixes` on GPU `index`."""
    passed = {
        "--mixes": ",".join(mix.name for mix in mixes),
        "--modes": ",".join(options.modes),
        "--conditions": ",".join(condition.name for condition in options.conditions),
        "--window": options.window,
        "--rounds": options.rounds,
        "--learn": options.learn,
        "--commit": options.commit,
        "--device": index if options.gpu == "real" else 0,
        "--gpu": options.gpu,
        "--out": options.out,
    }
    if options.limit_s is not None:
        passed["--limit-s"] = options.limit_s
    if options.programs:
        passed["--programs"] = options.programs
    words = [str(word) for pair in passed.items() for word in pair]
    return [sys.executable, "-m", "sluice_tools.bench", "programs", "--worker", *words]


def run_workers(options) -> int:
    """Waits for all. Gives the worst exit code. What interrupts this process ends them too."""
    processes = [
        subprocess.Popen(command(options, index, part), stdin=subprocess.DEVNULL)
        for index, part in enumerate(parts(list(options.mixes), options.gpus))
    ]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:  # they got it from the terminal, too
        _end(processes)
        return EXIT_INTERRUPTED
    finally:
        _end(processes)
    codes = {process.returncode for process in processes}
    return EXIT_FINE if codes == {EXIT_FINE} else EXIT_FAILED


def _end(processes: list[subprocess.Popen]) -> None:
    """They end their programs, which takes a while."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
