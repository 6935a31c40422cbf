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


def main() -> None:
    shim = Shim()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(64))
    x = torch.randn(8, 3, 32, 32, device="cuda")
    with torch.no_grad():
        model.cuda()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                expected = model(x)
        torch.cuda.synchronize()
        progress("graph: replays")
        graph, y = capture(model, x)
        graph.replay()
        torch.cuda.synchronize()
        first = torch.equal(y, expected)
        errors, wrong = set(), 0
        for _ in range(200):
            shim.arm(launches=0)
            errors.add(outcome(graph.replay))
            torch.cuda.synchronize()
            shim.disarm()
            y.zero_()
            graph.replay()
            torch.cuda.synchronize()
            wrong += not torch.equal(y, expected)
        finding(
            "R2", "graph replay refused", refusals=200, first_right=first, wrong_after=wrong, error="; ".join(errors)
        )
        progress("graph: captures")
        errors, late = set(), set()
        for launches in range(8):
            shim.arm(launches=launches)
            errors.add(outcome(lambda: capture(model, x)))
            refused = shim.disarm()
            begin = time.perf_counter()
            late.add(outcome(lambda: capture(model, x)[0].replay()))
            torch.cuda.synchronize()
            finding(
                "R2",
                "launch refused inside a capture",
                launch=launches,
                refused=refused,
                error="; ".join(sorted(errors)),
                next_capture="; ".join(sorted(late)),
                next_ms=(time.perf_counter() - begin) * 1e3,
            )
            errors.clear()
            late.clear()
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        finding(
            "R2", "graph after refused captures", right=torch.equal(y, expected), eager=torch.equal(model(x), expected)
        )


if __name__ == "__main__":
    main()
