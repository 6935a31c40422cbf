"""The page of `sluice predict report`: what it reads, what it refuses, and what a browser draws."""

import browser
import pytest
from sluice_tools.predict import cli, reader

_HEAD = "program,task,name,device,leaves,measured_s,predicted_s\n"


def _folder(place, factor, curve=True):
    place.mkdir(parents=True)
    rows = [
        f"p{i},t{i % 3},{'dense' if i % 3 else 'conv</script>'},H200,3,{i}e-05,{i * factor}e-05\n" for i in range(1, 9)
    ]
    (place / "predictions.csv").write_text(_HEAD + "".join(rows))
    if curve:
        (place / "loss.csv").write_text(
            "phase,epoch,seconds,loss,test_mape\ntrain,0,0.1,9,\ntrain,1,0.2,8,0.5\ntune,0,0.3,8,0.25\n"
        )
        (place / "metrics.csv").write_text("model,train_s,mape,pairs\nold,1,0.9,0.5\ntransformer,2.5,0.25,0.875\n")
    return place


def test_reads_what_train_wrote(tmp_path):
    found = reader.read(_folder(tmp_path / "transformer", 1.25))
    assert found.label == "transformer"
    assert len(found.names) == 8
    assert found.errors() == pytest.approx([0.25] * 8)
    assert found.curve == [(0.2, 0.5), (0.3, 0.25)]
    assert found.metrics["pairs"] == "0.875"


def test_folders_of_one_name_are_told_apart(tmp_path):
    folders = [_folder(tmp_path / seed / "mlp", 1.1) for seed in ("one", "two")]
    found = [reader.read(folder) for folder in folders]
    reader.unique_labels(found, folders)
    assert [one.label for one in found] == ["one/mlp", "two/mlp"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (None, "", "has no predictions.csv; `sluice predict train` or `run` writes it"),
        ("predictions.csv", _HEAD, "has no predictions"),
        ("predictions.csv", "a,b\n1,2\n", "not what `sluice predict` writes"),
        ("predictions.csv", _HEAD + "p,t,dense,H200,3,fast,1\n", "not what `sluice predict` writes"),
    ],
)
def test_refuses_in_one_line(tmp_path, capsys, name, text, said):
    if name:
        (tmp_path / name).write_text(text)
    assert cli.main([str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sluice predict report: ") and said in error
    assert error.count("\n") == 1


def test_the_page_in_a_browser(tmp_path, capsys):
    pytest.importorskip("playwright", reason="playwright is missing: ./x reports")
    if not browser.find():
        pytest.skip(f"none of {browser.BROWSERS} is installed")
    folders = [_folder(tmp_path / "transformer", 1.25), _folder(tmp_path / "copied", 2, curve=False)]
    assert cli.main([*map(str, folders), "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"page: {tmp_path / 'page.html'}\n"
    with browser.opened(tmp_path / "page.html") as page:
        assert (page.complaints, page.requests) == ([], [])
        plots = page.locator("figure")
        assert plots.count() == 2 + 1 + 1
        for number in range(plots.count()):
            drawn = plots.nth(number).locator("svg polyline, svg rect, svg circle:not(.unseen)")
            assert drawn.count() > 0, f"figure {number} is empty"
        rows = page.locator("table").first.locator("tbody tr")
        assert rows.nth(0).inner_text().split() == ["transformer", "8", "25.0%", "0.875", "0.0%", "2.5"]
        assert rows.nth(1).inner_text().split() == ["copied", "8", "100.0%", "-", "0.0%", "-"]
