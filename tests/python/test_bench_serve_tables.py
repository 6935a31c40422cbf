"""The arithmetic and the tables of `sluice bench serve`."""

import json

import pytest
from sluice_tools.bench.serve import order, order_report, plan, training_report
from sluice_tools.bench.serve.lines import Lines
from sluice_tools.bench.serve.server import config_text
from sluice_tools.common.errors import CommandError
from sluice_tools.measure.rows import Cell

MACHINE = {"gpu": "H", "driver": "1", "torch": "2", "sluice": "0", "date": "2026-11-22T20:00:00"}


def row(model: str, limit_ms: float, latency_ms: list, **more) -> dict:
    return MACHINE | {
        "model": model, "blocks": 1, "limit_ms": limit_ms, "gap_ms": 50.0, "seconds": 2.0,
        "busy": 0.8, "processor_s": 1.0, "latency_ms": latency_ms, "receive_ms": [1.0] * len(latency_ms),
        "sent": len(latency_ms), "lost": 0, "client_p50_ms": 1.0, "client_p99_ms": 2.0, "send_lag_p99_ms": 0.1,
    } | more  # fmt: skip


@pytest.fixture
def lines(tmp_path):
    return Lines(tmp_path / "order.jsonl")


def alone(model: str, blocks: int, execute_ms: float, **more) -> dict:
    return MACHINE | {
        "model": model, "blocks": blocks, "execute_ms": execute_ms, "steps_ms": [execute_ms / blocks] * blocks,
        "service_ms": execute_ms + 1, "receive_ms": 2.0, "processor_ms": 3.0, **more,
    }  # fmt: skip


def test_a_line_that_was_cut_off_is_not_a_cell(lines):
    cell, other = Cell("a", "", "b", 1), Cell("a", "", "c", 1)
    lines.add(cell, [{"x": 1}])
    lines.file.write_text(lines.file.read_text()[:-9])
    again = Lines(lines.file)
    assert not again.has(cell)
    again.add(other, [{"x": [1, 2]}])
    assert Lines(lines.file).of(other) == [{"subject": "a", "mode": "", "cell": "c", "repeat": "1", "x": [1, 2]}]


def test_a_failed_cell_is_measured_again_and_then_has_no_error(lines):
    cell = Cell("a", "", "b", 1)
    lines.fail(cell, "no\nserver")
    again = Lines(lines.file)
    assert not again.has(cell) and [line["error"] for line in again.errors] == ["no server"]
    again.add(cell, [{"x": 1}])
    assert Lines(lines.file).errors == []


def test_a_file_of_something_else_is_refused(lines):
    lines.file.write_text(json.dumps({"x": 1}) + "\n")
    with pytest.raises(CommandError, match=r"order.jsonl:1: not a result"):
        Lines(lines.file)


def test_the_load_counts_what_the_models_take_of_the_device():
    """Three models of 10, 20 and 30 ms: at a load of 1, a request of each comes every 60 ms."""
    assert plan.gap_ms([10, 20, 30], 1.0) == 60
    assert plan.gap_ms([10, 20, 30], 0.5) == 120


def test_the_longest_models_get_blocks():
    assert plan.blocks_of({"a": 5.0, "b": 30.0, "c": 7.0}) == {"a": 1, "b": 3, "c": 2}


def test_the_config_has_every_model_whole_and_in_blocks():
    text = config_text(plan.config(plan.Models(("a",), 16)))
    assert text.startswith("a\n  path a\n  batch-size 16\n") and "a-in-3\n  path a\n" in text
    assert text.count("preload no") == 2


def test_busy_counts_overlapping_steps_once():
    """Under PARALLER steps overlap."""

    def record(begin, *runs):
        return {"queued_time": begin, "finish_time": runs[-1][1], "child_model_run_time": [list(run) for run in runs]}

    assert order.busy_share([record(0, (0, 10)), record(0, (5, 15)), record(10, (6, 8), (30, 40))]) == 25 / 40
    assert order.busy_share([]) == 0


def test_ratios_and_late_requests(lines):
    lines.add(Cell("load 0.5", "poisson", "EDF", 1), [row("a", 10, [5, 25]), row("b", 1, [1, 5, 2], sent=4, lost=1)])
    (one,) = order_report.summarize(lines.rows)
    assert sorted(one.ratios) == [1, 1, 2, 2.5, 5]
    # Three of six are above 2x: 25, 5 and the one without an answer; equal to 2x is not above it.
    assert one.late(2) == pytest.approx(3 / 6) and one.late(4) == pytest.approx(2 / 6)
    assert one.answers_per_s == 2.5
    assert order_report.limits(one) == ["load 0.5, EDF: 1 requests had no answer."]


def test_repeats_are_pooled(lines):
    for repeat in (1, 2):
        lines.add(Cell("load 0.5", "poisson", "EDF", repeat), [row("a", 10, [20.0 * repeat]), row("b", 1, [1.0])])
    (one,) = order_report.summarize(lines.rows)
    assert sorted(one.ratios) == [1, 1, 2, 4] and one.answers_per_s == 1


@pytest.mark.parametrize(
    "load, more, says",
    [
        ("load 0.5", {"busy": 0.2}, []),
        ("load 1.1", {"busy": 0.95}, []),
        ("load 1.1", {"busy": 0.85}, ["so the front end was the limit"]),
        ("load 0.5", {"send_lag_p99_ms": 6.0}, ["the clients sent late (p99 6.0 ms, gap 50.0 ms)"]),
    ],
)
def test_what_else_was_the_limit(lines, load, more, says):
    lines.add(Cell(load, "poisson", "FIFO", 1), [row("a", 10, [20.0], **more)])
    found = order_report.limits(order_report.summarize(lines.rows)[0])
    assert len(found) == len(says) and all(part in text for part, text in zip(says, found))


def test_the_tables_of_order(lines):
    lines.add(Cell("alone", "", "whole models", 1), [alone("a", 1, 10.0), alone("b", 1, 4.0)])
    lines.add(
        Cell("alone", "", "in blocks", 1),
        [alone("a", 3, 11.0, together_ms=10.5, searched_ms=[4.0, 4.4], searched_whole_ms=8.0)],
    )
    for scheduler, ms in (("EDF", 15.0), ("FIFO", 35.0)):
        lines.add(Cell("load 1.1", "poisson", scheduler, 1), [row("a", 10, [ms] * 200)])
        lines.add(Cell("load 0.5", "poisson", scheduler, 1), [row("a", 10, [ms])])
    lines.fail(Cell("load 0.5", "poisson", "OYST", 1), "the server ended")
    text = "\n".join(order_report.tables(lines))
    assert "| a | 10.00 | 3.67 + 3.67 + 3.67 | 11.00 | +10.0 | +5.0 | 10.50 |" in text
    assert text.index("### Load 0.5") < text.index("### Load 1.1")
    assert text.index("| FIFO | 3.50 | 3.5 | 0.00 | 100.0 | 0.0 | 35.0 max |") < text.index("| EDF | 1.50")
    assert "| FIFO | 3.50 | 3.5 | 0.00 | 100.0 | 0.0 | 35.0 | 100 | 80 |" in text
    assert "Not measured: OYST (load 0.5, poisson): the server ended" in text


def test_the_table_of_training(tmp_path):
    lines = Lines(tmp_path / "training.jsonl")

    def served(p50: float, **more) -> dict:
        client = {"p50": p50, "p99": 2 * p50, "mean": p50, "max": 9.0}
        return MACHINE | {
            "gap_ms": 10.0, "sent": 4, "answered": 3, "client_ms": client, "server_ms": [1.0, 2.0, 3.0],
            "execute_ms": [2.5, 2.5, 2.5], "announced_us": [0.0, 200.0, 300.0], "target_ms": None, **more,
        }  # fmt: skip

    lines.add(Cell("", "", "server alone", 1), [served(4.0, sent=3)])
    lines.add(Cell("", "", "training alone", 1), [MACHINE | {"steps_per_s": 20.0}])
    lines.add(Cell("", "", "bare", 1), [served(6.0, steps_per_s=15.0)])
    lines.add(Cell("", "", "gate with a target (slo-ms)", 1), [served(4.2, steps_per_s=19.0, target_ms=12.0)])
    text = "\n".join(training_report.tables(lines))
    assert "| bare | 6.00 | 1.50 | 12.00 | 1.50 | 2.00 | 2.98 | 75.0 | 67 | 250 | 1 |" in text
    assert (
        "| gate with a target (slo-ms) 12.0 ms | 4.20 | 1.05 | 8.40 | 1.05 | 2.00 | 2.98 | 95.0 | 67 | 250 | 1 |"
        in text
    )
    assert "leaves about 75 % to training" in text
