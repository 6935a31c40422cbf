"""R7, PyTorch: is a captured matrix product or convolution right after the pages of its weights were replaced?

The weights are tensors over a reserved address range. After each replacement they are filled anew, the graph is
replayed, and its result compared with the same operation on ordinary tensors.

    remap_torch.py
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from cuda.bindings import driver
from findings import finding, progress

PAGE = 64 << 20


def must(answer: tuple):
    """The value of a driver call. Raises RuntimeError if the call failed."""
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(answer[0]))
    return answer[1] if len(answer) == 2 else None


class Arena:
    """An address range of one page. Torch sees it as an array of the CUDA array interface."""

    def __init__(self) -> None:
        self.address = int(must(driver.cuMemAddressReserve(PAGE, 0, 0, 0)))
        self._page = None

    def map(self) -> None:
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        self._page = must(driver.cuMemCreate(PAGE, properties, 0))
        must(driver.cuMemMap(self.address, PAGE, 0, self._page, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = 0
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        must(driver.cuMemSetAccess(self.address, PAGE, [access], 1))

    def unmap(self) -> None:
        must(driver.cuMemUnmap(self.address, PAGE))
        must(driver.cuMemRelease(self._page))

    def tensor(self, *shape: int) -> torch.Tensor:
        """float32, at the beginning of the range. Valid while pages are mapped."""

        interface = {"shape": shape, "typestr": "<f4", "data": (self.address, False), "version": 3}
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device="cuda")


def replace(name: str, shape: tuple[int, ...], run: Callable[[torch.Tensor], torch.Tensor], rounds: int) -> None:
    """`run` maps weights of this shape to an output; the graph reads them from the arena."""
    arena = Arena()
    arena.map()
    weights = arena.tensor(*shape)
    weights.copy_(torch.randn(shape))
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            run(weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(weights)
    bitwise = wrong = 0
    error = 0.0
    takers = []
    for turn in range(rounds):
        if turn:
            torch.cuda.synchronize()
            arena.unmap()
            if turn < 8:  # Other memory takes the page's place.
                takers.append(torch.empty(PAGE, dtype=torch.uint8, device="cuda"))
            arena.map()
        fresh = torch.randn(shape)
        weights.copy_(fresh)
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        expected = run(fresh.cuda())
        difference = (y - expected).abs().max().item() / expected.abs().max().item()
        bitwise += torch.equal(y, expected)
        wrong += not difference < 1e-3
        error = max(error, difference)
    other = run(torch.randn(shape).cuda())
    fails = not (y - other).abs().max().item() / other.abs().max().item() < 1e-3
    finding(
        "R7", f"torch graph, {name}", rounds=rounds, wrong=wrong, bitwise=bitwise, error=error, check_can_fail=fails
    )


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 1024, device="cuda")
    images = torch.randn(8, 64, 56, 56, device="cuda")
    with torch.no_grad():
        progress("remap: matrix product")
        replace("cuBLAS fp32", (1024, 2048), lambda w: x @ w, 30)
        replace("cuBLAS bf16", (1024, 2048), lambda w: (x.bfloat16() @ w.bfloat16()).float(), 30)
        progress("remap: convolution")
        replace("cuDNN", (128, 64, 3, 3), lambda w: torch.nn.functional.conv2d(images, w, padding=1), 30)


if __name__ == "__main__":
    main()
