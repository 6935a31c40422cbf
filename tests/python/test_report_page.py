"""A report in a browser: drawn, silent, and asking nobody for anything."""

import sys

import browser
import pytest
from report_runs import traced_pair
from sluice_tools.report import cli

pytest.importorskip("playwright", reason="playwright is missing: ./x reports")
pytestmark = pytest.mark.skipif(not browser.find(), reason=f"none of {browser.BROWSERS} is installed")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = traced_pair(tmp_path_factory.mktemp("run"))
    before, sys.argv = sys.argv, ["sluice-report", str(folder)]
    try:
        assert cli.main() == 0
    finally:
        sys.argv = before
    return folder / "report.html"


def test_every_figure_is_drawn(page_file):
    with browser.opened(page_file) as page:
        assert page.complaints == []
        assert page.requests == []
        plots = page.locator(".plot")
        # Timeline, JCT over time, a CDF for each of two models, gate waits, queue depth.
        assert plots.count() == 6
        for number in range(6):
            drawn = plots.nth(number).locator("svg .points path, svg .js-line, svg .bars path, svg .barlayer path")
            assert drawn.count() > 0, f"figure {number} is empty"
            assert plots.nth(number).locator("svg .xtitle, svg .x2title").count() > 0
        assert "gemm<float, 4>" in page.locator(".answer").inner_text()


def test_colours_follow_the_system_and_the_printer(page_file):
    """Text of plotly's default colour cannot be read on a dark page."""
    tick = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    with browser.opened(page_file, dark=True) as page:
        assert page.evaluate(tick) == "rgb(195, 204, 216)"
        page.emulate_media(media="print", color_scheme="light")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.wait_for_function(tick + " == 'rgb(48, 58, 72)'")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.complaints == []


def test_the_timeline_zooms_and_goes_back(page_file):
    """A drag direction or an axis that is fixed by mistake would leave a still picture."""
    with browser.opened(page_file) as page:
        box = page.locator("#figure0 .nsewdrag").bounding_box()
        page.mouse.move(box["x"] + 100, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 50, steps=5)
        page.mouse.up()
        width = "(a => a[1] - a[0])(document.getElementById('figure0').layout.xaxis.range)"
        page.wait_for_function(width + " < 2")
        page.mouse.dblclick(box["x"] + 100, box["y"] + 50)
        page.wait_for_function(width + " > 3")
        assert page.complaints == []
