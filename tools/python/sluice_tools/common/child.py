"""A job in a child process, because libraries and users' code may end the process that they run in."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PASSED_ON = {signal.SIGINT, signal.SIGTERM}


def run(job: Callable[[], int]) -> int:
    """Returns the exit code of the job, or -N if the signal N has ended its process. The job gets SIGINT and SIGTERM.
    No other thread may run yet."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON | {signal.SIGCHLD})
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sys.exit(job() if os.getppid() == parent else 1)
    try:
        return _wait(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(pid: int) -> int:
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        arrived = signal.sigwaitinfo(_PASSED_ON | {signal.SIGCHLD})
        from_terminal = arrived.si_code > 0  # which sends it to both
        if arrived.si_signo != signal.SIGCHLD and not from_terminal:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, arrived.si_signo)
