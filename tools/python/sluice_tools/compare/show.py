"""What `sluice compare` says at the end: the answer, the table, files."""

import contextlib
import json
import shlex
import sys
from pathlib import Path

from sluice_tools.compare.answer import Answer
from sluice_tools.measure import answer_page, table
from sluice_tools.measure.experiments import sluice_word
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL
from sluice_tools.measure.summary import Entry


def commands(options, flags: tuple[str, str] = ("", "")) -> list[str]:
    """To start the two, with Sluice. flags: further ones of each."""
    critical, best_effort = (shlex.join(options.commands[role]) for role in (CRITICAL, BEST_EFFORT))
    start = f"{sluice_word()} exec" + (" --gpu sim" if options.gpu == "sim" else "")
    return [f"{start}{flags[0]} --priority 1 -- {critical}", f"{start}{flags[1]} --priority 0 -- {best_effort}"]


def about(options, name: str, mode: str, others: list[str]) -> list[str]:
    """The first line is about the GPU."""
    simulated = " SIMULATED: times are the simulated GPU's." if options.gpu == "sim" else ""
    found = [
        f"{name}, {mode}.{simulated}",
        f"critical: {shlex.join(options.commands[CRITICAL])}",
        f"best effort: {shlex.join(options.commands[BEST_EFFORT])}",
    ]
    if options.load:
        found.append(f"load: {options.load}")
    return found + [f"Other programs used this GPU: {text}. Their work is in every figure." for text in others]


def notes(entries: list[Entry]) -> list[str]:
    return [*table.notes(entries), "bare: nothing is held, as without Sluice."]


class Shown:
    """entries, answer, said: of all rows of one mode. said: further sentences."""

    def __init__(
        self, options, head: list[str], entries: list[Entry], answer: Answer | None, said: list, failures: list
    ):
        self._options = options
        self._head = head
        self._entries = entries
        self._answer = answer
        self._said = said
        self._failures = failures

    def _verdict(self) -> list[str]:
        return self._answer.text if self._answer else []

    def _next(self) -> list[str]:
        if self._failures:
            return ["mend what was not measured: what the commands said is in `output` of --out. The same command then "
                    "goes on"]  # fmt: skip
        return self._answer.next if self._answer else []

    def _commands(self) -> list[str]:
        """To go on with. A command that has just failed is none."""
        return [] if self._failures else commands(self._options, *([self._answer.flags] if self._answer else []))

    def json(self) -> str:
        return json.dumps(
            {
                "gpu": self._head[0],
                "answer": self._answer.word if self._answer else "UNKNOWN",
                "sure": bool(self._answer and self._answer.sure),
                "verdict": [*self._verdict(), *self._said],
                "next": self._next(),
                "commands": self._commands(),
                "cells": [vars(entry) | {"jobs": entry.known_jobs} for entry in self._entries],
                "failed": self._failures,
            },
            indent=2,
        )

    def markdown(self) -> str:
        listed = "\n".join(f"- {text}" for text in [*self._next(), *(f"`{text}`" for text in self._commands())])
        return "\n\n".join(
            [
                *(f"**{text}**" for text in self._verdict()[:1]),
                *self._verdict()[1:],
                *self._said,
                table.markdown(self._entries).strip(),
                *notes(self._entries),
                *self._failures,
                "\n".join(f"- {text}" for text in self._head),
                f"Next:\n\n{listed}",
            ]
        )

    def text(self) -> str:
        following = [("next: " if not place else "      ") + text for place, text in enumerate(self._next())]
        started = [f"      {text}" for text in self._commands()] if following else []
        lines = [*self._head, "", table.text(self._entries), *notes(self._entries), *self._failures]
        # The commands are not wrapped: they are to be copied.
        return "\n".join([table.wrapped([*lines, "", *self._verdict(), *self._said, "", *following]), *started])

    def page(self) -> str:
        return answer_page.render(
            "compare",
            "Is it worth it? Two programs on one GPU",
            [(self._head[0], self._options.gpu == "sim")],
            [*self._verdict(), *self._said],
            self._entries,
            notes=[*notes(self._entries), *self._failures],
            following=self._next(),
            commands=self._commands(),
            closing=self._head[1:],
        )

    def write(self, folder: Path) -> int:
        """Prints first: a full disk takes no table away. 0, or 1 if a file could not be written."""
        print(self.json() if self._options.json else self.text())
        made, code = {"compare.md": self.markdown, "compare.json": self.json, "compare.html": self.page}, 0
        written = []
        for name, content in made.items():
            try:
                (folder / name).write_text(content() + "\n")
                written.append(str(folder / name))
            except OSError as error:
                code = 1
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
                print(f"sluice compare: cannot write {folder / name}: {error.strerror}", file=sys.stderr)
        if written and not self._options.json:
            print(f"\nfiles: {', '.join(written)}")
        return code
