"""The pictures of `sluice parse`, by matplotlib."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from sluice_tools.parse.models import Model

matplotlib.use("agg")

from matplotlib import pyplot  # noqa: E402: after the choice of a backend without a screen

_POINTS = 4000  # more than a picture has columns


def _thinned(values: np.ndarray) -> np.ndarray:
    """Sorted values at _POINTS even places, both ends included."""
    if len(values) <= _POINTS:
        return np.arange(len(values))
    return np.unique(np.linspace(0, len(values) - 1, _POINTS).astype(int))


def _save(figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panels(models: list, title: str, y: str, x: str = "time (s)"):
    """One above the other, one for each model, on one time axis."""
    figure, axes = pyplot.subplots(len(models), 1, sharex=True, squeeze=False, layout="constrained",
                                   figsize=(10, 1 + 2.2 * len(models)))
    figure.suptitle(title)
    for axis, model in zip(axes[:, 0], models):
        axis.set_title(model, fontsize="medium", loc="left")
        axis.set_ylabel(y)
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xlabel(x)
    return figure, axes[:, 0]


def kernel_durations(models: list[Model], note: str, path: Path) -> None:
    figure, axis = pyplot.subplots(layout="constrained", figsize=(8, 5))
    for model in models:
        durations = np.sort(model.values("duration"))
        share = np.arange(1, len(durations) + 1) / len(durations)
        at = _thinned(durations)
        axis.step(durations[at] / 1e3, share[at], where="post", label=model.label)
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    axis.set_xlabel(f"kernel duration (µs{note})")
    axis.set_ylabel("share of kernels (CDF)")
    axis.set_title("Kernel durations")
    axis.grid(alpha=0.3)
    axis.legend()
    _save(figure, path)


def queue_depths(depths: dict[str, pd.DataFrame], note: str, path: Path) -> None:
    figure, axes = _panels(list(depths), "Queue depth: launches issued minus kernels ended",
                           "kernels", f"time (s{note})")
    for axis, depth in zip(axes, depths.values()):
        at = depth["BinStart"] / 1e9
        axis.fill_between(at, depth["MaxDepth"], step="post", alpha=0.3, label="highest")
        axis.step(at, depth["MeanDepth"], where="post", label="mean")
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper right", fontsize="small")
    _save(figure, path)


def queue_delays(models: list[Model], note: str, path: Path) -> None:
    """Each dot the longest delay of its share of the kernels: thinning must not lose the worst."""
    figure, axes = _panels([model.label for model in models],
                           "Queueing delay: from the end of the launch call to the kernel's begin",
                           f"delay (ms{note})", f"time of issue (s{note})")
    for axis, model in zip(axes, models):
        issue, delay = model.values("issue"), model.values("delay")
        step = -(-len(issue) // _POINTS)
        first = np.arange(0, len(issue), step)
        axis.plot(issue[first] / 1e9, np.maximum.reduceat(delay, first) / 1e6, ".", markersize=2)
        axis.set_ylim(bottom=0)
    _save(figure, path)


def completion_times(jobs: dict[str, pd.DataFrame], note: str, path: Path) -> None:
    figure, axes = _panels(list(jobs), "Job completion time, at the time of arrival",
                           f"JCT (ms{note})", "time (s of CLOCK_REALTIME since the first arrival)")
    zero = min(frame["Arrival"].min() for frame in jobs.values())
    for axis, frame in zip(axes, jobs.values()):
        arrival = (frame["Arrival"] - zero) / 1e9
        axis.plot(arrival, frame["JCT"], ".-", linewidth=0.6, markersize=4)
        # Arrivals as bars at the foot.
        axis.vlines(arrival, 0, 0.04, transform=axis.get_xaxis_transform(), linewidth=0.8,
                    color="black")
        axis.set_ylim(bottom=0)
    _save(figure, path)
