"""What a driver does with memory that a process can only read, as the board is for a client that only reads.

Another process closes and opens a gate word through its own, writable mapping. This process registers its read-only
mapping as the library does (the whole board, through a second mapping of the same pages), and waits on the word in a
stream and in a graph. Needs an NVIDIA GPU and no Python package; takes about 5 seconds.

    python3 tests/real_gpu/read_only_pages.py
"""

import ctypes
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable

PORTABLE, DEVICEMAP, READ_ONLY = 1, 2, 8
WAIT_EQUAL, WAIT_GREATER = 1, 0
NOT_READY = 600
SIZE = 349568  # about a board, not a whole number of pages
GATE, SLACK = 5504 * 3 + 2432, 5504 * 3 + 2432 + 40
READ_ONLY_REGISTER_SUPPORTED, STREAM_WAITS_SUPPORTED = 113, 122

failed = False


def say(what: str, answer: object, good: bool = True) -> None:
    """Prints an answer; one that is not `good` makes the probe fail."""
    global failed
    failed = failed or not good
    print(f"{what}: {answer}{'' if good else '   <-- not as expected'}", flush=True)


def obey(memory: int, orders: int, done: int) -> None:
    """The other process: writes (offset, value) for each order, through a mapping of its own."""
    board = mmap.mmap(memory, SIZE)
    while order := os.read(orders, 16):
        offset, value = struct.unpack("=QQ", order)
        board[offset : offset + 8] = struct.pack("=Q", value)
        os.write(done, b"x")
    os._exit(0)


memory = os.memfd_create("read-only-pages")
os.ftruncate(memory, SIZE)
order_end, tell_end = os.pipe()
heard_end, done_end = os.pipe()
if os.fork() == 0:
    os.close(tell_end)
    obey(memory, order_end, done_end)
os.close(order_end)


def write(offset: int, value: int) -> None:
    """Lets the other process write a word."""
    os.write(tell_end, struct.pack("=QQ", offset, value))
    os.read(heard_end, 1)


reader = os.open(f"/proc/self/fd/{memory}", os.O_RDONLY)
os.close(memory)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
board = libc.mmap(None, SIZE, mmap.PROT_READ, mmap.MAP_SHARED, reader, 0)
view = libc.mremap(board, 0, SIZE, 1)
say("mprotect for writing is refused", libc.mprotect(view, SIZE, 3) != 0, libc.mprotect(view, SIZE, 3) != 0)

cuda = ctypes.CDLL("libcuda.so.1")
u64, pointer = ctypes.c_uint64, ctypes.c_void_p
cuda.cuMemHostRegister_v2.argtypes = [pointer, ctypes.c_size_t, ctypes.c_uint]
cuda.cuMemHostUnregister.argtypes = [pointer]
cuda.cuMemHostGetDevicePointer_v2.argtypes = [ctypes.POINTER(u64), pointer, ctypes.c_uint]
cuda.cuStreamWaitValue64_v2.argtypes = [pointer, u64, u64, ctypes.c_uint]
cuda.cuStreamQuery.argtypes = cuda.cuStreamSynchronize.argtypes = [pointer]
cuda.cuCtxCreate_v2.argtypes = [ctypes.POINTER(pointer), ctypes.c_uint, ctypes.c_int]
cuda.cuStreamCreate.argtypes = [ctypes.POINTER(pointer), ctypes.c_uint]


def call(name: str, *arguments: object) -> None:
    """A driver call that must succeed."""
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        sys.exit(f"{name}: error {result}")


call("cuInit", 0)
version, context, stream = ctypes.c_int(), pointer(), pointer()
call("cuDriverGetVersion", ctypes.byref(version))
say("driver for CUDA", version.value)
for name, number in (
    ("read-only registration", READ_ONLY_REGISTER_SUPPORTED),
    ("64-bit waits", STREAM_WAITS_SUPPORTED),
):
    supported = ctypes.c_int()
    answer = cuda.cuDeviceGetAttribute(ctypes.byref(supported), number, 0)
    say(f"attribute {number}, {name}", f"{supported.value} (result {answer})")
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
call("cuStreamCreate", ctypes.byref(stream), 1)

refused = cuda.cuMemHostRegister_v2(view, SIZE, PORTABLE | DEVICEMAP)
say("register without READ_ONLY", f"result {refused}", refused != 0)
registered = cuda.cuMemHostRegister_v2(view, SIZE, PORTABLE | DEVICEMAP | READ_ONLY)
say("register with READ_ONLY", f"result {registered}", registered == 0)
again = cuda.cuMemHostRegister_v2(view, SIZE, PORTABLE | DEVICEMAP | READ_ONLY)
say("register again", f"result {again}", again == 712)
gate = u64()
call("cuMemHostGetDevicePointer_v2", ctypes.byref(gate), view + GATE, 0)


def waits_until(what: str, put: Callable[[], int], close: tuple[int, int], open_: tuple[int, int]) -> None:
    """Whether the work that `put` queues waits for the other process's write."""
    write(*close)
    result = put()
    if result != 0:
        return say(what, f"result {result}", False)
    time.sleep(0.3)
    waiting = cuda.cuStreamQuery(stream)
    begin = time.monotonic()
    write(*open_)
    call("cuStreamSynchronize", stream)
    us = (time.monotonic() - begin) * 1e6
    say(what, f"query while closed {waiting}, passed {us:.0f} us after the write", waiting == NOT_READY)


for run in range(3):
    waits_until(
        f"gate wait {run}", lambda: cuda.cuStreamWaitValue64_v2(stream, gate.value, 0, WAIT_EQUAL), (GATE, 5), (GATE, 0)
    )
waits_until(
    "slack wait",
    lambda: cuda.cuStreamWaitValue64_v2(stream, gate.value + SLACK - GATE, 1000, WAIT_GREATER),
    (SLACK, 10),
    (SLACK, 2**63 - 1),
)


class BatchNode(ctypes.Structure):
    """CUDA_BATCH_MEM_OP_NODE_PARAMS of CUDA 12."""

    _fields_ = [("ctx", pointer), ("count", ctypes.c_uint), ("params", pointer), ("flags", ctypes.c_uint)]


operation = ctypes.create_string_buffer(48)  # CUstreamBatchMemOpParams
struct.pack_into("=IIQQI4xQ", operation, 0, 4, 0, gate.value, 0, WAIT_EQUAL, 0)
graph, node, instance = pointer(), pointer(), pointer()
call("cuGraphCreate", ctypes.byref(graph), 0)
batch = BatchNode(context, 1, ctypes.addressof(operation), 0)
cuda.cuGraphAddBatchMemOpNode.argtypes = [ctypes.POINTER(pointer), pointer, pointer, ctypes.c_size_t, pointer]
call("cuGraphAddBatchMemOpNode", ctypes.byref(node), graph, None, 0, ctypes.addressof(batch))
cuda.cuGraphInstantiateWithFlags.argtypes = [ctypes.POINTER(pointer), pointer, u64]
call("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, 0)
cuda.cuGraphLaunch.argtypes = [pointer, pointer]
waits_until("gate wait in a graph", lambda: cuda.cuGraphLaunch(instance, stream), (GATE, 9), (GATE, 0))

say("unregister", cuda.cuMemHostUnregister(view))
os.close(tell_end)
os.wait()
sys.exit(1 if failed else 0)
