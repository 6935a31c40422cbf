"""Kernels of a known length by the driver API: no PyTorch, so they also run on the simulated GPU."""

import ctypes

from sluice_tools.bench.programs.setting import Setting

_PTX = (
    b".version 7.0\n.target sm_70\n.address_size 64\n"
    b".visible .entry sluice_spin(.param .u64 n){ .reg .u64 %a,%b,%c,%n; .reg .pred %p; "
    b"ld.param.u64 %n,[n]; mov.u64 %a,%globaltimer; L: mov.u64 %b,%globaltimer; "
    b"sub.u64 %c,%b,%a; setp.lt.u64 %p,%c,%n; @%p bra L; ret; }"
)
_BLOCKS = 132  # one on each multiprocessor of an H100


class _Spins:
    """launch(): `count` kernels of `us` each."""

    def __init__(self, count: int, us: int):
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._count = count
        context, module, self._function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self._function), module, b"sluice_spin")
        self._ns = ctypes.c_uint64(us * 1000)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(self._ns), ctypes.c_void_p))

    def call(self, name: str, *arguments) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")

    def launch(self) -> None:
        for _ in range(self._count):
            self.call("cuLaunchKernel", self._function, _BLOCKS, 1, 1, 256, 1, 1, 0, None, self._arguments, None)

    def request(self, index: int) -> bytes:
        self.launch()
        self.call("cuCtxSynchronize")
        return bytes([index])

    def step(self):
        self.launch()
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        self.call("cuEventRecord", event, None)

        def wait() -> None:
            self.call("cuEventSynchronize", event)
            self.call("cuEventDestroy_v2", event)

        return wait


def four_of_50us(setting: Setting):
    return _Spins(4, 50).request


def twenty_of_250us(setting: Setting):
    return _Spins(20, 250).request


def ten_of_1ms(setting: Setting):
    return _Spins(10, 1000).step


def eight_of_5ms(setting: Setting):
    return _Spins(8, 5000).step
