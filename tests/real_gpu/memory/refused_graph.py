"""R2, graphs: a refused replay, and a refused launch inside a capture. Is the next one right?

refused_graph.py
"""

import time
from collections.abc import Callable

import torch
from findings import describe, finding, progress
from shim import Shim


def outcome(call: Callable[[], object]) -> str:
    """Calls it. Returns what it raised."""
    try:
        call()
    except Exception as error:
        return describe(error)
    return "no exception"


def capture(model: torch.nn.Module, x: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    return graph, y


def refuse_replays(
    shim: Shim, model: torch.nn.Module, x: torch.Tensor, expected: torch.Tensor
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]:
    """Returns the graph, its output, which is zeroed, and what the first replay gave."""
    progress("graph: replays")
    graph, y = capture(model, x)
    graph.replay()
    torch.cuda.synchronize()
    first = y.clone()
    errors, wrong = set(), 0
    for _ in range(200):
        shim.arm(launches=0)
        errors.add(outcome(graph.replay))
        torch.cuda.synchronize()
        shim.disarm()
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        wrong += not torch.equal(y, first)
    finding(
        "R2",
        "graph replay refused",
        refusals=200,
        first_right=torch.equal(first, expected),
        wrong_after=wrong,
        error="; ".join(errors),
    )
    y.zero_()
    return graph, y, first


def refuse_captures(shim: Shim, model: torch.nn.Module, x: torch.Tensor) -> None:
    progress("graph: captures")
    for launches in range(8):
        shim.arm(launches=launches)
        error = outcome(lambda: capture(model, x))
        refused = shim.disarm()
        begin = time.perf_counter()
        later = outcome(lambda: capture(model, x)[0].replay())
        torch.cuda.synchronize()
        finding(
            "R2",
            "launch refused inside a capture",
            launch=launches,
            refused=refused,
            error=error,
            next_capture=later,
            next_ms=(time.perf_counter() - begin) * 1e3,
        )


def main() -> None:
    shim = Shim()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(64))
    x = torch.randn(8, 3, 32, 32, device="cuda")
    with torch.no_grad():
        model.cuda()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        expected = model(x)
        torch.cuda.synchronize()
        graph, y, first = refuse_replays(shim, model, x, expected)
        refuse_captures(shim, model, x)
        graph.replay()
        torch.cuda.synchronize()
        finding(
            "R2", "graph after refused captures", right=torch.equal(y, first), eager=torch.equal(model(x), expected)
        )


if __name__ == "__main__":
    main()
