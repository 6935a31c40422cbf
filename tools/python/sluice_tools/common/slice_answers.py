"""Whether a GPU obeys time slices: the answers that trials left on this machine (docs/reference/slices.md).

controller/slice_answers.cpp reads and writes the same files.
"""

import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

OBEYED, NOT_OBEYED = "obeyed", "not obeyed"
NO_ANSWER = "no answer yet"
_NODE_FOLDER = Path("/var/cache/sluice")  # of the node service
SIMULATED = "simulated"  # the driver's version of the simulated GPU


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a trial found. `slices`: obeyed, not obeyed, or None with the reason `why`."""

    slices: str | None
    short_ms: float = 0.0  # a short job with short slices
    driver_ms: float = 0.0  # and with the driver's
    why: str = ""

    @property
    def text(self) -> str:
        return f"{OBEYED} ({self.short_ms:.2f} ms)" if self.slices == OBEYED else self.slices or NO_ANSWER


def loaded_driver(files: Path = Path("/")) -> str:
    """The version of the kernel module, which decides; empty if none is loaded."""
    try:
        return (files / "sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def answer_file(uuid: str, environment: Mapping[str, str]) -> Path | None:
    """None where there is no folder for it, or the UUID is none."""
    if not uuid or set(uuid) - set("0123456789abcdefGPU-"):
        return None
    cache = environment.get("XDG_CACHE_HOME", "")
    home = environment.get("HOME", "")
    if cache.startswith("/"):
        return Path(cache) / "sluice" / f"slices-{uuid}.json"
    return Path(home) / ".cache" / "sluice" / f"slices-{uuid}.json" if home.startswith("/") else None


def recorded(uuid: str, driver: str, environment: Mapping[str, str]) -> Answer:
    """The answer for this version of the driver; one without `slices` if there is none."""
    own = answer_file(uuid, environment)
    for file in (own, _NODE_FOLDER / own.name) if own else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(file.read_text())
            if driver and found["driver"] == driver and found["slices"] in (OBEYED, NOT_OBEYED):
                return Answer(found["slices"], float(found["short_ms"]), float(found["driver_ms"]))
    return Answer(None)


def content(answer: Answer, driver: str) -> dict:
    """Of the file, and what `sluice doctor --only-slices` prints."""
    return {"driver": driver, **dataclasses.asdict(answer), "tried": datetime.date.today().isoformat()}


def record(uuid: str, driver: str, answer: Answer, environment: Mapping[str, str]) -> bool:
    """Replaces the file as a whole. False, and nothing is written, without an answer or a place for it."""
    file = answer_file(uuid, environment)
    if not file or not driver or answer.slices is None:
        return False
    temporary = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".slices-")
        with os.fdopen(descriptor, "w") as out:
            json.dump(content(answer, driver), out)
        os.replace(temporary, file)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True
