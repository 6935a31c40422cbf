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


def test_every_chart_is_drawn(page_file):
    with browser.opened(page_file) as page:
        assert page.complaints == []
        assert page.requests == []
        charts = page.locator("figure")
        # Timeline, JCT over time of two models, a CDF for each of them, gate waits, queue depth.
        assert charts.count() == 7
        for number in range(7):
            drawn = charts.nth(number).locator("svg polyline, svg rect, svg circle:not(.unseen)")
            assert drawn.count() > 0, f"chart {number} is empty"
            assert charts.nth(number).locator("svg title").count() > 0, f"chart {number} does not say its numbers"
        assert "gemm<float, 4>" in page.locator(".answer").inner_text()
        rows = page.locator("figure").first.locator("svg > text").all_text_contents()
        for name in ("B: jobs", "B: thread held", "B: GPU", "A: gate", "A: GPU", "job begins", "job ends"):
            assert name in rows, rows


def test_the_timeline_says_when_each_kernel_ran(page_file):
    """A bar beside its place would blame another kernel."""
    text = page_file.read_text()
    # From 3 ms before the job until 1.4 ms in it; then the queued one for 0.5 ms.
    assert "gemm&lt;float, 4&gt;, 3.40 ms from -2.0000 ms" in text and "queued_one, 0.50 ms from 1.4000 ms" in text
    with browser.opened(page_file) as page:
        places = "t => document.evaluate(`//*[local-name()='title'][contains(., '${t}')]/..`, document, null, 9)"
        places = f"({places}.singleNodeValue.getBoundingClientRect().toJSON())"
        first, second = (page.evaluate(places, name) for name in ("gemm<float", "queued_one"))
        begin, end = (page.get_by_text(f"job {word}", exact=True).bounding_box() for word in ("begins", "ends"))
        assert first["x"] < begin["x"] and abs(first["x"] + first["width"] - second["x"]) < 1
        length = end["x"] + end["width"] - begin["x"] + 2 * 6  # 6: from a line to its text
        assert second["width"] / length == pytest.approx(0.5 / 3.1, abs=0.03)


@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_can_be_read(page_file, width):
    with browser.opened(page_file, dark=True, width=width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        boxes = "[...document.querySelectorAll('svg text')].map(t => [t.getBoundingClientRect().toJSON(), "
        boxes += "t.closest('svg').getBoundingClientRect().toJSON(), t.textContent])"
        for text, svg, said in page.evaluate(boxes):
            assert text["left"] >= svg["left"] - 1 and text["right"] <= svg["right"] + 1, said
            assert text["height"] >= 10, f"{said}: too small to read"
        colour = "getComputedStyle(document.querySelector('svg text')).fill"
        assert page.evaluate(colour) == "rgb(154, 165, 180)"
        page.emulate_media(media="print", color_scheme="light")
        assert page.evaluate(colour) == "rgb(68, 68, 68)"
