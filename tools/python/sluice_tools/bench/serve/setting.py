"""What every part of `sluice bench serve` is given.

A part is a module with two functions. `run(setting)` measures what is missing, appends each cell to
`Lines(setting.out / "PART.jsonl")` as soon as it is known (lines.py has `measure`, which does so with progress and
the limit), and returns an exit code. `tables(folder)` gives the Markdown of what is in that file; an empty list if
there is none.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    sluice: str  # the program
    out: Path  # exists, and is locked
    store: Path  # of models: for `--store` and SLUICE_MODELS
    gpu: str  # real, or sim: the CPU and the simulated GPU, with tiny models
    device: int  # index of the GPU
    seconds: float  # that a cell lasts
    repeats: int
    deadline: float | None = None  # time.monotonic() at which the last cell must have ended
    triton: str | None = None  # the tritonserver of --triton
    # For the part `order`; None: all.
    loads: list[float] | None = None
    schedulers: list[str] | None = None
    law: str = "poisson"
    # For the part `colocate`; None: all systems and loads, and no limit to the memory of inference and training.
    systems: list[str] | None = None
    traffic: list[str] | None = None
    pools_gb: list[float] | None = None
    models: int = 64
    programs: Path | None = None  # a stand-in for the training program

    @property
    def tiny(self) -> bool:
        return self.gpu == "sim"
