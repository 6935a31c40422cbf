"""The cost of a job next to a parked PyTorch process: one with a stream wait and work behind the wait.

    python3 tests/real_gpu/parked_job.py             # time-sliced; under MPS with a daemon running

Runs without Sluice, to see whether parking itself has a cost. Prints p50 and p99 in ms of 200 jobs
(ResNet-50 at batch 1 as one CUDA graph), on the GPU (events) and on the host. Needs torch and torchvision.
"""

import ctypes
import statistics
import subprocess
import sys
import threading
import time

import torch
import torchvision

if not torch.cuda.is_available():
    sys.exit("parked_job.py: torch finds no NVIDIA GPU")

_JOBS = 200
_GAP_S = 0.005
# Forward passes of ResNet-152 behind the wait. 3 fill the launch queue, so that the launching thread
# blocks in the driver.
_STAGES = {"idle": None, "a wait": 0, "a wait, 1 pass behind it": 1, "a wait, 3 passes": 3}


def _captured_job():
    model = torchvision.models.resnet50().eval().cuda()
    image = torch.randn(1, 3, 224, 224, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(image)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            model(image)
    return graph


def _measure(graph) -> str:
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    on_gpu, on_host = [], []
    for _ in range(_JOBS):
        begin = time.perf_counter()
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        on_host.append((time.perf_counter() - begin) * 1e3)
        on_gpu.append(before.elapsed_time(after))
        time.sleep(_GAP_S)
    cuts = (statistics.quantiles(times, n=100, method="inclusive") for times in (on_gpu, on_host))
    figures = [of_times[percent - 1] for of_times in cuts for percent in (50, 99)]
    return "GPU {:.3f} / {:.3f} ms, host {:.3f} / {:.3f} ms".format(*figures)


class _Neighbour:
    """The other process. A line on its stdin parks it or lets it continue."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--neighbour"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, line: str):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("parked_job.py: the neighbour died")

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def _neighbour():
    driver = ctypes.CDLL("libcuda.so.1")
    model = torchvision.models.resnet152().eval().cuda()
    images = torch.randn(256, 3, 224, 224, device="cuda")
    word = torch.zeros(1, dtype=torch.int32).pin_memory()

    behind = None

    def passes(count):
        with torch.no_grad():
            for _ in range(count):
                model(images)

    passes(1)
    torch.cuda.synchronize()
    for line in sys.stdin:
        if line.startswith("park"):
            word[0] = 0
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            result = driver.cuStreamWaitValue32_v2(
                stream, ctypes.c_uint64(word.data_ptr()), ctypes.c_uint32(1), ctypes.c_uint(0)
            )
            if result != 0:
                raise SystemExit(f"cuStreamWaitValue32: error {result}")
            behind = threading.Thread(target=passes, args=(int(line.split()[1]),), daemon=True)
            behind.start()
            time.sleep(0.5)
        elif line.startswith("go on"):
            word[0] = 1
            if behind:
                behind.join()
            torch.cuda.synchronize()
        print("done", flush=True)


def main():
    graph = _captured_job()
    print(f"alone: {_measure(graph)}")
    neighbour = _Neighbour()
    neighbour.ask("ready?")
    for stage, count in _STAGES.items():
        if count is not None:
            neighbour.ask(f"park {count}")
        print(f"next to a process that is {'idle' if count is None else 'parked: ' + stage}: {_measure(graph)}")
        if count is not None:
            neighbour.ask("go on")
    neighbour.end()


if __name__ == "__main__":
    _neighbour() if "--neighbour" in sys.argv else main()
