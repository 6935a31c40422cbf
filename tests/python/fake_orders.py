"""The stand-in for the interposer's memory functions (tests/support/standins/fake_orders.cpp), in this process."""

import ctypes
import subprocess
from pathlib import Path

import torch

SOURCE = Path(__file__).parents[1] / "support" / "standins" / "fake_orders.cpp"
HEADERS = Path(__file__).parents[2] / "include"
COUNTS = ("given", "refused", "waits", "mistakes", "base", "slope", "pending")


def build(folder: Path) -> Path:
    library = folder / "libfake_orders.so"
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{HEADERS}", "-o", library, SOURCE], check=True)
    return library


class Fake:
    """Opened globally, so that the helper finds its functions as it finds those of a preload."""

    def __init__(self, library: Path):
        self.library = library
        self.calls = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.calls.sluice_fake_plan.argtypes = [ctypes.c_uint64] * 4 + [ctypes.c_char_p]
        self.calls.sluice_fake_grant.argtypes = [ctypes.c_uint64]
        self.calls.sluice_fake_count.restype = ctypes.c_uint64

    def plan(self, orders: int = 0, every: int = 1, launches: int = 1, kinds: str = "2", seed: int = 1) -> None:
        # ctypes does not keep the bytes, and the fake copies them.
        self.calls.sluice_fake_plan(seed, orders, every, launches, kinds.encode())

    def give(self, kind: int) -> None:
        self.calls.sluice_fake_give(kind)

    def grant(self, bytes_: int) -> None:
        self.calls.sluice_fake_grant(bytes_)

    def hold(self, bytes_: int) -> None:
        self.calls.sluice_fake_held(ctypes.c_uint64(bytes_))

    def refuse_memory(self) -> None:
        self.calls.sluice_fake_refuse_memory()

    def void_order(self) -> None:
        self.calls.sluice_fake_void_order()

    def count(self, name: str) -> int:
        return self.calls.sluice_fake_count(COUNTS.index(name))

    def launch(self) -> None:
        if code := self.calls.sluice_fake_launch():
            raise RuntimeError(f"CUDA error: too many resources requested for launch ({code})")


class Launch(torch.autograd.Function):
    """A kernel launch in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx, x, fake):
        ctx.fake = fake
        fake.launch()
        return x * 1

    @staticmethod
    def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.fake.launch()
        return gradient * 1, None


class Net(torch.nn.Module):
    """Small, with all that a dropped micro-batch must take back: batch norm, dropout, gradients."""

    def __init__(self, fake: Fake):
        super().__init__()
        self.fake = fake
        self.first = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.drop = torch.nn.Dropout(0.3)
        self.last = torch.nn.Linear(4 * 6 * 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = Launch.apply(self.first(x), self.fake)
        x = Launch.apply(self.norm(x).relu(), self.fake)
        x = Launch.apply(self.drop(x), self.fake)
        return Launch.apply(self.last(x.flatten(1)), self.fake)
