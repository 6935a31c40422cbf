"""A stand-in for the interposer's job functions: it writes down what is called."""

import itertools


class Calls(list):
    """("announce", ns), ("cancel", id), ("begin", announced, id), ("end", id), ("target", text), in order."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    def functions(self) -> dict:
        def announce(start_ns):
            self.append(("announce", start_ns))
            return next(self._ids)

        def begin(announced):
            job = announced or next(self._ids)
            self.append(("begin", announced, job))
            return job

        def set_target(text):
            self.append(("target", text.decode()))
            return int(b"=" in text or text == b"none")

        return {
            "job_announce": announce,
            "job_cancel": lambda number: self.append(("cancel", number)),
            "job_begin": begin,
            "job_end": lambda number: self.append(("end", number)),
            "set_target": set_target,
            "attached": lambda: 1,
        }

    def names(self) -> list[str]:
        return [call[0] for call in self]
