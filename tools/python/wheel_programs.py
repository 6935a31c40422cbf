"""Puts the programs into a wheel: the install tree $SLUICE_WHEEL_TREE. hatchling runs this (pyproject.toml)."""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramsHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict) -> None:
        tree = os.environ.get("SLUICE_WHEEL_TREE")
        if not tree or version == "editable":
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"  # auditwheel finds the right one
        build_data["shared_data"][str(Path(tree, "share", "man"))] = "share/man"
        for folder in ("bin", "libexec", "lib", "share/sluice"):
            build_data["force_include"][str(Path(tree, folder))] = f"sluice/_native/{folder}"
