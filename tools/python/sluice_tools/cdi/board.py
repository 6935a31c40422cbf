"""Where the board is that a container's programs share: in the folder of the node service, or in /dev/shm."""

import os
import stat
from pathlib import Path

# One path in all containers. Programs look here.
IN_CONTAINER = "/run/sluice"


class NodeFolder:
    """The folder of the node service on this machine: SLUICE_NODE_DIR, else /run/sluice. As for programs, an empty
    variable, or one that is no absolute path, means that there is none."""

    def __init__(self, environment=os.environ):
        chosen = environment.get("SLUICE_NODE_DIR", "/run/sluice")
        self.path = Path(chosen) if chosen.startswith("/") else None

    def why_not(self) -> str:
        """Why containers cannot use the node service now. Empty if they can."""
        if self.path is None:
            return "SLUICE_NODE_DIR names no folder of a node service"
        if not os.path.lexists(self.path / "node.sock"):
            return f"no node service in {self.path}"
        found = self.path.lstat()
        # base/node_service.cpp has the same rule.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
            return f"programs do not trust the node service in {self.path}: root must own that folder"
        return ""
