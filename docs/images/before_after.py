"""Draws docs/images/before_after.svg: one critical job next to training, without gating and with it.

    tests/real_gpu/before_after.sh results/before-after        on a machine with a GPU
    .venv/bin/python docs/images/before_after.py results/before-after docs/images/before_after.svg

Each panel shows the job of median duration of a run, as its trace has it.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
from sluice_tools.trace.reader import read_run

_WIDTH, _LEFT, _RIGHT, _PANEL, _TOP = 860, 110, 24, 150, 16
_SERVER, _TRAINING, _JOB, _TEXT, _FAINT = "#0969da", "#bf8700", "#ddf4ff", "#1f2328", "#59636e"
_BEFORE_MS = 0.5  # what is shown in front of the job
_SHORTEST_PX = 0.4  # of a kernel


def _median_job(client) -> tuple[int, int, int]:
    """(begin, end, number of jobs). The program serves eagerly first, then as a graph: the second half counts."""
    jobs = client.jobs()
    jobs = jobs[jobs["finished"]]
    begin, end = jobs["begin_ns"].to_numpy(), jobs["end_ns"].to_numpy()
    late = begin > begin[0] + 0.6 * (end[-1] - begin[0])
    begin, end = begin[late], end[late]
    at = np.argsort(end - begin, kind="stable")[len(begin) // 2]
    return int(begin[at]), int(end[at]), len(begin)


def _spans(client, begin: int, end: int, ns_per_px: float) -> list[tuple[int, int]]:
    """When kernels of the client ran in [begin, end]; those that no pixel separates are one."""
    kernels = client.execs().sort_values("begin_ns")
    found: list[list[int]] = []
    for first, last in zip(kernels["begin_ns"], kernels["end_ns"]):
        if last <= begin or first >= end:
            continue
        first, last = max(first, begin), min(last, end)
        if found and first - found[-1][1] < ns_per_px:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return [(first, last) for first, last in found]


def _text(x: float, y: float, text: str, style: str = "", colour: str = _TEXT, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" {style}>{text}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _panel(top: float, title: str, run, window_ns: float) -> list[str]:
    training, server = sorted(run.clients, key=lambda client: client.priority)
    begin, end, jobs = _median_job(server)
    zero = int(begin - _BEFORE_MS * 1e6)
    px = (_WIDTH - _LEFT - _RIGHT) / window_ns

    def x(ns: float) -> float:
        return _LEFT + (ns - zero) * px

    parts = [
        _text(_LEFT, top + 14, f"{title}: {(end - begin) / 1e6:.2f} ms", 'font-weight="600" font-size="15"'),
        _text(_WIDTH - _RIGHT, top + 14, f"median of {jobs} jobs", "", _FAINT, "end"),
        _box(x(begin), top + 26, (end - begin) * px, 78, _JOB),
    ]
    for row, (name, client, colour) in enumerate((("server", server, _SERVER), ("training", training, _TRAINING))):
        y = top + 32 + 38 * row
        parts.append(_text(_LEFT - 12, y + 19, name, "", _TEXT, "end"))
        for first, last in _spans(client, zero, int(zero + window_ns), 1 / px):
            parts.append(_box(x(first), y, max((last - first) * px, _SHORTEST_PX), 28, colour))
    parts.append(_text(x(begin), top + 118, "the job begins", "", _FAINT))
    parts.append(
        _text(x(end), top + 118, "its work is done", "", _FAINT, "end" if (end - begin) * px > 190 else "start")
    )
    return parts


def main(folder: Path, target: Path) -> None:
    about = json.loads((folder / "about.json").read_text())
    panels = [
        (title, read_run(folder / name))
        for title, name in (
            ("Time slicing, nothing gated", "none"),
            ("Sluice, policy device:200us (the default)", "default"),
        )
    ]
    longest = max(
        end - begin
        for begin, end, _ in (_median_job(max(run.clients, key=lambda client: client.priority)) for _, run in panels)
    )
    window_ns = longest + 2 * _BEFORE_MS * 1e6
    height = _TOP + 2 * _PANEL + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        "<title>One critical job next to training, without gating and with it</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for number, (title, run) in enumerate(panels):
        parts += _panel(_TOP + number * _PANEL, title, run, window_ns)
    notes = (
        f"{about['gpu']}: {about['server']}, next to {about['training']}.",
        "Bars are kernels on the GPU. The default also predicts regular jobs, so training stops just before.",
    )
    for line, note in enumerate(notes):
        parts.append(_text(_LEFT, height - 30 + 17 * line, note, 'font-size="12"', _FAINT))
    target.write_text("\n".join([*parts, "</svg>"]) + "\n")
    print(f"{target}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
