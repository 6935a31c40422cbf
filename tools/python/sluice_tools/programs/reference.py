"""The folder of `sluice opbench measure --reference`: inputs and expected outputs of the tasks of packs."""

import shutil
from pathlib import Path

from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE
from sluice_tools.programs import catalog, cpu, models, networks, pack
from sluice_tools.programs.make import left_out_if_it_fails, say
from sluice_tools.programs.tvm_setup import target_of

_SEED = 0


def write(packs: list[Path], out: Path) -> int:
    """A task whose folder is there is not written again."""
    wanted: dict[str, None] = {}
    for path in packs:
        head, *items = (item for item in pack.read_lines(path) if item["kind"] in ("pack", "network", "task"))
        tasks = {item["task"]: None for item in items if item["kind"] == "task"}
        wanted |= tasks
        for network in items:
            if network["kind"] == "network":
                _write_network(network, tasks, head["target"], out)
    there = sum((out / task).is_dir() for task in wanted)
    missing = len(wanted) - there
    because = f"; {missing} cannot be made: another TVM or PyTorch made them, or see above" if missing else ""
    say(f"{out}: {there} of {len(wanted)} tasks{because}")
    return EXIT_FINE if there or not wanted else EXIT_FAILED


def _write_network(network: dict, wanted: dict, target: str, out: Path) -> None:
    name, batch = network["name"], network["batch"]
    missing = {call["task"] for call in network["calls"] if call["task"] in wanted}
    missing = {task for task in missing if not (out / task).is_dir()}
    tasks: list[networks.Task] = []
    if missing:
        with left_out_if_it_fails(name, batch):
            mod = models.load(catalog.source_of(name), name, batch)
            tasks = networks.extract(name, batch, mod, target_of(target))[1]
            say(f"{name} batch {batch}: {len(missing)} tasks to write")
    for task in tasks:
        if task.id in missing:
            with left_out_if_it_fails(f"{task.name} of {name}", batch):
                unfinished = out / f"{task.id}.unfinished"
                try:
                    cpu.write_reference(task, _SEED, str(unfinished))
                    unfinished.rename(out / task.id)
                finally:
                    shutil.rmtree(unfinished, ignore_errors=True)
