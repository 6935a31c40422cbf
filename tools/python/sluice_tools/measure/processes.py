"""What the kernel says of the processes of a program: their CPU time, and the ports on which they listen."""

import contextlib
import os
from pathlib import Path

_LISTENS = "0A"  # the state in /proc/net/tcp
_SESSION, _PARENT, _USER, _SYSTEM = 3, 1, 11, 12  # fields of /proc/PID/stat, behind the name


def _stats() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                # The name may hold spaces and parentheses.
                found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    return found


def _tree(leader: int, stats: dict[int, list[str]]) -> set[int]:
    """The processes of the session of `leader`, and all that come from them."""
    found = {pid for pid, stat in stats.items() if pid == leader or int(stat[_SESSION]) == leader}
    while more := {pid for pid, stat in stats.items() if int(stat[_PARENT]) in found} - found:
        found |= more
    return found


def cpu_seconds(leader: int) -> float:
    """Of those that live."""
    stats = _stats()
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in _tree(leader, stats) if pid in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def ports(leader: int) -> list[int]:
    """The TCP ports on which these processes listen."""
    found = set()
    for pid in _tree(leader, _stats()):
        with contextlib.suppress(OSError):
            own = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in own:
                        found.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(found)
