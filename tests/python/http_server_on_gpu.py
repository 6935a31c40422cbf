"""A server as users have one: it waits for HTTP requests, and each is GPU work by the driver API.

http_server_on_gpu.py PORT [warm: a job before it listens] [dies-if FILE: exits if there is such a file, and removes it]
"""

import ctypes
import http.server
import os
import sys

_PTX = (
    b".version 7.0\n.target sm_70\n.address_size 64\n"
    b".visible .entry sluice_spin(.param .u64 n){ .reg .u64 %a,%b,%c,%n; .reg .pred %p; "
    b"ld.param.u64 %n,[n]; mov.u64 %a,%globaltimer; L: mov.u64 %b,%globaltimer; "
    b"sub.u64 %c,%b,%a; setp.lt.u64 %p,%c,%n; @%p bra L; ret; }"
)
_KERNELS, _KERNEL_US = 20, 40


class Gpu:
    def __init__(self):
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context, module, self._function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._context = context
        self.use()
        self._call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, b"sluice_spin")
        self._ns = ctypes.c_uint64(_KERNEL_US * 1000)
        self._arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(self._ns), ctypes.c_void_p))

    def use(self) -> None:
        """By this thread."""
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *arguments) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")

    def launch(self) -> None:
        for _ in range(_KERNELS):
            self._call("cuLaunchKernel", self._function, 1, 1, 1, 64, 1, 1, 0, None, self._arguments, None)

    def job(self) -> None:
        self.launch()
        self._call("cuCtxSynchronize")

    def make_event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), 2)
        return event

    def record(self, event: ctypes.c_void_p) -> None:
        self._call("cuEventRecord", event, None)

    def wait(self, event: ctypes.c_void_p) -> None:
        self._call("cuEventSynchronize", event)

    def is_over(self, event: ctypes.c_void_p) -> bool:
        return self._cuda.cuEventQuery(event) == 0


def main() -> None:
    port, options = int(sys.argv[1]), sys.argv[2:]
    gpu, dies_if = Gpu(), options[options.index("dies-if") + 1] if "dies-if" in options else ""
    if "warm" in options:
        gpu.job()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            if dies_if and os.path.exists(dies_if):
                os.remove(dies_if)
                print("out of luck", flush=True)
                os._exit(7)
            gpu.use()
            gpu.job()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format, *args):
            pass

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
