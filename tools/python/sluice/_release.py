"""Gives memory of torch's allocator back to the driver, but hardly more than is asked for."""

import contextlib
import os
import re
from collections.abc import Iterator

_PAGE_MIB = 20  # torch's default
_PAGES_OF_A_LARGE_PART = 8
_ROUNDS = 3  # two are enough where little is in small blocks


def page_bytes() -> int:
    """In which expandable segments give memory back: what the user asks torch for (since 2.11), or torch's default."""
    # As torch reads them: of two variables this one counts, also if it is empty, and of two values the last.
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", ""))
    asked = re.findall(r"\blarge_segment_size_mb:(\d+)", re.sub(r"\s", "", settings))
    return (int(asked[-1]) if asked else _PAGE_MIB) << 20


def release_down_to(most: int) -> None:
    """Until the allocator holds at most `most` bytes, or only what is in use.

    Waits for the GPU work of the process. Not more than that: an H200 takes 2.6 ms to take back a GiB, and as long to
    give it again.
    """
    import torch

    stuck = 0  # bytes of unused memory that cannot be given back: small blocks, and parts of pages
    for _ in range(_ROUNDS):
        if (reserved := torch.cuda.memory_reserved()) <= most:
            return
        unused = reserved - torch.cuda.memory_allocated()
        with _kept(unused - (reserved - most) - stuck - 2 * page_bytes()):
            torch.cuda.empty_cache()
            stuck = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if torch.cuda.memory_reserved() > most:
        torch.cuda.empty_cache()


@contextlib.contextmanager
def _kept(size: int) -> Iterator[None]:
    """Holds unused memory, of `size` bytes or less. Takes nothing from the driver.

    In parts of two sizes: whichever blocks torch takes them from, as many fit as the sizes of the blocks say. An
    allocation that does not fit would free all that is cached first. Small blocks are kept whole, as far as that goes:
    of a large one, the rest can be given back nearly whole.
    """
    import torch

    page = page_bytes()
    large_part = _PAGES_OF_A_LARGE_PART * page
    stream = torch.cuda.current_stream().cuda_stream
    blocks = [
        block["size"]
        for segment in torch.cuda.memory_snapshot()
        if segment["device"] == torch.cuda.current_device()
        and segment["stream"] == stream
        and segment["segment_type"] == "large"
        and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    small = sum(block // page for block in blocks if block < large_part)
    most_large = sum(block // large_part for block in blocks)
    large = max(0, min(most_large, (size - small * page) // large_part))
    rests = [large_part] if large < most_large else [block % large_part for block in blocks if block >= large_part]
    pages = min(small + sum(rest // page for rest in rests), max(0, size - large * large_part) // page)
    kept = []
    try:
        with contextlib.suppress(torch.OutOfMemoryError):  # then more is given back
            for part in [large_part] * large + [page] * pages:
                # Not a tensor: torch fills it in deterministic mode, and that launch is refused.
                kept.append(torch.cuda.caching_allocator_alloc(part))
        yield
    finally:
        for address in kept:
            torch.cuda.caching_allocator_delete(address)
