"""pairs.png and pairs.svg: latency against best-effort throughput, a panel per pair."""

import math
from pathlib import Path

from sluice_tools.bench.pairs.summary import middle

# Okabe and Ito's colours, which the colour-blind can tell apart; the shapes say the same again.
_LOOK = {
    "none": ("#000000", "X"), "gate": ("#999999", "P"), "sync:1": ("#E69F00", "^"),
    "event:1": ("#56B4E9", "v"), "event:2": ("#0072B2", "<"), "device:200us": ("#D55E00", "o"),
    "device:200us+notice": ("#009E73", "D"), "device:200us+predicted": ("#F0E442", "d"),
    "priority": ("#CC79A7", "s"),
}
_FILLED = {"time-sliced": True, "MPS": False}
_COLUMNS = 4
# Above it, one point would press the others together: it is drawn at the edge, its value named.
_HIGHEST = 5.0


def points(entries: list) -> list:
    """(entry, policy, share in %, p50 x, p99 x) of every cell in which both programs ran."""
    found = []
    for entry in entries:
        values = [middle(entry[name]) for name in ("share", "p50_x", "p99_x")]
        policy = entry["cell"].removeprefix("priority+")
        if None not in values and not entry["varied"] and policy in _LOOK:
            found.append((entry, policy, 100 * values[0], *values[1:]))
    return found


def _panel(axes, pair: str, own: list):
    for entry, policy, share, p50, p99 in own:
        colour, marker = _LOOK[policy]
        axes.plot([share, share], [p50, p99], color=colour, linewidth=0.9, alpha=0.6)
        if p50 <= _HIGHEST:
            axes.plot([share], [p99], marker="_", color=colour, markersize=7)
        axes.plot([share], [min(p50, _HIGHEST)], marker=marker, color=colour, markersize=6,
                  markerfacecolor=colour if _FILLED[entry["mode"]] else "white", clip_on=False,
                  zorder=3 if policy.startswith("device") else 2)
    above = [(p50, policy) for _, policy, _, p50, _ in own if p50 > _HIGHEST]
    for line, (p50, policy) in enumerate(sorted(above, reverse=True)):
        axes.annotate(f"{policy}: p50 {p50:.0f} ×", (0.5, 1), xytext=(0, -9 - 9 * line),
                      xycoords="axes fraction", textcoords="offset points", ha="center",
                      fontsize=7, color=_LOOK[policy][0])
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_ylim(0.9, _HIGHEST)
    axes.set_yticks([1, 1.5, 2, 3, 4, 5], ["1", "1.5", "2", "3", "4", "5"])
    axes.set_yticks([], minor=True)
    axes.set_title(pair, fontsize=9)
    axes.tick_params(labelsize=7)
    axes.grid(True, linewidth=0.3, alpha=0.5)


def _legend(figure, line):
    handles = [line([], [], color=colour, marker=marker, linestyle="", label=policy)
               for policy, (colour, marker) in _LOOK.items()]
    handles += [line([], [], color="black", marker="o", linestyle="",
                     label="filled: time-sliced"),
                line([], [], color="black", marker="o", linestyle="", markerfacecolor="white",
                     label="hollow: MPS (with client priorities, but for none)")]
    figure.legend(handles=handles, loc="outside upper center", ncols=5, fontsize=8, frameon=False)


def draw(entries: list, folder: Path) -> list:
    """Returns the files; none where there is nothing to draw."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    found = points(entries)
    pairs = list(dict.fromkeys(entry["pair"] for entry, *_ in found))
    if not pairs:
        return []
    columns = min(_COLUMNS, len(pairs))
    lines = math.ceil(len(pairs) / columns)
    figure, panels = pyplot.subplots(lines, columns, squeeze=False, layout="constrained",
                                     figsize=(max(3.2 * columns, 6.4), 2.8 * lines + 1.2))
    for axes, pair in zip(panels.flat, pairs):
        _panel(axes, pair, [point for point in found if point[0]["pair"] == pair])
    for axes in panels.flat[len(pairs):]:
        axes.set_visible(False)
    figure.supxlabel("best-effort speed, % of alone in the same mode", fontsize=9)
    figure.supylabel("critical latency, × alone (marker: p50, dash: p99)", fontsize=9)
    _legend(figure, Line2D)
    files = [folder / f"pairs.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    pyplot.close(figure)
    return files
