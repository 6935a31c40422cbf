"""The critical process of the check `parked`: inside one long job it allocates, frees, loads
modules and launches, by driver calls that no library's cache answers. Run under `sluice exec`."""

import argparse
import ctypes
import json
import statistics
import sys
import time

# An empty kernel: what a module load and a launch cost at least.
_PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"
_SIZE = 64 << 20  # bytes: large enough that the driver asks the system for memory
_BEFORE_S = 1.0  # until the other process has filled its queue


def _driver():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} returned CUresult {result}")

    return call


def _calls(call) -> dict:
    """name -> a function that does it once."""
    pointer, module, function = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    host, data = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 20)
    kept, small = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuModuleLoadData", ctypes.byref(kept), _PTX)
    call("cuModuleGetFunction", ctypes.byref(function), kept, b"nothing")
    call("cuMemAlloc_v2", ctypes.byref(small), ctypes.c_size_t(1 << 20))

    def launch():
        call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        call("cuCtxSynchronize")

    return {
        "allocate 64 MiB": lambda: call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(_SIZE)),
        "free 64 MiB": lambda: call("cuMemFree_v2", pointer),
        "load a module": lambda: call("cuModuleLoadData", ctypes.byref(module), _PTX),
        "unload a module": lambda: call("cuModuleUnload", module),
        "allocate 1 MiB of host memory": lambda: call(
            "cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(1 << 20)
        ),
        "free 1 MiB of host memory": lambda: call("cuMemFreeHost", host),
        "copy 1 MiB to the device": lambda: call("cuMemcpyHtoD_v2", small, data, ctypes.c_size_t(1 << 20)),
        "launch and synchronise": launch,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    call = _driver()
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), options.device)
    call("cuCtxSetCurrent", context)
    calls = _calls(call)
    calls["launch and synchronise"]()
    begin_job = ctypes.CDLL(None).sluice_v1_job_begin
    begin_job.restype, begin_job.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
    begin_job(0)
    print("in a job", file=sys.stderr, flush=True)
    time.sleep(_BEFORE_S)
    times = {name: [] for name in calls}
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for name, function in calls.items():
            before = time.perf_counter_ns()
            function()
            times[name].append((time.perf_counter_ns() - before) / 1000)
    print(
        json.dumps(
            {
                "calls": [
                    {
                        "call": name,
                        "n": len(taken),
                        "p50_us": round(statistics.median(taken), 1),
                        "max_us": round(max(taken), 1),
                    }
                    for name, taken in times.items()
                ]
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
