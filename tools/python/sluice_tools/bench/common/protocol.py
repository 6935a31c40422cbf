"""The programs' side of the line protocol: commands as JSON on standard input, answers as JSON on
standard output."""

import json
import os
import select
import sys


def answer(event: str, **values):
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


class Commands:
    def __init__(self, descriptor: int = 0):
        self._descriptor = descriptor
        self._unread = b""

    def next(self, wait: bool | float = True):
        """The next command; None if none comes at once (`wait` is false) or in `wait` seconds. The end of the input
        is the command `quit`."""
        while b"\n" not in self._unread:
            if wait is not True and not select.select([self._descriptor], [], [], float(wait))[0]:
                return None
            read = os.read(self._descriptor, 65536)
            if not read:
                return {"do": "quit"}
            self._unread += read
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)


def run_program(main) -> int:
    """main(commands), with what goes wrong told as an answer."""
    try:
        main(Commands())
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # whatever a library raises: the other side must hear of it
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        answer("error", text=f"{type(error).__name__}: {lines[0] if lines else ''}")
        raise
    return 0
