"""The page of `compare` and `demo`: its order, and a chart that cuts nothing."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace

import browser
import pytest
from sluice_tools.measure import answer_page, needs, verdict
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, Entry, heights


def entry(cell: str, p50: float, last: float, share: float, jobs: int = 500) -> Entry:
    found = Entry("", "time-sliced", cell, 1, jobs=[jobs], share=[share])
    found.ms["p50"], found.ms["max"], found.x["p50"] = [p50], [last], [p50]
    found.ms["p99"] = [last] if jobs >= 100 else []
    return found


def entries(bare_p99: float = 41.0) -> list[Entry]:
    alone = entry(ALONE, 1, 3, 0)
    alone.share = []
    return [
        alone,
        Entry("", "time-sliced", BEST_EFFORT_ALONE, 1),
        entry("bare", 13.3, bare_p99, 0.98),
        entry("device:200us", 1.04, 2.5, 0.02),
    ]


def render(found: list, **more) -> str:
    return answer_page.render(
        "compare",
        "A <title>",
        [("One GPU", False)],
        ["YES, `code` & more.", "Second."],
        found,
        following=["try `this`"],
        commands=["sluice exec -- a", "sluice exec -- b"],
        **more,
    )


def test_the_verdict_comes_first_and_the_next_step_last():
    page = render(entries())
    places = [page.index(text) for text in ("YES, <code>code</code> &amp; more.", "<table>", "<svg", "<h2>Next</h2>")]
    assert places == sorted(places)
    assert "A &lt;title&gt;" in page and "<script" not in page and "://" not in page
    assert "sluice exec -- a\nsluice exec -- b" in page


def test_p50_and_p99_are_against_the_same_alone():
    """Against alone each, a p99 may be below a p50, and its bar would point down or be dropped."""
    found = heights(entries())
    assert (found["device:200us"].p50, found["device:200us"].last) == (1.04, 2.5)
    assert all(height.p50 <= height.last for height in found.values())
    assert heights(entries()[1:]) == {} and "<svg" not in render(entries()[1:])


@pytest.mark.parametrize("bare_p99", [1.2, 41.0, 900.0])
def test_no_bar_is_cut(bare_p99):
    page = render(entries(bare_p99=max(bare_p99, 13.3)))
    ys = [float(text) for text in re.findall(r'(?:y1|y2|cy)="([0-9.-]+)"', page)]
    xs = [float(text) for text in re.findall(r'(?:x1|x2|cx)="([0-9.-]+)"', page)]
    assert min(ys) >= 28 and max(ys) <= 380 - 46 and min(xs) >= 53 and max(xs) <= 640
    assert f"p99 {max(bare_p99, 13.3):.2f} ×" in page
    ticks = [float(text) for text in re.findall(r'y="([0-9.]+)" text-anchor="end"', page)]
    assert len(ticks) >= 2 and all(one - other > 18 for one, other in itertools.pairwise(ticks))


def test_each_of_several_measurements_has_a_name_and_a_chart():
    two = [replace(one, subject=name) for name in ("a+b", "c+<d>") for one in entries()]
    page = render(two)
    assert page.count("<svg") == 2 and "<h3>c+&lt;d&gt;, time-sliced</h3>" in page
    assert page.count("<tr class=first>") == 2 and "<th class=left>what</th>" in page
    firsts = re.findall(r"<tr[^>]*><td class=left>([^<]*)</td><td class=left>([^<]*)<", page)
    assert [what for what, cell in firsts if cell == ALONE] == ["a+b, time-sliced", "c+&lt;d&gt;, time-sliced"]
    assert {what for what, cell in firsts if cell != ALONE} == {""}
    colours = re.findall(r'background:(#\w+)"></span>bare', page)
    assert len(colours) == 2 and len(set(colours)) == 1


@pytest.mark.skipif(not browser.find(), reason=f"none of {browser.BROWSERS} is installed")
@pytest.mark.parametrize("width", [390, 1240])
def test_it_fits_a_phone_and_asks_nobody(tmp_path, width):
    pytest.importorskip("playwright", reason="playwright is missing: ./x reports")
    file = tmp_path / "page.html"
    file.write_text(render(entries(), closing=["critical: " + "a" * 300]))
    with browser.opened(file, width=width, dark=True) as page:
        assert (page.requests, page.complaints) == ([], [])
        assert page.evaluate("document.documentElement.scrollWidth") == width
        inside = "[...document.querySelectorAll('svg text')].every(t => { const a = t.getBoundingClientRect(); "
        inside += (
            "const b = t.closest('svg').getBoundingClientRect(); return a.left >= b.left && a.right <= b.right; })"
        )
        assert page.evaluate(inside)


def test_it_needs_no_package(tmp_path):
    blocked = "import sys; sys.modules |= dict.fromkeys(('numpy', 'pandas')); "
    names = ("compare.show", "demo.cli", "bench.programs.report", "bench.llm.report")
    names += ("report.cli", "records.cli", "opbench.cli", "predict.cli")
    modules = ", ".join(f"sluice_tools.{name}" for name in names)
    subprocess.run(
        [sys.executable, "-c", f"{blocked} import {modules}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )


def test_a_disturbed_baseline_gives_no_verdict():
    bare, held = entry("bare", 0.6, 1, 0.8), entry("device:200us", 0.58, 1, 0.8)
    assert verdict.judge(bare, held).startswith("Disturbed: alone, the critical client was slower")


def test_other_programs_on_the_gpu_are_named(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$1" = --id=GPU-1 ] || exit 9\n'
        "echo '4711, /usr/bin/python3, 812 MiB'\necho '12, nvidia-cuda-mps-server, 30 MiB'\necho '[Not Supported]'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert needs.others_on_gpu("GPU-1") == ["/usr/bin/python3 (pid 4711, 812 MiB)"]
    assert needs.others_on_gpu("GPU-2") == []
    monkeypatch.setenv("PATH", "/nowhere")
    assert needs.others_on_gpu("GPU-1") == []
