"""Kernels that spin, on whatever libcuda.so.1 is found: for programs without torch."""

import ctypes

_PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry sluice_spin() { ret; }\n\0"


class Gpu:
    def __init__(self):
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context, module, self._spin = (ctypes.c_void_p() for _ in range(3))
        self._kept, self._memory = ctypes.create_string_buffer(4096), ctypes.c_uint64()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self("cuCtxSetCurrent", self._context)
        self("cuModuleLoadData", ctypes.byref(module), _PTX)
        self("cuModuleGetFunction", ctypes.byref(self._spin), module, b"sluice_spin")
        self("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(4096))

    def __call__(self, name, *arguments):
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} returned CUresult {result}")

    def copy_in(self):
        self("cuMemcpyHtoD_v2", self._memory, self._kept, ctypes.c_size_t(4096))

    def spin(self, us: int, blocks: int):
        """blocks: launches of different length must differ in something that Sluice sees."""
        ns = ctypes.c_uint64(us * 1000)
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(ns), ctypes.c_void_p))
        self("cuLaunchKernel", self._spin, blocks, 1, 1, 32, 1, 1, 0, None, arguments, None)

    def wait(self):
        self("cuCtxSynchronize")
