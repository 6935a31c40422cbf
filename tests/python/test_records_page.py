"""The page of `sluice records report` in a browser: drawn, silent, and asking nobody for anything."""

import browser
import pytest
from request_records import lasting, record, write
from sluice_tools.records import cli

pytest.importorskip("playwright", reason="playwright is missing: ./x reports")
pytestmark = pytest.mark.skipif(not browser.find(), reason=f"none of {browser.BROWSERS} is installed")


def test_two_schedulers(tmp_path, capsys):
    batch = [record(100, [(130, 140)], model="<b>", batch=2, id="`x` </script>") for _ in range(2)]
    queue = [record(95, [(100, 130)], limit=30), *lasting(11, 25), *batch]
    files = [
        write(tmp_path / "one.jsonl", queue),
        write(tmp_path / "two.jsonl", [one | {"tag": "DLIR"} for one in lasting(11, 15)]),
    ]
    assert cli.main(["report", *map(str, files)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("EDF: Request 4") and said.endswith(f"page: {tmp_path / 'records.html'}\n")
    with browser.opened(tmp_path / "records.html") as page:
        assert (page.complaints, page.requests) == ([], [])
        plots = page.locator(".plot")
        # Two models: latency and ratio of each, ratio of both; queue, slowest of two schedulers; one has batches.
        assert plots.count() == 2 + 3 + 2 + 1 + 2
        for number in range(plots.count()):
            drawn = plots.nth(number).locator("svg .js-line, svg .bars path, svg .barlayer path")
            assert drawn.count() > 0, f"figure {number} is empty"
        assert "simulated GPU" in page.locator(".kind").inner_text()
        assert "30.0 ms behind other models" in page.locator(".answer").first.inner_text()
        violations = page.locator("table").nth(1).locator("tbody tr").first.inner_text().split()
        assert violations == ["EDF", "<b>", "2", "2", "100.0%", "0.0%", *"000000"]
