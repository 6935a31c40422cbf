#!/usr/bin/env python3
"""Runs a command in which the kernel refuses to set time slices other than the driver's own, as a sandbox may.

usage: refuse_control.py COMMAND...

A seccomp filter asks this process about each control of the kernel module. Needs no root. At the end it prints how many
settings it refused, as a last line on standard error.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
import sys
import threading

CONTROL = 0xC020462A  # _IOWR('F', 0x2a, NVOS54_PARAMETERS), of the open kernel modules of driver 580
SET_SLICE = 0xA06C0103
DRIVERS = (1024, 2048)  # us, as libcuda sets them itself
NOTIF_RECV, NOTIF_SEND = 0xC0502100, 0xC0182101  # linux/seccomp.h
CONTINUE = 1
SECCOMP, IOCTL = {"x86_64": (317, 16), "aarch64": (277, 29)}[platform.machine()]

libc = ctypes.CDLL(None, use_errno=True)


def install_filter() -> int:
    """Returns the descriptor that tells of each control."""
    load, equal, give = 0x20, 0x15, 0x06
    allow, notify = 0x7FFF0000, 0x7FC00000
    steps = [
        (load, 0, 0, 0),  # the number of the system call
        (equal, 0, 3, IOCTL),
        (load, 0, 0, 24),  # the lower half of its second argument
        (equal, 0, 1, CONTROL),
        (give, 0, 0, notify),
        (give, 0, 0, allow),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    head = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(SECCOMP, 1, 8, ctypes.create_string_buffer(head))  # filter, with a listener
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


def is_refused(pid: int, address: int) -> bool:
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        _, _, command, _, at = struct.unpack("IIIIQ", memory.read(24))
        if command != SET_SLICE:
            return False
        memory.seek(at)
        return struct.unpack("Q", memory.read(8))[0] not in DRIVERS


def answer(listener: int, refused: list[int]) -> None:
    while True:
        notice = bytearray(80)
        try:
            fcntl.ioctl(listener, NOTIF_RECV, notice)
            number, pid = struct.unpack_from("QI", notice)
            refuse = is_refused(pid, struct.unpack_from("Q", notice, 48)[0])
            refused[0] += refuse
            reply = struct.pack("QqiI", number, 0, -errno.EPERM if refuse else 0, 0 if refuse else CONTINUE)
            fcntl.ioctl(listener, NOTIF_SEND, bytearray(reply))
        except FileNotFoundError:
            continue  # the caller is gone
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):
                return


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        listener = install_filter()
        socket.send_fds(theirs, [b"x"], [listener])
        os.close(listener)
        os.execvp(sys.argv[1], sys.argv[1:])
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    refused = [0]
    threading.Thread(target=answer, args=(listener, refused), daemon=True).start()
    _, status = os.waitpid(child, 0)
    print(f"refuse_control: {refused[0]} settings of time slices refused", file=sys.stderr)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
