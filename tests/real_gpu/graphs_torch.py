"""CUDA graphs of unmodified PyTorch programs, without any use of Sluice.

Prints a line for each case: its name and a hash of its results, which must be the same with and
without Sluice. graphs.sh --torch runs this program.

    python3 graphs_torch.py [--only TEXT] [--warm FILE]

--warm creates FILE when everything is compiled and warm, and keeps the process alive at the end
until FILE is removed. The first run compiles for about half a minute; later runs use Inductor's cache.
"""

import argparse
import hashlib
import os
import sys
import time
from functools import partial
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic

import torch
from torch import nn

CASES = []


def case(function):
    CASES.append(function)
    return function


class Digest:
    """A hash of all results of a case, in order. Does not wait for the GPU before text()."""

    def __init__(self):
        self.kept = []

    def add(self, *tensors):
        self.kept.extend(tensor.detach().clone() for tensor in tensors)

    def text(self):
        sha = hashlib.sha256()
        for tensor in self.kept:
            sha.update(tensor.cpu().numpy().tobytes())
        return sha.hexdigest()[:16]


def generator():
    return torch.Generator(device="cuda").manual_seed(1)


def random(*shape, source=None):
    return torch.randn(*shape, device="cuda", generator=source)


class Mean(nn.Module):
    """Replaces a pooling layer, whose backward pass adds in no fixed order."""

    def forward(self, x):
        return x.mean((2, 3))


def network(width=64, dropout=0.0, norm=True):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2),
        nn.ReLU(),
        Mean(),
        nn.Dropout(dropout),
        nn.Linear(width, 512),
        nn.GELU(),
        nn.Linear(512, 100),
    ).cuda()


def on_side_stream(work, times=3):
    """Runs before a capture, so that libraries allocate their memory and the allocator warms up."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(side)


def captured(work, pool=None, **options):
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph, pool=pool):
        result = work()
    return graph, result


@case
def inference(digest):
    model = network().eval()
    static = random(64, 3, 96, 96)
    with torch.inference_mode():
        on_side_stream(lambda: model(static))
        graph, output = captured(lambda: model(static))
        source = generator()
        for _ in range(60):
            static.copy_(random(64, 3, 96, 96, source=source))
            graph.replay()
            digest.add(output)


@case
def whole_training_step(digest):
    model = network(dropout=0.2)  # random numbers inside the graph
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    loss_of = nn.CrossEntropyLoss()
    images = random(64, 3, 64, 64)
    labels = torch.arange(64, device="cuda") % 100

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    on_side_stream(step)
    graph, loss = captured(step)
    source = generator()
    for _ in range(60):
        images.copy_(random(64, 3, 64, 64, source=source))
        graph.replay()
        digest.add(loss)
    digest.add(*model.parameters())


@case
def graphed_callables(digest):
    first: Any = network()
    second: Any = nn.Linear(100, 100).cuda()
    sample = random(32, 3, 64, 64)
    hidden = random(32, 100).requires_grad_()
    first, second = torch.cuda.make_graphed_callables((first, second), ((sample,), (hidden,)))
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)
    source = generator()
    for _ in range(40):
        optimizer.zero_grad(set_to_none=True)
        loss = second(first(random(32, 3, 64, 64, source=source))).square().mean()
        loss.backward()
        optimizer.step()
        digest.add(loss)
    digest.add(*parameters)


@case
def forked_streams(digest):
    streams = [torch.cuda.Stream() for _ in range(3)]
    static = random(1024, 1024)
    weights = [random(1024, 1024) / 32 for _ in streams]

    def work():
        results = []
        current = torch.cuda.current_stream()
        for stream, weight in zip(streams, weights):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                value = static
                for _ in range(12):
                    value = torch.tanh(value @ weight)
                results.append(value)
        for stream in streams:
            current.wait_stream(stream)
        return results[0] - results[1] * results[2]

    on_side_stream(work)
    graph, output = captured(work)
    for _ in range(40):
        graph.replay()
        static.add_(output, alpha=0.1)
        digest.add(output)


@case
def one_pool_for_two(digest):
    static = random(2048, 512)
    weight = random(512, 512) / 20
    on_side_stream(lambda: torch.relu(static @ weight))
    first, middle = captured(lambda: torch.relu(static @ weight))
    second, output = captured(lambda: torch.tanh(middle @ weight) + middle, pool=first.pool())
    for _ in range(60):
        first.replay()
        second.replay()
        static.copy_(output)
        digest.add(output)


@case
def captured_again_and_again(digest):
    """Graphs with short lives: servers create one for every shape."""
    weight = random(512, 512) / 20

    def twice(value):
        return torch.tanh(torch.tanh(value @ weight) @ weight)

    on_side_stream(lambda: twice(weight))
    for rows in (1, 7, 64, 256, 33, 1024, 5, 512):
        static = random(rows, 512)
        graph, output = captured(partial(twice, static))
        for _ in range(8):
            graph.replay()
            static.copy_(output)
        digest.add(output)
        torch.cuda.synchronize()  # the allocator reuses its memory
        del graph, output


@case
def instantiated_by_hand(digest):
    static = random(512, 512)
    weight = random(512, 512) / 20
    on_side_stream(lambda: torch.tanh(static @ weight))
    graph, output = captured(lambda: torch.tanh(static @ weight), keep_graph=True)
    for _ in range(3):
        graph.instantiate()
        for _ in range(10):
            graph.replay()
            static.copy_(output)
        digest.add(output)


@case
def compiled_inference(digest):
    torch.compiler.reset()
    model = torch.compile(network().eval(), mode="reduce-overhead", dynamic=False)
    source = generator()
    with torch.inference_mode():
        for _ in range(15):
            for rows in (8, 32):  # two branches of the tree
                torch.compiler.cudagraph_mark_step_begin()
                digest.add(model(random(rows, 3, 64, 64, source=source)))


@case
def compiled_training(digest):
    torch.compiler.reset()
    model = network(width=32, norm=False)
    step_of = torch.compile(model, mode="reduce-overhead", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    source = generator()
    for i in range(30):
        torch.compiler.cudagraph_mark_step_begin()
        images = random(32, 3, 64, 64, source=source)
        loss = step_of(images).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        digest.add(loss)
        if i % 10 == 9:  # a second path through the tree: forward only
            with torch.no_grad():
                torch.compiler.cudagraph_mark_step_begin()
                digest.add(step_of(images))
    digest.add(*model.parameters())


def run(function):
    torch.manual_seed(0)
    digest = Digest()
    function(digest)
    torch.cuda.synchronize()
    return digest.text()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--warm", default="")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    cases = [one for one in CASES if options.only in one.__name__]
    failed = False
    first = {}
    for warm in (True, False):  # the first pass compiles and learns, the second one counts
        began = time.monotonic()
        if not warm and options.warm:
            with open(options.warm, "w", encoding="ascii") as file:
                print(os.getpid(), file=file)
        for one in cases:
            try:
                text = run(one)
            except Exception as error:  # the other cases must run
                text = f"FAILED: {type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
                failed = True
            if not warm:
                print(f"torch.{one.__name__} {text}", flush=True)
            if first.setdefault(one, text) != text:
                print(f"{one.__name__} gave {first[one]} in the warm-up", file=sys.stderr)
        label = "warm-up" if warm else "cases"
        print(f"graphs_torch: {label} {time.monotonic() - began:.1f} s", file=sys.stderr)
    print("end", flush=True)
    while options.warm and os.path.exists(options.warm):
        time.sleep(0.01)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
