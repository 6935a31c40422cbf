"""How the commands lay out --help: no line is longer than the terminal, and no word is broken."""

import argparse
import re
import textwrap

_DESCRIBED = re.compile(r" +\S.*?\s{2,}(?=\S)")  # a name, and the gap in front of its description
_LEAST = 20  # of a continued line


def wrapped(line: str, width: int) -> list[str]:
    """`line` in lines of at most `width`, the later ones below where its text or its description begins."""
    found = _DESCRIBED.match(line)
    indent = found.end() if found else len(line) - len(line.lstrip())
    if indent > width - _LEAST:
        indent = _LEAST
    return textwrap.wrap(
        line, width, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    ) or [""]


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of a description and of examples, unless they are too long."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        full = width + 2  # argparse keeps two columns free
        return "\n".join(part for line in text.splitlines() for part in wrapped(indent + line, full))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)
