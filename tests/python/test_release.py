"""sluice._release: a training that gives back much more than it is asked for takes milliseconds for each GiB, twice.

On a stand-in for torch's allocator with expandable segments.
"""

import sys
import types

import pytest
from sluice._release import page_bytes, release_down_to

MIB = 1 << 20
GIB = 1 << 30


class Allocator:
    """One expandable segment of blocks [size, used]; only whole pages inside of unused blocks can be given back."""

    def __init__(self, blocks: list[tuple[int, bool]]):
        self.blocks = [list(block) for block in blocks]
        self.emptied = 0
        self.page = 20 * MIB
        self.best = min  # of the blocks that fit: torch prefers some larger ones to one that can grow

    def memory_reserved(self) -> int:
        return sum(size for size, _ in self.blocks)

    def memory_allocated(self) -> int:
        return sum(size for size, used in self.blocks if used)

    def memory_snapshot(self) -> list[dict]:
        blocks = [{"size": size, "state": "active" if used else "inactive"} for size, used in self.blocks]
        return [{"device": 0, "stream": 7, "segment_type": "large", "blocks": blocks}]

    def allocate(self, size: int) -> list:
        fitting = [block for block in self.blocks if not block[1] and block[0] >= size]
        assert fitting, "an allocation took new memory from the driver"
        best = self.best(fitting)
        place = self.blocks.index(best)
        self.blocks[place : place + 1] = [[size, True], *([[best[0] - size, False]] if best[0] > size else [])]
        return self.blocks[place]

    def free(self, block: list) -> None:
        block[1] = False
        place = next(place for place, one in enumerate(self.blocks) if one is block)
        if place + 1 < len(self.blocks) and not self.blocks[place + 1][1]:
            block[0] += self.blocks.pop(place + 1)[0]
        if place and not self.blocks[place - 1][1]:
            block[0] += self.blocks.pop(place - 1)[0]

    def empty_cache(self) -> None:
        self.emptied += 1
        for block in self.blocks:
            if not block[1] and block[0] >= 2 * self.page:
                block[0] -= (block[0] - self.page) // self.page * self.page  # the parts at both ends make one page
        self.blocks = [block for block in self.blocks if block[0]]


@pytest.fixture
def allocator(monkeypatch):
    def use(blocks: list[tuple[int, bool]]) -> Allocator:
        made = Allocator(blocks)
        cuda = types.SimpleNamespace(
            memory_reserved=made.memory_reserved,
            memory_allocated=made.memory_allocated,
            memory_snapshot=made.memory_snapshot,
            empty_cache=made.empty_cache,
            current_device=lambda: 0,
            current_stream=lambda: types.SimpleNamespace(cuda_stream=7),
            caching_allocator_alloc=lambda size: made.allocate(size),
            caching_allocator_delete=made.free,
        )
        # No torch.empty(): it launches a kernel in deterministic mode, and launches are refused meanwhile.
        torch = types.SimpleNamespace(cuda=cuda, OutOfMemoryError=MemoryError)
        monkeypatch.setitem(sys.modules, "torch", torch)
        return made

    return use


def scattered(count: int, size: int) -> list[tuple[int, bool]]:
    """Unused blocks between used ones."""
    return [block for _ in range(count) for block in ((size, False), (MIB, True))]


@pytest.mark.parametrize(
    ("blocks", "rounds"),
    [
        ([(4 * GIB, False), (GIB, True)], 2),
        ([(4 * GIB, False), *scattered(100, 15 * MIB)], 2),
        ([(4 * GIB, False), *scattered(40, 50 * MIB)], 2),
        (scattered(60, 90 * MIB), 3),
    ],
)
@pytest.mark.parametrize("to_give", [100 * MIB, 700 * MIB, 2 * GIB])
def test_hardly_more_is_given_back_than_asked_for(allocator, blocks, rounds, to_give):
    torch = allocator(blocks)
    most = torch.memory_reserved() - to_give
    used = torch.memory_allocated()
    release_down_to(most)
    assert most - 130 * MIB - to_give // 6 < torch.memory_reserved() <= most
    assert torch.memory_allocated() == used
    assert torch.emptied <= rounds


@pytest.mark.parametrize("to_give", [100 * MIB, 700 * MIB, 2 * GIB])
def test_no_memory_is_taken_whatever_blocks_torch_chooses(allocator, to_give):
    torch = allocator([(2 * GIB, False), *scattered(20, 90 * MIB), (GIB, False), *scattered(20, 170 * MIB)])
    torch.best = max
    most = torch.memory_reserved() - to_give
    release_down_to(most)
    assert torch.memory_reserved() <= most


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_larger_pages_are_known(allocator, monkeypatch, variable):
    """With the wrong size of a page, small blocks count as pages that can be kept, and twice as much is given back."""
    monkeypatch.setenv(variable, "expandable_segments:True,large_segment_size_mb:64")
    assert page_bytes() == 64 * MIB
    torch = allocator([(4 * GIB, False), *scattered(40, 50 * MIB)])
    torch.page = 64 * MIB
    most = torch.memory_reserved() - GIB
    release_down_to(most)
    assert most - 3 * 64 * MIB < torch.memory_reserved() <= most


@pytest.mark.parametrize(
    ("general", "cuda", "mib"),
    [
        ("large_segment_size_mb:64", "expandable_segments:True", 20),
        ("large_segment_size_mb:64", "", 20),
        ("large_segment_size_mb:64,expandable_segments:True,large_segment_size_mb : 32", None, 32),
        (None, " large_segment_size_mb :\t40 , expandable_segments:False,", 40),
        (None, None, 20),
    ],
)
def test_settings_are_read_as_torch_reads_them(monkeypatch, general, cuda, mib):
    for name, value in (("PYTORCH_ALLOC_CONF", general), ("PYTORCH_CUDA_ALLOC_CONF", cuda)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert page_bytes() == mib * MIB


def test_pages_larger_than_the_memory(allocator, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "large_segment_size_mb:99999999")
    torch = allocator([(2 * GIB, False), (GIB, True)])
    release_down_to(2 * GIB)
    assert torch.memory_reserved() < GIB + 2 * torch.page


def test_without_memory_to_keep_all_is_given_back(allocator):
    torch = allocator([(2 * GIB, False), (GIB, True)])

    def fail(*_, **__):
        raise MemoryError

    torch.allocate = fail
    release_down_to(2 * GIB)
    assert torch.memory_reserved() < GIB + 2 * torch.page


def test_what_is_in_use_stays(allocator):
    torch = allocator([(GIB, False), (GIB, True), *scattered(10, 15 * MIB)])
    release_down_to(0)
    assert torch.memory_allocated() == GIB + 10 * MIB
    assert torch.memory_reserved() < GIB + 10 * MIB + 10 * 15 * MIB + 2 * torch.page


def test_nothing_is_given_back_below_the_limit(allocator):
    torch = allocator([(GIB, False), (GIB, True)])
    release_down_to(2 * GIB)
    assert torch.memory_reserved() == 2 * GIB
    assert torch.emptied == 0
