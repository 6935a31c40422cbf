"""The page of `sluice records report` in a browser: drawn, silent, and asking nobody for anything."""

import browser
import pytest
from request_records import ZERO, lasting, record, write
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
        plots = page.locator("figure")
        # Two models: latency and ratio of each, ratio of both; slowest and latency over time of two schedulers; one has
        # batches, and requests that wait.
        assert plots.count() == 2 + 3 + 2 + 2 + 1 + 1
        for number in range(plots.count()):
            drawn = plots.nth(number).locator("svg polyline, svg rect, svg circle:not(.unseen)")
            assert drawn.count() > 0, f"figure {number} is empty"
        assert "simulated GPU" in page.locator(".kind").inner_text()
        assert "30.0 ms behind other models" in page.locator(".answer").first.inner_text()
        violations = page.locator("table").nth(1).locator("tbody tr").first.inner_text().split()
        assert violations == ["EDF", "<b>", "2", "2", "100.0%", "0.0%", *"000000"]


_PROFILE = f"""[Perf Info]
TrainAdjust: avg 3.0 max 3.0 min 3.0 cnt 2 | p99 3.0 p95 3.0 p90 3.0 p80 3.0 p70 3.0 p50 3.0

[Event Info]
100.0: TrainAdjustStart

[Memory Info]
0.0: Infer 100.00 Mb Train 800.00 Mb Total 900.00 Mb
150.0: Infer 500.00 Mb Train 400.00 Mb Total 900.00 Mb

[Adjust Info]
100.0: 400.00 Mb order 0.010 drop 2.000 drain 1.000 give 0.500 take 0.250 load 4.000
300.0: 0.00 Mb order 0.020 drop 9.000 drain 0.000 give 0.000 take 0.000 load 0.000 not obeyed

[Clock Info]
0.0: {ZERO:.3f}
"""


def test_a_run_with_training_shows_memory_and_handovers(tmp_path):
    file = write(tmp_path / "one.jsonl", [one | {"deadline_ms": 20} for one in lasting(11, 25, 12)])
    (tmp_path / "server-profile").write_text(_PROFILE)
    assert cli.main(["report", str(file), "--profile", str(tmp_path / "server-profile")]) == 0
    with browser.opened(tmp_path / "records.html") as page:
        assert (page.complaints, page.requests) == ([], [])
        text = page.locator("body").inner_text()
        assert "2 handovers of memory from training to inference: median 8.39 ms" in text
        assert "1 were not obeyed in time." in text
        titles = page.locator("h2").all_inner_texts()
        assert [title for title in titles if title in ("Latency over time", "Memory", "Handovers")] == [
            "Latency over time", "Memory", "Handovers"
        ]  # fmt: skip
        plots = page.locator("figure")
        for number in range(plots.count()):
            assert plots.nth(number).locator("svg polyline, svg rect, svg circle:not(.unseen)").count() > 0


def test_a_file_that_is_no_profile_is_refused(tmp_path, capsys):
    file = write(tmp_path / "one.jsonl", lasting(11))
    for text, why in (("", "no [Clock Info]"), (_PROFILE.replace("Infer 1", "Infer x"), "no line of its section")):
        (tmp_path / "server-profile").write_text(text)
        assert cli.main(["report", str(file), "--profile", str(tmp_path / "server-profile")]) == 2
        assert why in capsys.readouterr().err
    assert cli.main(["report", str(file), "--profile", str(tmp_path / "none")]) == 2
