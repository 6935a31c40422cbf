"""What Sluice sees of the programs of a measurement: their jobs, steps, launches and targets, from the board.

The programs need no change. A job of the critical program is what Sluice takes for one: between
sluice_job_begin() and sluice_job_end(), or from the first launch to the end of its GPU work. A program that is never
idle has steps instead.
"""

import contextlib
import json
import subprocess
import threading
from dataclasses import dataclass

from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL

# Of the clients of each role: a child process has the name of its parent, and a priority may change.
NAMES = {CRITICAL: "critical", BEST_EFFORT: "best-effort"}
_COUNTERS = ("launches", "held_ns", "waits")


class Watch:
    """What `sluice top --json --follow` sees of a session, from a thread of its own."""

    def __init__(self, sluice: str, name: str):
        self._process = subprocess.Popen(
            [sluice, "top", "--json", "--follow", "--interval", "0.02", "--session", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert self._process.stdout and self._process.stderr
        self._out, self._err = self._process.stdout, self._process.stderr
        self._lock = threading.Lock()
        self._ended: dict[str, dict[str, list]] = {name: {"job_ns": [], "step_ns": []} for name in NAMES.values()}
        self._missed = 0
        self._looks = 0
        self._active = dict.fromkeys(NAMES.values(), 0)  # looks in which a job ran
        # The last line of each client, also of those that are gone: a client is one process.
        self._clients: dict[tuple, dict] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._out:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))

    def _take(self, line: dict) -> None:
        with self._lock:
            self._looks += 1
            active = set()
            for client in line.get("clients", ()):
                self._clients[client["slot"], client["generation"]] = client
                if client["name"] not in self._ended:
                    continue
                self._missed += client["missed"] + client["missed_steps"]
                for kind, ended in self._ended[client["name"]].items():
                    ended.extend(client[kind])
                if client["state"] == "active":
                    active.add(client["name"])
            for name in active:
                self._active[name] += 1

    def clear(self) -> None:
        """Forgets the jobs and steps so far: the window begins."""
        with self._lock:
            for kinds in self._ended.values():
                for ended in kinds.values():
                    ended.clear()
            self._missed = self._looks = 0
            self._active = dict.fromkeys(self._active, 0)

    def jobs_ms(self, role: str) -> list:
        return self._durations_ms(role, "job_ns")

    def steps_ms(self, role: str) -> list:
        return self._durations_ms(role, "step_ns")

    def _durations_ms(self, role: str, kind: str) -> list:
        with self._lock:
            return [ns / 1e6 for ns in self._ended[NAMES[role]][kind]]

    def active_share(self, role: str) -> float:
        """Of the looks: how often a job of the role ran. Also a job without an end."""
        with self._lock:
            return self._active[NAMES[role]] / self._looks if self._looks else 0.0

    @property
    def missed(self) -> int:
        with self._lock:
            return self._missed

    def counters(self, role: str) -> dict:
        """Summed over the clients of the role: a program may be several processes."""
        with self._lock:
            clients = [client for client in self._clients.values() if client["name"] == NAMES[role]]
            return {name: sum(client[name] for client in clients) for name in _COUNTERS}

    def check(self) -> None:
        """Raises RuntimeError if nothing is seen any more."""
        if self._process.poll() is not None:
            raise RuntimeError(self._err.read().strip() or "sluice top has ended")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        for stream in (self._out, self._err):
            stream.close()


@dataclass(frozen=True)
class Judged:
    """What the board says of targets: summed over the clients of the critical command, which may be several."""

    jobs: int = 0
    kept: int = 0
    limit_ns: int = 0  # the greatest
    state: str = "learning"
    learned: bool = False  # by all of them

    @classmethod
    def of(cls, clients: dict) -> "Judged":
        """clients: of Session.clients()."""
        targets = [client["target"] for client in clients.values() if client["target"]]
        if not targets:
            return cls()
        states = [target["state"] for target in targets]
        worst = next((state for state in ("learning", "missed", "kept") if state in states), "learning")
        return cls(
            sum(target["jobs"] for target in targets),
            sum(target["kept"] for target in targets),
            max(target["limit_ns"] or 0 for target in targets),
            worst,
            worst != "learning" and "none" not in states,
        )
