"""Programs of a measurement under one session of their own, by `sluice exec`."""

import json
import os
import subprocess
from contextlib import contextmanager

from sluice_tools.bench.programs import Program


class Session:
    """Starts programs in it and reads its status."""

    def __init__(self, sluice: str, label: str = ""):
        self._sluice = sluice
        self._name = f"bench-{os.getpid()}{label}"
        self._started = []

    def start(self, command: list, priority: int, policy: str, environment: dict,
              kind=Program) -> Program:
        program = kind([self._sluice, "exec", "--session", self._name, "--priority",
                        str(priority), "--policy", policy, "--", *command], environment)
        self._started.append(program)
        return program

    def clients(self) -> dict:
        """What `sluice status` says of each client, by pid."""
        said = subprocess.run([self._sluice, "status", "--json", "--session", self._name],
                              capture_output=True, text=True, check=True)
        return {client["pid"]: client for client in json.loads(said.stdout)["clients"]}

    def set_policy(self, pid: int, policy: str):
        """Raises RuntimeError if the client does not have it then."""
        said = subprocess.run([self._sluice, "set", f"pid:{pid}", "--policy", policy, "--session",
                               self._name, "--json"], capture_output=True, text=True)
        if said.returncode != 0:
            raise RuntimeError(f"policy {policy}: {said.stderr.strip()}")
        for client in json.loads(said.stdout)["clients"]:
            if client["policy"] != client["requested_policy"]:
                raise RuntimeError(f"policy {policy}: the client has {client['policy']} instead")

    def end(self):
        for program in self._started:
            program.end()


@contextmanager
def session(sluice: str, label: str = ""):
    """A Session whose programs end with it, the last started first."""
    opened = Session(sluice, label)
    try:
        yield opened
    finally:
        opened.end()
