"""The pictures of `sluice parse`, by matplotlib."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from sluice_tools.parse.models import Model

matplotlib.use("agg")

from matplotlib import pyplot

_POINTS = 4000  # more than a picture has columns


def _save(figure, path: Path) -> None:
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panels(models: list, title: str, y: str, x: str = "time (s)"):
    """One above the other, one for each model, on one time axis."""
    figure, axes = pyplot.subplots(
        len(models), 1, sharex=True, squeeze=False, layout="constrained", figsize=(10, 1 + 2.2 * len(models))
    )
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
        durations, share = model.durations.curve(_POINTS)
        axis.step(durations / 1e3, share, where="post", label=model.label)
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    axis.set_xlabel(f"kernel duration (µs{note})")
    axis.set_ylabel("share of kernels (CDF)")
    axis.set_title("Kernel durations")
    axis.grid(alpha=0.3)
    axis.legend()
    _save(figure, path)


def queue_depths(depths: dict[str, pd.DataFrame], note: str, path: Path) -> None:
    figure, axes = _panels(
        list(depths), "Queue depth: launches issued minus kernels ended", "kernels", f"time (s{note})"
    )
    for axis, depth in zip(axes, depths.values()):
        at = depth["BinStart"] / 1e9
        axis.fill_between(at, depth["MaxDepth"], step="post", alpha=0.3, label="highest")
        axis.step(at, depth["MeanDepth"], where="post", label="mean")
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper right", fontsize="small")
    _save(figure, path)


def _longest(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Of every so many kernels, the time of issue of the first and the longest delay."""
    step = -(-model.count // _POINTS)
    issue, delay = np.zeros((2, -(-model.count // step)), np.int64)
    first = 0
    for rows in model.rows():
        place = np.arange(first, first + len(rows))
        begins = place % step == 0
        issue[place[begins] // step] = rows["issue"][begins]
        np.maximum.at(delay, place // step, rows["delay"])
        first += len(rows)
    return issue, delay


def queue_delays(models: list[Model], note: str, path: Path) -> None:
    """Each dot the longest delay of its share of the kernels: thinning must not lose the worst."""
    figure, axes = _panels(
        [model.label for model in models],
        "Queueing delay: from the end of the launch call to the kernel's begin",
        f"delay (ms{note})",
        f"time of issue (s{note})",
    )
    for axis, model in zip(axes, models):
        issue, delay = _longest(model)
        axis.plot(issue / 1e9, delay / 1e6, ".", markersize=2)
        axis.set_ylim(bottom=0)
    _save(figure, path)


def completion_times(jobs: dict[str, pd.DataFrame], note: str, path: Path) -> None:
    figure, axes = _panels(
        list(jobs),
        "Job completion time, at the time of arrival",
        f"JCT (ms{note})",
        "time (s of CLOCK_REALTIME since the first arrival)",
    )
    zero = min(frame["Arrival"].min() for frame in jobs.values())
    for axis, frame in zip(axes, jobs.values()):
        arrival = (frame["Arrival"] - zero) / 1e9
        axis.plot(arrival, frame["JCT"], ".-", linewidth=0.6, markersize=4)
        # Arrivals as bars at the foot.
        axis.vlines(arrival, 0, 0.04, transform=axis.get_xaxis_transform(), linewidth=0.8, color="black")
        axis.set_ylim(bottom=0)
    _save(figure, path)
