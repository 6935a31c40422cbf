"""A program that answers commands, line by line."""

import contextlib
import json
import queue
import subprocess
import threading
import time

from sluice_tools.measure.programs import Program

ANSWER_S = 60
_QUIT_S = 10


class Talker(Program):
    """The other side of protocol.py. What goes wrong is a RuntimeError."""

    name = "program"

    def __init__(self, command: list, environment: dict):
        super().__init__(command, environment, stdin=subprocess.PIPE)
        self._answers = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout or ():
            try:
                self._answers.put(json.loads(line))
            except ValueError:  # what some library prints
                self.lines.append((time.monotonic(), line.rstrip()))
        self._answers.put(None)

    def say(self, do: str, **values):
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise RuntimeError(f"{self.name} has ended: {self.said()}") from None

    def hear(self, event: str, seconds: float = ANSWER_S) -> dict:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise RuntimeError(f"{self.name}: no '{event}' in {seconds:.0f} s") from None
        if answer is None:
            raise RuntimeError(f"{self.name} ended before '{event}': {self.said()}")
        if answer["event"] == "error":
            raise RuntimeError(f"{self.name}: {answer['text']}")
        if answer["event"] != event:
            raise RuntimeError(f"{self.name} said '{answer['event']}' instead of '{event}'")
        return answer

    def ask(self, do: str, event: str, seconds: float = ANSWER_S, **values) -> dict:
        self.say(do, **values)
        return self.hear(event, seconds)

    def ask_to_quit(self):
        with contextlib.suppress(RuntimeError):  # it has quit
            self.say("quit")

    def end(self):
        """By itself if it is listening: a client of MPS that is killed can take others along."""
        self.ask_to_quit()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_QUIT_S)
        super().end()
