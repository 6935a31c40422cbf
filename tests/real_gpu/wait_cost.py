"""The GPU time of stream waits: kernels of 20 us back to back, with and without waits between them.

    python3 tests/real_gpu/wait_cost.py [--json] [--rounds N]

Runs without Sluice, on words whose condition is always true. Measures a stream and one CUDA graph;
page-locked host memory, which contains the board, and GPU memory; one wait, two waits (for slack and for
the gate, in front of a long launch while jobs are announced), and two waits in one batch. Prints the
additional us per kernel: median and range of N (15) rounds of 400. Needs torch with an NVIDIA GPU.
"""

import ctypes
import json
import statistics
import sys

import torch

if not torch.cuda.is_available():
    sys.exit("wait_cost.py: torch finds no NVIDIA GPU")

_ROUNDS = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 15
_KERNELS = 400
_KERNEL_CYCLES = 40_000  # about 20 us
_GEQ, _EQ = 0, 1  # CU_STREAM_WAIT_VALUE_*
_WAIT_64 = 4  # CU_STREAM_MEM_OP_WAIT_VALUE_64

_driver = ctypes.CDLL("libcuda.so.1")


class _Wait(ctypes.Structure):
    """CUstreamBatchMemOpParams of a wait."""

    _fields_ = [
        ("operation", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("pad", ctypes.c_uint64),
    ]


def _check(result: int):
    if result != 0:
        raise RuntimeError(f"the driver returned {result}")


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def _wait(address: int, flags: int):
    _check(
        _driver.cuStreamWaitValue64_v2(_stream(), ctypes.c_uint64(address), ctypes.c_uint64(0), ctypes.c_uint(flags))
    )


def _batch(address: int):
    waits = (_Wait * 2)(_Wait(_WAIT_64, address + 8, 0, _GEQ), _Wait(_WAIT_64, address, 0, _EQ))
    _check(_driver.cuStreamBatchMemOp_v2(_stream(), ctypes.c_uint(2), waits, ctypes.c_uint(0)))


def _ways(host: int, device: int) -> dict:
    """Maps each name to the waits in front of each kernel."""

    def two(address):
        _wait(address + 8, _GEQ)
        _wait(address, _EQ)

    return {
        "nothing": lambda: None,
        "a wait, host memory": lambda: _wait(host, _EQ),
        "two waits, host memory": lambda: two(host),
        "a batch of two, host memory": lambda: _batch(host),
        "a wait, GPU memory": lambda: _wait(device, _EQ),
        "a batch of two, GPU memory": lambda: _batch(device),
    }


def _kernels(before):
    for _ in range(_KERNELS):
        before()
        torch.cuda._sleep(_KERNEL_CYCLES)


def _us_per_kernel(work) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(20 * _KERNEL_CYCLES)  # keeps the host ahead of the GPU
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / _KERNELS


def _graph_of(before):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _kernels(before)
    return graph.replay


def _measure(works: dict) -> dict:
    """Maps each name to (median, minimum, maximum) of the additional us per kernel."""
    seen = {name: [] for name in works}
    for round_ in range(_ROUNDS + 1):
        for name, work in works.items():
            us = _us_per_kernel(work)
            if round_ > 0:
                seen[name].append(us)
    base = statistics.median(seen.pop("nothing"))
    print(f"{base:.2f} us per kernel", file=sys.stderr)
    return {name: [round(of(us) - base, 2) for of in (statistics.median, min, max)] for name, us in seen.items()}


def main():
    words = torch.zeros(2, dtype=torch.int64, pin_memory=True)
    on_gpu = torch.zeros(2, dtype=torch.int64, device="cuda")
    ways = _ways(words.data_ptr(), on_gpu.data_ptr())
    found = {
        "stream": _measure({name: lambda before=before: _kernels(before) for name, before in ways.items()}),
        "graph": _measure({name: _graph_of(before) for name, before in ways.items()}),
    }
    if "--json" in sys.argv:
        print(json.dumps({"gpu": torch.cuda.get_device_name()} | found))
        return
    print(torch.cuda.get_device_name())
    for where, figures in found.items():
        for name, (middle, least, most) in figures.items():
            print(f"{where:7} {name:28} {middle:6.2f} us [{least:.2f}-{most:.2f}]")


if __name__ == "__main__":
    main()
