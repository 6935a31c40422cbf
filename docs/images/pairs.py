"""Draws docs/images/pairs.png from the rows of `sluice bench pairs`:

.venv/bin/python docs/images/pairs.py docs/data/pairs-h200.csv docs/images/pairs.png
"""

import csv
import sys
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
from sluice_tools.measure.summary import Entry, summarize

# What is drawn: (mode, condition): (words of the legend, colour, marker). Hollow markers are MPS.
_LOOK = {
    ("time-sliced", "none"): ("nothing held (none)", "#000000", "X"),
    ("time-sliced", "gate"): ("gate", "#8c8c8c", "P"),
    ("time-sliced", "sync:1"): ("sync:1", "#e69f00", "^"),
    ("time-sliced", "event:2"): ("event:2", "#0072b2", "<"),
    ("time-sliced", "device:200us"): ("device:200us", "#d55e00", "o"),
    ("time-sliced", "device:200us, announced"): ("device:200us, announced", "#009e73", "D"),
    ("time-sliced", "device:200us, predicted"): ("device:200us, predicted (the default)", "#cc79a7", "s"),
}
_UNDER_MPS = ("none", "device:200us", "device:200us, announced", "device:200us, predicted")
_PAIRS = (
    "resnet50+resnet152", "resnet50+resnet152-graph", "resnet50+training", "bert+bert",
    "resnet50+bert", "bert+resnet152", "bert+resnet152-graph", "bert+training",
    "fasterrcnn+resnet152", "fasterrcnn+resnet152-graph", "fasterrcnn+training", "fasterrcnn+bert",
)  # fmt: skip
_HIGHEST = 5.0  # Above it, a point is drawn at the edge and named there.


def _entries(file: Path) -> dict[str, list[Entry]]:
    """The conditions of each pair, in the order of the page."""
    with file.open(newline="") as rows:
        entries = summarize([row for row in csv.DictReader(rows) if not row["error"]])
    return {name: [entry for entry in entries if entry.subject == name] for name in _PAIRS}


def _look(entry: Entry) -> tuple[str, str, str, bool] | None:
    hollow = entry.mode == "MPS + priority"
    if hollow and entry.cell not in _UNDER_MPS:
        return None
    look = _LOOK.get(("time-sliced" if hollow else entry.mode, entry.cell))
    return (*look, hollow) if look else None


def _panel(axes, name: str, entries: list[Entry]) -> None:
    above = []
    for entry in entries:
        look = _look(entry)
        if look is None or not entry.share or not entry.x["p50"]:
            continue
        words, colour, marker, hollow = look
        p50 = median(entry.x["p50"])
        last = median(entry.x["p99"] or entry.x["max"])
        x, y = 100 * median(entry.share), min(p50, _HIGHEST)
        axes.plot([x, x], [y, min(last, _HIGHEST)], color=colour, linewidth=1, marker="_", markevery=[1], zorder=2)
        axes.plot(x, y, marker, color=colour, markerfacecolor="white" if hollow else colour, clip_on=False, zorder=3)
        if p50 > _HIGHEST:
            above.append(f"{words}{', MPS' if hollow else ''}: p50 {p50:.0f} ×")
    axes.set_title(name, fontsize=10)
    axes.set_yscale("log")
    axes.set_ylim(0.85, _HIGHEST)
    axes.set_yticks([1, 1.5, 2, 3, 4, 5], labels=["1", "1.5", "2", "3", "4", "5"])
    axes.minorticks_off()
    axes.axhline(1, color="#8c8c8c", linestyle=":", linewidth=1)
    axes.grid(alpha=0.25)
    axes.text(0.5, 0.96, "\n".join(above), transform=axes.transAxes, ha="center", va="top", fontsize=8)


def main(rows: Path, target: Path) -> None:
    figure, panels = plt.subplots(3, 4, figsize=(16, 11.6), layout="constrained")
    for axes, (name, entries) in zip(panels.flat, _entries(rows).items()):
        _panel(axes, name, entries)
    figure.supxlabel("best-effort speed, % of its speed alone in the same mode")
    figure.supylabel("critical latency, × alone in the same mode (marker: p50, dash: p99)")
    marks = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=words)
        for words, colour, marker in _LOOK.values()
    ]
    marks.append(Line2D([], [], color="#000000", marker="o", linestyle="", label="filled: time-sliced"))
    hollow = "hollow: MPS with client priorities"
    marks.append(Line2D([], [], color="#000000", marker="o", markerfacecolor="white", linestyle="", label=hollow))
    figure.legend(handles=marks, loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(target, dpi=110)
    print(f"{target}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
