"""The table of all programs: those of the binary (driver/, runtime/) and those of py/."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Program:
    name: str
    wall: float = 3.0  # s, without Sluice, alone; a guess for the schedule
    kind: str = "cpp"
    gpus: int = 1
    limit: float = 25.0  # s, at most, in mode a
    compare: bool = True  # the sums of all modes
    known: str = ""  # why it cannot pass
    slow: str = ""  # why it is slow: what was measured on an H200 with pairs.py (README.md)
    modes: str = "abdc"
    sim: list[str] | None = None  # its arguments on the simulated GPU, where it can run
    script: str = ""  # in py/, if its name is another one


def py(name: str, wall: float = 12.0, **more) -> Program:
    return Program(name, wall, "py", limit=90, **more)


cpp = Program

HELD = "its host works on while the neighbour runs; under Sluice it is held for the 37 % of the time of its jobs"

# In the order of what is most worth knowing.
PROGRAMS = [
    py("torch_compile", 40),
    cpp("fullqueue", limit=60, sim=["2"]),
    cpp("spingraph"),
    cpp("meet8"),
    cpp("meet24on8"),
    cpp("meet32", slow="+27 us for 32 streams that meet, of 139"),
    cpp("persistent"),
    cpp("capture2", slow="+17 us for a graph that is captured anew, of 131"),
    cpp("streams100", slow="+0.4 us a launch: a thread remembers a few streams, and looks up each of 100 in turn"),
    cpp("threads100", sim=["4"]),
    cpp("eventpoll"),
    cpp("pushpop", sim=["2000"]),
    cpp("reset", 5),
    py("jax_loops"),
    py("torch_loader", 15, modes="abc"),
    cpp(
        "graph_update",
        slow=f"+0.7 us for each of 500 kernels that are captured anew in each step; next to a neighbour: {HELD}",
    ),
    cpp("graph_while"),
    cpp("graph_device"),
    cpp("graph_events"),
    cpp("graph_big"),
    cpp("graph_many", slow=f"next to a neighbour: {HELD}"),
    cpp(
        "graph_memory",
        slow=f"+39 us for two graphs with memory and children, made and destroyed, of 229; next to a neighbour: {HELD}",
    ),
    cpp("cdp"),
    cpp("pdl"),
    cpp("coop"),
    cpp("attributes"),
    cpp("green", 4),
    cpp("contexts", 5),
    cpp("primary", 5),
    py("cupy_mix"),
    py("triton_mix"),
    py("cuda_core"),
    cpp("waitvalue", sim=["100"]),
    cpp("waitvalue_host", sim=["3"]),
    cpp("hostfunc"),
    cpp("legacymix", slow="+12 us a step, of 39"),
    cpp("streamchurn", slow="+7 us for a stream that is made, used and destroyed, of 34"),
    cpp("threadchurn", sim=["30"], slow="+28 us for a thread that comes, launches and ends, of 83"),
    cpp("ipc"),
    cpp("mapped_flags", 5, compare=False),
    cpp("fork_after"),
    cpp("fork_before", 5, modes="abc"),
    cpp("endings", 12, limit=60, modes="abc"),
    py("torch_profiler", 15, modes="abc"),
    py("torch_allocs"),
    py("blocking"),
    py("generate", 15),
    cpp("syncloop", sim=["500"]),
    cpp("tiny"),
    cpp("tiny_driver", sim=["2000"]),
    cpp("onecpu", sim=["1000"]),
    cpp("alarms", sim=["1000"]),
    cpp("closefds", sim=[]),
    cpp("smallstack", slow="next to a neighbour: many streams have waits at once (policies.md, Many streams)"),
    cpp("dlopen", sim=[]),
    cpp(
        "shim",
        sim=["1000"],
        known="exec puts the interposer in front of other preloads, and it calls the driver itself",
    ),
    cpp("modules", sim=["5"], slow=f"next to a neighbour: {HELD}; and new kernels are unknown, so each has a wait"),
    cpp("pool", slow="+1.9 us for an allocation and a free in a stream, of 15"),
    cpp("vmm"),
    cpp("pinned", 6),
    cpp("managed", 4),
    cpp("longkernel", 4),
    cpp("eight", 6, modes="abc"),
    cpp("cleanenv", modes="ab"),
    cpp(
        "inversion_pipe",
        4,
        sim=[],
        slow="+147 us a round: its other process runs once the end of the job has been seen",
    ),
    cpp("inversion_gpu", modes="ab", known="a cycle; max_hold of 10 s ends each hold"),
    py("torch_spawn8", 25, modes="abc"),
    py("gp_and_gcn", 15, modes="abc"),
    py("numpyro_nuts", 25, modes="abc"),
    py("torch_ddp", 20, gpus=2, known="docs: give the whole group one priority, none next to critical jobs"),
    py("jax_pmap", 20, gpus=2),
    py("torch_ddp4", 20, gpus=4, script="torch_ddp"),
]
