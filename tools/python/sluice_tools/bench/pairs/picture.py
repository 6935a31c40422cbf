"""pairs.png and pairs.svg: latency against best-effort throughput, a panel per pair."""

import math
from pathlib import Path

from sluice_tools.bench.pairs.summary import middle

# Okabe and Ito's colours, which the colour-blind can tell apart; letters say the same again.
_LOOK = {
    "none": ("#000000", "n"), "gate": ("#999999", "g"), "sync:1": ("#E69F00", "s"),
    "event:1": ("#56B4E9", "e1"), "event:2": ("#0072B2", "e2"), "device:200us": ("#D55E00", "d"),
    "device:200us+notice": ("#009E73", "d+"), "priority": ("#CC79A7", "p"),
}
_MARKERS = {"time-sliced": "o", "MPS": "s"}
_COLUMNS = 4


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
        colour, letters = _LOOK[policy]
        marker = _MARKERS[entry["mode"]]
        axes.plot([share, share], [p50, p99], color=colour, linewidth=1, alpha=0.6)
        axes.plot([share], [p99], marker="_", color=colour, markersize=7)
        axes.plot([share], [p50], marker=marker, color=colour, markersize=7,
                  markerfacecolor=colour if marker == "o" else "white")
        axes.annotate(letters, (share, p50), textcoords="offset points", xytext=(5, -9), fontsize=7,
                      color=colour)
    axes.axhline(1, color="#999999", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_title(pair, fontsize=9)
    axes.tick_params(labelsize=7)
    axes.grid(True, which="both", linewidth=0.3, alpha=0.5)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if str(value)[0] in "25" else "")
    axes.tick_params(axis="y", which="minor", labelsize=6)


def _legend(figure, line):
    handles = [line([], [], color=colour, marker="o", linestyle="", label=f"{letters}  {policy}")
               for policy, (colour, letters) in _LOOK.items()]
    handles += [line([], [], color="black", marker=marker, linestyle="", label=mode,
                     markerfacecolor="black" if marker == "o" else "white")
                for mode, marker in _MARKERS.items()]
    figure.legend(handles=handles, loc="lower center", ncols=5, fontsize=8, frameon=False)


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
    figure.get_layout_engine().set(rect=(0, 0.9 / (2.8 * lines + 1.2), 1, 1 - 0.9 / (2.8 * lines + 1.2)))
    figure.supxlabel("best-effort speed, % of alone in the same mode", fontsize=9)
    figure.supylabel("critical latency, × alone (marker: p50, dash: p99)", fontsize=9)
    _legend(figure, Line2D)
    files = [folder / f"pairs.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    pyplot.close(figure)
    return files
