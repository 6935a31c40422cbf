"""The published delay model: preemption delay = min(N, queued kernels) x mean kernel time, and
execution delay = a/N + b."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sluice_tools.report import activity, runs


@dataclass
class Queue:
    """What a critical job finds before it, and how long a kernel of it takes."""

    depths: np.ndarray  # launches of the swept model not done, at the begin of each critical job
    kernel_ms: float

    def delay_ms(self, n: np.ndarray) -> np.ndarray:
        """The mean over the jobs, for each N."""
        return np.minimum(np.asarray(n)[:, None], self.depths[None, :]).mean(axis=1) * self.kernel_ms


def measured_queue(folder: Path, swept: str, critical: str):
    """From a traced run under `gate`, in which nothing is paced; None where its trace lacks times of
    execution."""
    run = runs.read_run(folder, folder.name)
    clients = {one.label: one for one in activity.read(run.folder, run.models, run.notes)}
    if swept not in clients or critical not in clients or not clients[swept].has_execs:
        return None
    low, begins = clients[swept], clients[critical].jobs.begin
    begins = begins[begins >= min(low.launches.begins())]
    if not len(begins):
        return None
    depth = np.zeros(len(begins), dtype=np.int64)
    for rows in low.launches.chunks():
        depth += np.searchsorted(np.sort(rows["begin"]), begins)
        depth -= np.searchsorted(np.sort(rows["end"]), begins)
    busy_ns = sum(int((rows["end"] - rows["begin"]).sum()) for rows in low.execs.chunks())
    kernel_ms = busy_ns / len(low.execs) / 1e6 / run.scale
    return Queue(np.maximum(depth, 0), kernel_ms)


def fitted_depth(n: np.ndarray, delay_ms: np.ndarray, kernel_ms: float) -> float:
    """The one number of queued kernels that is nearest to what was measured: how deep the queue acts,
    where something else than its end lets a critical job in, such as time slices."""
    candidates = np.geomspace(0.1, max(n), 1000)
    predicted = np.minimum(np.asarray(n)[:, None], candidates[None, :]) * kernel_ms
    return float(candidates[np.argmin(((predicted - np.asarray(delay_ms)[:, None]) ** 2).sum(axis=0))])


def execution_fit(n: np.ndarray, delay_ms: np.ndarray) -> tuple:
    """a and b of a/N + b, by least squares."""
    n = np.asarray(n, dtype=float)
    (a, b), *_ = np.linalg.lstsq(np.column_stack((1 / n, np.ones(len(n)))), np.asarray(delay_ms), rcond=None)
    return float(a), float(b)


def error_percent(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Mean absolute percentage error."""
    return float(100 * np.mean(np.abs(np.asarray(predicted) / np.asarray(measured) - 1)))
