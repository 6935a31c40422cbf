"""The file `server-profile` of `sluice serve` (docs/reference/server-files.md): memory over time and handovers."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from sluice_tools.common.errors import usage_error

PARTS = ("order", "drop", "drain", "give", "take", "load")
_MEMORY = re.compile(r"([\d.]+): Infer ([\d.]+) Mb Train ([\d.]+) Mb Total ([\d.]+) Mb$")
_HANDOVER = re.compile(r"([\d.]+): ([\d.]+) Mb " + " ".join(rf"{part} ([\d.]+)" for part in PARTS) + r"( not obeyed)?$")
_CLOCK = re.compile(r"0\.0: ([\d.]+)$")


@dataclass(frozen=True)
class Handover:
    """at: ms of CLOCK_REALTIME. parts: ms, in the order of PARTS."""

    at: float
    mb: float
    parts: tuple[float, ...]
    obeyed: bool

    @property
    def total(self) -> float:
        return sum(self.parts)


@dataclass
class Profile:
    """memory: (ms of CLOCK_REALTIME, MB of inference, of training, of all clients)."""

    memory: list[tuple[float, float, float, float]] = field(default_factory=list)
    handovers: list[Handover] = field(default_factory=list)


def read(path: Path) -> Profile:
    """Raises CommandError for a file that is no profile of this server."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise usage_error(f"cannot read {path}: {error.strerror}") from error
    sections = _sections(lines)
    if not (clock := [found for line in sections.get("Clock Info", ()) if (found := _CLOCK.match(line))]):
        raise usage_error(f"{path} has no [Clock Info]; name the file of `sluice serve --profile FILE`")
    start = float(clock[0][1])
    profile = Profile()
    for line in sections.get("Memory Info", ()):
        at, infer, train, total = map(float, _numbers(path, line, _MEMORY))
        profile.memory.append((start + at, infer, train, total))
    for line in sections.get("Adjust Info", ()):
        at, mb, *parts, refused = _numbers(path, line, _HANDOVER)
        profile.handovers.append(Handover(start + float(at), float(mb), tuple(map(float, parts)), not refused))
    return profile


def _sections(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    lines_of: list[str] = []
    for line in lines:
        if head := re.fullmatch(r"\[(.* Info)\]", line):
            lines_of = found.setdefault(head[1], [])
        elif line:
            lines_of.append(line)
    return found


def _numbers(path: Path, line: str, form: re.Pattern) -> tuple:
    if not (found := form.match(line)):
        raise usage_error(f"{path}: found '{line[:80]}', which is no line of its section")
    return found.groups()
