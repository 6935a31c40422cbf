"""Errors that end the command with one line: what was wrong, where, what to do."""

import argparse
import sys

from sluice_tools.common.help_text import HelpFormatter

EXIT_FINE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # Ctrl-C


class CommandError(Exception):
    """Ends the command with `code` and its text as the only line on standard error."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


def usage_error(text: str) -> CommandError:
    return CommandError(EXIT_USAGE, text)


def run_error(text: str) -> CommandError:
    return CommandError(EXIT_FAILED, text)


class Parser(argparse.ArgumentParser):
    """Wrong usage is one line; --help has lines that no terminal breaks."""

    def __init__(self, **options):
        super().__init__(formatter_class=HelpFormatter, **options)

    def error(self, message):
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(EXIT_USAGE)


def first_line(error: BaseException) -> str:
    """The class of a library's error, and the first line of its message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
