"""Runs the CUDA C of a program of a pack on this CPU, with cuda_on_cpu.hpp."""

import re
import subprocess
from pathlib import Path

import numpy

_HEADER = Path(__file__).parent / "cuda_on_cpu.hpp"


def run(program: dict, arrays: list[numpy.ndarray], folder: Path) -> None:
    """Launches the kernels of `program`. `arrays` are the task's buffers; outputs are written in place."""
    source = program["source"]
    defined = "\n".join(re.findall(r"^#define CUDART.*$", source, re.M))
    source = defined + "\n" + source.split("typedef unsigned short ushort;\n", 1)[1]
    source = re.sub(r"\basm volatile\(.*?\);", ";", source, flags=re.S)
    source = source.replace("__shared__ alignas(64)", "alignas(64) static")
    launches = []
    for kernel in program["kernels"]:
        types = re.search(rf"void [^;{{]*\b{kernel['name']}\(([^)]*)\);", source)[1].split(",")
        casts = [
            f"({re.sub(r'__restrict__.*', '', kind)})emulation::buffers[{n}]" for kind, n in zip(types, kernel["args"])
        ]
        grid, block = ("{" + ",".join(f"{n}u" for n in kernel[part]) + "}" for part in ("grid", "block"))
        launches.append(f"emulation::launch({grid}, {block}, [] {{ {kernel['name']}({', '.join(casts)}); }});")
    sizes = ", ".join(map(str, [*(array.nbytes for array in arrays), *program["extra"]]))
    code = f'#include "{_HEADER}"\n{source}\nvoid run() {{ {" ".join(launches)} }}\n'
    (folder / "program.cpp").write_text(code + f"int main() {{ return emulation::on_files({{{sizes}}}, run); }}\n")
    command = ["g++", "-std=c++20", "-O1", "-w", "-o", str(folder / "program"), str(folder / "program.cpp")]
    subprocess.run(command, check=True)
    # Scratch begins as NaN, in case a kernel reads before it writes.
    scratch = [numpy.full(size, 0xFF, "uint8") for size in program["extra"]]
    for number, array in enumerate([*arrays, *scratch]):
        array.tofile(folder / f"{number}.bin")
    # In a process of its own: a kernel with wrong arguments may write anywhere.
    subprocess.run([str(folder / "program")], check=True, cwd=folder, timeout=100)
    for number, array in enumerate(arrays):
        array[...] = numpy.fromfile(folder / f"{number}.bin", array.dtype).reshape(array.shape)
