"""tests/real_gpu/predict_summary.py. Prevents: a model that is called better than another by chance, times to an error
that was never reached, and means that a network with more seeds dominates."""

import importlib.util
import json
import lzma
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "real_gpu" / "predict_summary.py"
SPEC = importlib.util.spec_from_file_location("predict_summary", PATH)
assert SPEC and SPEC.loader
summary = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(summary)

METRICS = ["pairs", "top1", "top5", "peak1", "peak5", "within5", "within10", "within20"]
COLUMNS = ["model", "mode", "seed", "finetune_tasks", "sampling", "config", "settings", "train_s", "mape", *METRICS]


def run(folder: Path, model: str, seed: int, errors: list[float], losses=(), net="res_net", share=0.5, train_s=9.0):
    """A run whose task i has two programs with this error; `losses`: (seconds, MAPE of the test); `share`: of all
    metrics of the ranking."""
    folder.mkdir(parents=True)
    mape = sum(errors) / len(errors)
    values = [model, f"H200.by_net:test-{net}", seed, 0, "", "gpu", "", train_s, mape, *[share] * len(METRICS)]
    head, row = ",".join(COLUMNS), ",".join(map(str, values))
    (folder / "metrics.csv").write_text(f"{head}\n{row}\n")
    rows = [f"t{i},{time},{time * (1 + error)}" for i, error in enumerate(errors) for time in (1e-5, 2e-3)]
    (folder / "predictions.csv").write_text("\n".join(["task,measured_s,predicted_s", *rows]))
    lines = [f"train,{i},{seconds},1,{mape}" for i, (seconds, mape) in enumerate(losses)]
    (folder / "loss.csv").write_text("\n".join(["phase,epoch,seconds,loss,test_mape", *lines]))


@pytest.fixture
def summarize(tmp_path, capsys, monkeypatch):
    """Returns the output for the runs below tmp_path/runs: the rows of all tables, by their first cell."""

    def call(*names: str) -> dict[str, list[list[str]]]:
        pack = tmp_path / "a.programs"
        calls = [{"task": f"t{i}", "after": []} for i in range(10)]
        with lzma.open(pack, "wt") as out:
            for name in names:
                network = {"kind": "network", "name": name, "batch": 1, "calls": calls}
                out.write(json.dumps(network, separators=(",", ":")) + "\n")
        monkeypatch.setattr(sys, "argv", ["", str(pack), "--", str(tmp_path / "runs")])
        assert summary.main() == 0
        found: dict[str, list[list[str]]] = {}
        for line in capsys.readouterr().out.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(cells[0], []).append(cells[1:])
        return found

    return call


@pytest.fixture
def tables(tmp_path, summarize):
    """The output for two seeds of both models."""
    for seed in (0, 1):
        run(tmp_path / f"runs/{seed}-x", "xgboost", seed, [0.5] * 10)
        # Better by 1 to 9 points in nine tasks, worse by 10 in one.
        errors = [0.5 - i / 100 for i in range(1, 10)] + [0.6]
        # The first seed is good enough after 4 s; the second never is. Epochs without a test have no MAPE.
        losses = [(1.0, ""), (2.0, 0.7), (4.0, 0.45), (8.0, 0.6)] if seed == 0 else [(5.0, 0.51)]
        run(tmp_path / f"runs/{seed}-t", "transformer", seed, errors, losses)
    return summarize("res-net")


def test_the_time_until_xgboost_is_of_the_seeds_that_reach_it(tables):
    assert ["4.0; 1 of 2"] in tables["transformer"]
    assert ["9.0"] in tables["xgboost"]


def test_a_network_with_more_seeds_counts_no_more_than_others(tmp_path, summarize):
    for seed in (0, 1, 2):
        run(tmp_path / f"runs/r{seed}", "mlp", seed, [0.6], share=0.9, train_s=10.0)
    run(tmp_path / "runs/m0", "mlp", 0, [0.2], net="mobile_net", share=0.1, train_s=2.0)
    tables = summarize("res-net", "mobile-net")
    assert ["20.0", "60.0", "40.0", "6.0"] in tables["mlp"]
    assert ["0.50"] * len(METRICS) in tables["mlp"]


def test_models_are_compared_task_by_task(tables):
    # By hand: 2 (1 + 10) / 2^10; W+ = 10, mean 27.5, variance 96.25.
    assert tables["res-net"] == [["10", "9", "-4.5", "0.021", "0.074"]]
    assert tables["all"] == tables["res-net"]


def test_equal_sizes_share_a_rank_and_zeros_do_not_count():
    # Ranks 1.5, 1.5, 3: W+ = 4.5, variance (2 * 1.5^2 + 3^2) / 4; two-sided, no correction for continuity.
    assert summary.wilcoxon_p([1, -1, 2, 0]) == pytest.approx(0.414216)
    assert summary.sign_p([1, -1, 2, 0]) == 1
    assert summary.wilcoxon_p([]) == summary.sign_p([0, 0]) == 1


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["a.programs", "runs"], 2)])
def test_the_usage_is_no_traceback(arguments, code, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["", *arguments])
    assert summary.main() == code
    assert "usage: predict_summary.py PACK... -- FOLDER..." in capsys.readouterr().out
