"""Where a program runs, and in which size."""

from dataclasses import dataclass
from typing import TypeVar

_Size = TypeVar("_Size")


@dataclass(frozen=True)
class Setting:
    device: str  # cuda or cpu
    tiny: bool  # to try the program, not to measure

    @property
    def gpu(self) -> bool:
        return self.device == "cuda"

    def size(self, full: _Size, tiny: _Size) -> _Size:
        return tiny if self.tiny else full
