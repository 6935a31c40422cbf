"""Starting the programs: their commands and environments, and what to do with one that fails."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sluice_tools.bench.common.talker import Talker
from sluice_tools.bench.programs.plan import Program

LOADING_S = 150  # the first import on a fresh machine reads gigabytes
ANSWER_S = 30  # a program that says nothing for this long hangs
_LINES = 60  # of its output, in the log of a program that failed


def command(options, program: Program, announce_ms: float = 0.0) -> list[str]:
    run = ["-m", "sluice_tools.bench.programs.program"] if not options.programs else [str(options.programs)]
    tiny = ("--device", "cpu", "--tiny") if options.gpu == "sim" else ()
    announces = ("--announce-ms", str(announce_ms)) if announce_ms else ()
    return [sys.executable, *run, program.name, *tiny, *announces]


def environment(options, program: Program, uuids: Sequence[str] = ()) -> dict:
    """What compilers choose is kept on the disk, so that all processes of a program have the same kernels.

    uuids: of the GPUs, the first of the measurement first; without any, the program sees all there are. By UUID: under
    MPS the daemon and its clients would count the indices differently.
    """
    cache = (options.out / "cache").resolve()
    shared = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if options.gpu == "sim":
        on_cpu = {"JAX_PLATFORMS": "cpu", "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        return shared | ({} if program.simulated else on_cpu)
    if not uuids:
        return shared
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(uuids[index] for index in program.devices)}
    return shared | seen


def run(talker: Talker, program: Program, tiny: bool, seed: int = 0) -> None:
    """Lets an idle program run. seed: of its arrivals."""
    arrivals = {"period_ms": program.period_ms(tiny), "arrivals": program.arrivals, "seed": seed}
    talker.ask("run", "running", ANSWER_S, **(arrivals if program.serves else {}))


def load(programs: list[Talker]) -> None:
    """All at the same time. Raises RuntimeError."""
    for program in programs:
        program.hear("imported", LOADING_S)
        program.say("load")
    for program in programs:
        program.hear("loaded", LOADING_S)


def keep_output(folder: Path, program: Talker) -> Path | None:
    """Writes the last lines that the program printed; None if it printed nothing."""
    program.said()  # waits for the thread that reads
    lines = [text for _, text in program.lines[-_LINES:]]
    if not lines:
        return None
    file = folder / f"{program.name.replace(' ', '-')}.log"
    file.write_text("\n".join(lines) + "\n")
    return file
