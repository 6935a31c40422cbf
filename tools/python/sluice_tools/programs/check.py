"""Does TVM work here, and does a pack hold together?"""

from pathlib import Path

from sluice_tools.common.errors import EXIT_FAILED, EXIT_FINE
from sluice_tools.programs import knobs, pack

_FEATURES = 164


def check_pack(path: Path) -> int:
    """Prints one line: what the pack has, or its first fault."""
    counts = {"network": 0, "task": 0, "program": 0}
    tasks: dict[str, dict] = {}
    fault, torn = None, []
    for number, item in enumerate(pack.read_lines(path, torn.append)):
        if number == 0 and item["kind"] != "pack":
            fault = "the first line is no pack line"
        if item["kind"] == "task":
            tasks[item["task"]] = item
        if item["kind"] == "program":
            fault = _fault_of(item, tasks)
        if fault:
            print(f"{path}: line {number + 1}: {fault}")
            return EXIT_FAILED
        counts[item["kind"]] = counts.get(item["kind"], 0) + 1
    said = f"{counts['network']} networks, {counts['task']} tasks, {counts['program']} programs"
    print(f"{path}: {said}" + ("; torn: its last piece is not complete, make --resume goes on with it" if torn else ""))
    return EXIT_FAILED if torn else EXIT_FINE


def _fault_of(program: dict, tasks: dict[str, dict]) -> str | None:
    task = tasks.get(program["task"])
    if task is None:
        return f"program of task {program['task']}, which no line before describes"
    size = sum(map(knobs.size, task["sketches"]))
    if not 0 <= program["index"] <= size:
        return f"index {program['index']} is none of the {size} programs of its task"
    # The index behind the last is TVM's own schedule.
    found = knobs.entity_of(task["sketches"], program["index"]) if program["index"] < size else (0, [])
    if found != (program["sketch"], program["entity"]):
        return f"index {program['index']} does not give the program's decisions"
    if any(len(row) != _FEATURES for row in program.get("features", [])):
        return f"a row of features is not {_FEATURES} wide"
    if len(program.get("features", [])) != len(program.get("position", [])):
        return "features and positions differ in number"
    return None


def check_installation() -> int:
    """Makes one program for each target, and runs the one for the CPU."""
    from sluice_tools.programs import cpu, models, networks, programs
    from sluice_tools.programs.tvm_setup import FFI_VERSION, TVM_VERSION, target_of

    print(f"TVM {TVM_VERSION}, ffi {FFI_VERSION}")
    for text in ("cuda -arch=sm_90", "llvm"):
        _, tasks = networks.extract("dense-64", 1, models.load("simple", "dense-64", 1), target_of(text))
        lines, _ = programs.sample(tasks[0], 1, 0, {"source", "features"})
        if not lines:
            print(f"{text}: no valid program of dense-64")
            return EXIT_FAILED
        said = f"{len(lines[0].get('source', ''))} bytes of CUDA C"
        if text == "llvm":
            seconds, correct = cpu.Timer().time(tasks[0], lines[0]["index"], 1, 3, 1)
            # No times: the machine stood still for so long.
            took = f"{min(seconds) * 1e6:.1f} us" if seconds else f"more than {cpu.LONGEST_S:g} s"
            said = f"{took}, result {'as expected' if correct else 'WRONG'}"
            if not correct:
                print(f"{text}: {said}")
                return EXIT_FAILED
        print(f"{text}: {said}")
    return EXIT_FINE
