#!/usr/bin/env python3
"""Writes a man page for `sluice` and for each of its commands, from their --help texts.

help2man fills the lines of examples, so that they cannot be copied; hence this script.

usage: man_pages.py SLUICE FOLDER VERSION    writes FOLDER/sluice.1.gz and FOLDER/sluice-COMMAND.1.gz

The pages have the date of $SOURCE_DATE_EPOCH if it is set.
"""

import gzip
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

_ENTRY = re.compile(r" {2,6}(\S.*?)(?: {2,}(\S.*))?$")
_CONTINUED = " " * 8
_TERM = re.compile(r"[\w|]+: ")  # "usage: ", and paragraphs about one word


def escape(text: str) -> str:
    """`text` so that roff prints it as it is, with hyphens that can be copied into a shell."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def options(lines: list[str]) -> list[str]:
    page = []
    for line in lines:
        found = None if line.startswith(_CONTINUED) else _ENTRY.match(line)
        if found:
            page += [".TP", f"\\fB{escape(found[1])}\\fR"]
            if found[2]:
                page.append(escape(found[2]))
        else:
            page.append(escape(line.strip()))
    return page


def verbatim(lines: list[str]) -> list[str]:
    return [".nf", *(escape(line.removeprefix("  ")) for line in lines), ".fi"]


def blocks(text: str) -> list[list[str]]:
    """Runs of lines: a line that is not indented and the indented ones after it, or indented lines alone."""
    found: list[list[str]] = []
    fresh = True
    for line in text.splitlines():
        if not line.strip():
            fresh = True
        elif fresh or (not line.startswith(" ") and (found[-1][-1].startswith(" ") or _TERM.match(line))):
            found.append([line])
            fresh = False
        else:
            found[-1].append(line)
    return found


def body(text: str) -> tuple[list[str], list[str]]:
    """The synopsis, and the rest of a help text as roff."""
    synopsis: list[str] = []
    page: list[str] = []
    for block in blocks(text):
        if block[0].lower().startswith("usage:"):
            synopsis = [escape(" ".join(line.strip() for line in block).split(":", 1)[1].strip())]
            continue
        heading, rest = block[0], block[1:]
        if heading.endswith(":") and rest:
            page += [f'.SH "{escape(heading[:-1]).upper()}"']
            page += verbatim(rest) if heading.lower() == "examples:" else options(rest)
        elif heading.startswith(" "):
            page += [".PP", *(options(block) if _is_table(block) else verbatim(block))]
        else:
            page.append(".SH NOTES" if page and page[-1] == ".fi" else ".PP")
            page += [escape(line.strip()) for line in block]
    return synopsis, page


def _is_table(lines: list[str]) -> bool:
    return all(line.startswith(_CONTINUED) or re.match(r" {2,6}\S.*? {2,}\S", line) for line in lines)


def page(name: str, summary: str, help_text: str, version: str, date: str, see_also: list[str]) -> str:
    synopsis, described = body(help_text)
    lines = [
        f'.TH "{escape(name.upper())}" 1 "{date}" "Sluice {version}" "User Commands"',
        ".nh",  # a word that is cut in two cannot be searched for
        ".ad l",
        ".SH NAME",
        f"{escape(name)} \\- {escape(summary)}",
        ".SH SYNOPSIS",
        *(synopsis or [escape(name.replace("-", " ", 1))]),
        ".SH DESCRIPTION",
        *described,
        '.SH "SEE ALSO"',
        ", ".join(f"\\fB{escape(other)}\\fR(1)" for other in see_also),
    ]
    return "\n".join(lines) + "\n"


def help_of(sluice: str, *command: str) -> str:
    environment = {**os.environ, "COLUMNS": "1000", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([sluice, *command, "--help"], env=environment, capture_output=True, text=True)
    if done.returncode or not done.stdout.strip():
        said = done.stderr.strip() or "no output"
        raise SystemExit(f"man_pages: {' '.join([sluice, *command])} --help: exit code {done.returncode}: {said}")
    return done.stdout


def commands(help_text: str) -> dict[str, str]:
    """name -> summary: the table that follows the usage of `sluice --help`."""
    table = next(block for block in blocks(help_text) if block[0].startswith("  "))
    return dict(line.split(maxsplit=1) for line in table)


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    sluice, folder, version = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    now = datetime.now(timezone.utc).timestamp()
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", now)), timezone.utc).strftime("%Y-%m-%d")
    main_help = help_of(sluice)
    names = commands(main_help)
    about = main_help.splitlines()[0].rstrip(".")
    pages = {"sluice": page("sluice", about, main_help, version, date, [f"sluice-{name}" for name in names])}
    for name, summary in names.items():
        pages[f"sluice-{name}"] = page(f"sluice-{name}", summary, help_of(sluice, name), version, date, ["sluice"])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("sluice*.1.gz"):
        old.unlink()
    for name, text in pages.items():
        (folder / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
