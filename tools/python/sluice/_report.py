"""What a training has done, as the lines of the published trainers."""

import time
from dataclasses import dataclass

_GIB = 1 << 30


@dataclass
class Counts:
    """What happened since the last epoch_line()."""

    begun: float = 0.0  # time.monotonic() at the first micro-batch
    batches: int = 0
    tried: int = 0  # micro-batches, also the dropped ones
    killed: int = 0
    finished: int = 0
    items: int = 0  # of the last batch
    size: int = 0  # of the last micro-batch, in items
    waited_s: float = 0.0  # for a grant that holds one item, or for the end of an order to sleep

    def line(self, name: str, epoch: int, most_bytes: int) -> str:
        """`[ResNet epoch 0] 12.345s | batch cnt 62 avg 198.0ms | try 70 kill 8 finish 62 | ...`"""
        seconds = time.monotonic() - self.begun
        return (
            f"[{name} epoch {epoch}] {seconds:.3f}s"
            f" | batch cnt {self.batches} avg {seconds / max(1, self.batches) * 1000:.1f}ms"
            f" | try {self.tried} kill {self.killed} finish {self.finished}"
            f" | batch-size {self.items} | micro-batch-size {self.size}"
            f" | memory {most_bytes / _GIB:.2f}Gb | wait_bs_valid {self.waited_s:.3f}s"
        )


@dataclass
class Adjustment:
    """Memory that was given back, and the micro-batch before. Times are those of time.monotonic()."""

    batch: int  # its index in the epoch
    size: int  # of the micro-batch before, in items
    begun: float
    freed: float
    bytes_before: int  # held by torch's allocator
    bytes_after: int

    def line(self, size: int) -> str:
        """When a micro-batch of `size` items can begin.

        `batch 3 adjust : bs 16 -> 13 | 4.1ms | 0.2ms | gpu_mem 9.87Gb -> 7.12Gb`
        """
        return (
            f"batch {self.batch} adjust : bs {self.size} -> {size} | {(self.freed - self.begun) * 1000:.1f}ms"
            f" | {(time.monotonic() - self.freed) * 1000:.1f}ms"
            f" | gpu_mem {self.bytes_before / _GIB:.2f}Gb -> {self.bytes_after / _GIB:.2f}Gb"
        )
