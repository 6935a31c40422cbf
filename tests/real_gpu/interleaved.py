"""Programs that take turns on a real GPU, for slices.py, turns.py and closing.py: each runs and pauses when told.

So the conditions of a measurement take turns in the same processes, and the host's noise is in all of them. A window's
first 0.9 s do not count: a setting takes up to 0.5 s.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
from sluice_tools.measure.needs import driver_and_slices  # noqa: E402

SLUICE = str(ROOT / "build/bin/sluice")
SETTLE_S = 0.9
PAUSED, RUNS, ENDS = 0, 1, 2


# --- The programs: each makes a function that does one job and returns when it is done ------------------------------


def spin(count: int, kernel_us: int):
    """`count` kernels on all multiprocessors."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *args) -> None:
        code = getattr(cuda, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name}: {code}")

    ptx = (
        b".version 7.0\n.target sm_70\n.address_size 64\n"
        b".visible .entry sluice_spin(.param .u64 n){ .reg .u64 %a,%b,%c,%n; .reg .pred %p; "
        b"ld.param.u64 %n,[n]; mov.u64 %a,%globaltimer; L: mov.u64 %b,%globaltimer; "
        b"sub.u64 %c,%b,%a; setp.lt.u64 %p,%c,%n; @%p bra L; ret; }"
    )
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), ptx)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"sluice_spin")
    ns = ctypes.c_uint64(kernel_us * 1000)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(ns), ctypes.c_void_p))

    def job() -> None:
        assert ns.value == kernel_us * 1000  # `arguments` only points to it
        for _ in range(count):
            call("cuLaunchKernel", function, 132, 1, 1, 256, 1, 1, 0, None, arguments, None)
        call("cuCtxSynchronize")

    return job


def inference(name: str, batch: int, graph: bool):
    """A model of torchvision in bf16, as a CUDA graph or kernel by kernel."""
    import torch
    import torchvision

    model = torchvision.models.get_model(name).cuda().eval().bfloat16()
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    if not graph:

        def eager() -> None:
            with torch.inference_mode():
                model(images)
            torch.cuda.synchronize()

        return eager
    captured = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        for _ in range(3):
            model(images)
        torch.cuda.synchronize()
        with torch.cuda.graph(captured):
            model(images)

    def job() -> None:
        captured.replay()
        torch.cuda.current_stream().synchronize()

    return job


def training():
    """MobileNetV2, batch 256: its long kernels take milliseconds."""
    import torch
    import torchvision

    model = torchvision.models.mobilenet_v2().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(256, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (256,), device="cuda")

    def job() -> None:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    return job


def layers(count: int, width: int, tokens: int):
    import torch

    torch.manual_seed(0)
    weights = [torch.randn(width, 4 * width, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    backs = [torch.randn(4 * width, width, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    state = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)

    def job() -> None:
        with torch.inference_mode():
            x = state
            for up, down in zip(weights, backs):
                x = x + torch.nn.functional.gelu(torch.nn.functional.rms_norm(x, (width,)) @ up) @ down
        torch.cuda.synchronize()

    return job


def token():
    """One token of an eager Llama of 1B parameters with random weights: some 700 launches, bound by the host."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    ids = torch.zeros((1, 1), dtype=torch.long, device="cuda")

    def job() -> None:
        with torch.inference_mode():
            model(ids, use_cache=False).logits.argmax().item()

    return job


def products(size: int, count: int):
    """`count` products of bf16 matrices; 8192 takes about 1.6 ms each on an H100."""
    import torch

    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def job() -> None:
        for _ in range(count):
            a @ b
        torch.cuda.synchronize()

    return job


PROGRAMS = {
    "4 kernels of 50us": (lambda: spin(4, 50), 0.008),
    "20 kernels of 250us": (lambda: spin(20, 250), 0.012),
    "kernels of 5ms": (lambda: spin(8, 5000), 0),
    "ViT graph": (lambda: inference("vit_b_16", 4, graph=True), 0.008),
    "ResNet-50 graph": (lambda: inference("resnet50", 1, graph=True), 0.006),
    "eager ResNet-50": (lambda: inference("resnet50", 1, graph=False), 0.02),
    "ResNet-152, batch 256": (lambda: inference("resnet152", 256, graph=False), 0),
    "MobileNetV2 training": (training, 0),
    "eager decoding": (lambda: layers(32, 2048, 1), 0),
    "prefill": (lambda: layers(16, 4096, 8192), 0),
    "kernels of 1ms": (lambda: spin(10, 1000), 0),
    "eager token": (token, 0),
    "eager token, now and then": (token, 0.012),
    "matrix products": (lambda: products(8192, 8), 0),
}


def work(name: str, index: int, shared: Path, log: Path) -> None:
    make, period_s = PROGRAMS[name]
    job = make()
    for _ in range(5):
        job()
    with shared.open("r+b") as file:
        flags = mmap.mmap(file.fileno(), 0)
    flags[32 + index] = 1
    due = time.monotonic()
    with log.open("w") as out:
        while flags[index] != ENDS:
            if flags[index] == PAUSED:
                time.sleep(0.001)
                due = time.monotonic()
                continue
            begin = time.monotonic()
            job()
            end = time.monotonic()
            out.write(f"{begin:.6f} {end - begin:.6f}\n")
            if period_s:
                due = max(due + period_s, end)
                time.sleep(max(0.0, due - time.monotonic()))


# --- The measurement --------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Pair:
    """Programs that run and pause when told.

    `options`: of `sluice exec`, for each; by default the first is critical. `variables`: for the environment of each.
    """

    def __init__(
        self,
        names: list[str],
        folder: Path,
        options: list[list[str]] | None = None,
        variables: list[dict[str, str]] | None = None,
        settle_s: float = SETTLE_S,
    ):
        self.names = names
        self.settle_s = settle_s
        options = options or [["--priority", "1"], *([["--priority", "0"]] * (len(names) - 1))]
        self.environment = {**os.environ, "SLUICE_SESSION": f"slices-{os.getpid()}"}
        self.shared = folder / "shared"
        self.shared.write_bytes(bytes(64))
        self.logs = [folder / f"{i}.log" for i in range(len(names))]
        with self.shared.open("r+b") as file:
            self.flags = mmap.mmap(file.fileno(), 0)
        self.programs = []
        for i, name in enumerate(names):
            command = [SLUICE, "exec", *options[i], "--name", f"p{i}", "--"]
            command += [sys.executable, __file__, name, str(i), str(self.shared), str(self.logs[i])]
            environment = self.environment | (variables[i] if variables else {})
            self.programs.append(subprocess.Popen(command, env=environment))
        while not all(self.flags[32 + i] for i in range(len(names))):
            time.sleep(0.05)
            if any(program.poll() is not None for program in self.programs):
                raise SystemExit("a program ended before it began")

    def set(self, index: int, *options: str) -> None:
        command = [SLUICE, "set", f"p{index}", *options]
        subprocess.run(command, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def clients(self) -> list[dict]:
        done = subprocess.run([SLUICE, "status", "--json"], env=self.environment, capture_output=True, text=True)
        return sorted(json.loads(done.stdout)["clients"], key=lambda client: client["name"])

    def status(self) -> list[str]:
        return [
            f"{c['name']}: slice {c['slice']['us']} {c['slice']['state']} share {c['gpu_share']}"
            for c in self.clients()
        ]

    def window(self, running: Collection[int], seconds: float) -> tuple[float, float]:
        """Lets these programs run. Returns when what counts began and ended."""
        for i in range(len(self.names)):
            self.flags[i] = RUNS if i in running else PAUSED
        time.sleep(self.settle_s)
        begin = time.monotonic()
        time.sleep(seconds - self.settle_s)
        return begin, time.monotonic()

    def end(self) -> list[list[tuple[float, float]]]:
        for i in range(len(self.names)):
            self.flags[i] = ENDS
        for program in self.programs:
            program.wait(timeout=60)
        logs = []
        for log in self.logs:
            lines = [line.split() for line in log.read_text().splitlines()]
            logs.append([(float(begin), float(took)) for begin, took in (line for line in lines if len(line) == 2)])
        return logs


def times(log: list[tuple[float, float]], window: tuple[float, float]) -> list[float]:
    """How long the jobs took that lie in the window."""
    return [took for begin, took in log if window[0] <= begin and begin + took <= window[1]]


def rate(log: list[tuple[float, float]], window: tuple[float, float]) -> float:
    """Jobs a second, those that were cut by the window's ends in part."""
    begin, end = window
    parts = [
        max(0.0, min(at + took, end) - max(at, begin)) / took for at, took in log if at < end and at + took > begin
    ]
    return sum(parts) / (end - begin)


def say_version() -> None:
    version = subprocess.run([SLUICE, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    print(f"{version}, commit {commit.stdout.strip() or 'unknown'}, driver {driver_and_slices(SLUICE, 0)}", flush=True)


def run_pairs(
    parser: argparse.ArgumentParser,
    pairs: dict[str, list[str]],
    seconds: float,
    measure: Callable[[str, argparse.Namespace], dict],
    show: Callable[[dict], None],
) -> None:
    """The command line of an experiment. `seconds`: the default length of a window."""
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help=f"of {', '.join(pairs)}; all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--window", type=float, default=seconds, metavar="S")
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    unknown = [pair for pair in options.pairs if pair not in pairs]
    if unknown or options.window <= SETTLE_S:
        parser.error(f"unknown pair {unknown[0]}" if unknown else f"--window must be more than {SETTLE_S}")
    say_version()
    results = []
    for pair in options.pairs or pairs:
        results.append(measure(pair, options))
        show(results[-1])
        sys.stdout.flush()
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
