"""What a server of the KServe v2 protocol has counted, and the processor time of its processes."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPUTE = ("compute_input", "compute_infer", "compute_output")
_SUM = r'^sluice_serve_{}_seconds_sum\{{model="{}"[^}}]*\}} (\S+)$'


@dataclass(frozen=True)
class Counters:
    """Sums since the server began. receive_s: from the headers of requests until they were complete, parsed and
    checked; None: the server does not count it."""

    requests: int
    items: int
    executions: int
    compute_s: float
    receive_s: float | None
    processor_s: float

    def since(self, before: "Counters") -> dict:
        """Means of the time between: of a request, but `batch` of an execution. None: there was no request."""
        requests = self.requests - before.requests
        executions = self.executions - before.executions

        def mean(after: float | None, first: float | None) -> float | None:
            return 1e3 * (after - first) / requests if requests and after is not None and first is not None else None

        return {
            "batch": (self.items - before.items) / executions if executions else None,
            "compute_ms": mean(self.compute_s, before.compute_s),
            "receive_ms": mean(self.receive_s, before.receive_s),
            # Seconds of a thousand requests are milliseconds of one.
            "processor_s_per_1000": mean(self.processor_s, before.processor_s),
        }


def read(server, model: str) -> Counters:
    """server: has `http_port` and `pid`, with all its processes below it. Raises OSError."""
    (stats,) = json.loads(_get(server, f"/v2/models/{model}/stats"))["model_stats"]
    times = stats["inference_stats"]
    return Counters(
        requests=int(times["success"]["count"]),
        items=int(stats["inference_count"]),
        executions=int(stats["execution_count"]),
        compute_s=sum(int(times[name]["ns"]) for name in _COMPUTE) / 1e9,
        receive_s=receive_s(_get(server, "/metrics"), model) if server.counts_receiving else None,
        processor_s=processor_s(server.pid),
    )


def receive_s(metrics: str, model: str) -> float:
    """A request is received, waits in the queue and is computed."""
    total, *parts = (
        float(found[1])
        for name in ("request", "queue", "compute")
        if (found := re.search(_SUM.format(name, re.escape(model)), metrics, re.MULTILINE))
    )
    return total - sum(parts)


def _get(server, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=30) as answer:
        return answer.read().decode()


def processor_s(pid: int) -> float:
    """Seconds of processor time, user and system, of a process and all below it, also of those that have ended."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for one, fields in _processes():
        children.setdefault(int(fields[1]), []).append(one)
        ticks[one] = sum(map(int, fields[11:15]))  # utime, stime, and those of the children it has waited for
    below = [pid]
    for one in below:
        below += children.get(one, ())
    return sum(ticks.get(one, 0) for one in below) / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, list[str]]]:
    """The fields of /proc/PID/stat after the name, the state first."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has just ended
                continue
