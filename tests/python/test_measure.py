"""The measuring harness: percentiles, rows, resuming, comparisons, tables and verdicts."""

import contextlib
import os

import numpy as np
import pytest
from sluice_tools.common.errors import CommandError
from sluice_tools.common.grammar import parse_target
from sluice_tools.measure import needs, table, verdict
from sluice_tools.measure.programs import Program
from sluice_tools.measure.rows import BEST_EFFORT, CRITICAL, Cell, Rows, claim, output_folder
from sluice_tools.measure.sitting import CellError, Group, Sitting
from sluice_tools.measure.statistics import latency_figures, percentile
from sluice_tools.measure.summary import ALONE, BEST_EFFORT_ALONE, summarize

CELL = Cell("pair", "time-sliced", "none", 1, 1.0)


def critical(p50=1.0, p99: float | None = 2.0, jobs=500, **more):
    return {
        "role": CRITICAL,
        "jobs": jobs,
        "p50_ms": p50,
        "p99_ms": p99,
        "mean_ms": p50,
        "max_ms": 2 * (p99 or p50),
        **more,
    }


def best_effort(per_s=10.0, **more):
    return {"role": BEST_EFFORT, "per_s": per_s, "unit": "jobs", **more}


def measured(folder, cells: dict, repeats=1) -> list:
    """cells: name -> rows, or a list of rows per repeat. Returns the summary."""
    rows = Rows(folder / "rows.csv")
    for name, given in cells.items():
        for repeat in range(1, repeats + 1):
            chosen = given[repeat - 1] if repeats > 1 else given
            rows.add(Cell("pair", "time-sliced", name, repeat), chosen)
    return summarize(rows.rows)


# Statistics


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.9, 0.99, 1])
def test_percentiles_interpolate_as_numpy_does(share):
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]
    assert percentile(values, share) == pytest.approx(np.percentile(values, 100 * share))
    assert percentile([7.0], share) == 7.0
    assert percentile([], share) is None


def test_no_p99_comes_from_too_few_jobs():
    few, enough = latency_figures([1.0] * 98 + [9.0]), latency_figures([1.0] * 99 + [9.0])
    assert (few["jobs"], few["p99_ms"], few["max_ms"]) == (99, None, 9.0)
    assert enough["p99_ms"] == pytest.approx(np.percentile([1.0] * 99 + [9.0], 99))
    assert latency_figures([])["p50_ms"] is None


# Rows


def test_a_measured_cell_is_known_to_the_next_call(tmp_path):
    Rows(tmp_path / "r.csv").add(CELL, [critical(1.5), best_effort()])
    again = Rows(tmp_path / "r.csv")
    assert again.has(CELL) and len(again.of(CELL)) == 2
    assert again.rows[0]["p50_ms"] == "1.5" and again.rows[0]["error"] == ""
    assert not again.has(Cell("pair", "time-sliced", "none", 2))
    assert not again.has(Cell("pair", "MPS", "none"))


def test_a_cell_that_failed_is_measured_again(tmp_path):
    rows = Rows(tmp_path / "r.csv")
    rows.fail(CELL, "it\nfell")
    rows.fail(CELL, "again")
    assert not Rows(tmp_path / "r.csv").has(CELL)
    assert [row["error"] for row in Rows(tmp_path / "r.csv").errors] == ["again"]
    rows.add(CELL, [critical()])
    assert Rows(tmp_path / "r.csv").has(CELL) and not Rows(tmp_path / "r.csv").errors


def test_a_row_that_was_cut_off_is_left_out_and_the_next_is_whole(tmp_path):
    rows = Rows(tmp_path / "r.csv")
    rows.add(CELL, [critical()])
    rows.file.write_bytes(rows.file.read_bytes()[:-20])
    again = Rows(tmp_path / "r.csv")
    assert not again.has(CELL)
    again.add(CELL, [critical(2.0)])
    assert [row["p50_ms"] for row in Rows(tmp_path / "r.csv").rows] == ["2"]


def test_a_disk_that_fills_up_leaves_no_half_of_a_cell(tmp_path, monkeypatch):
    """One row of two would count as the whole cell, and the next call would not measure the rest."""
    rows = Rows(tmp_path / "r.csv")
    rows.add(CELL, [critical()])
    before = rows.file.read_bytes()
    other = Cell("pair", "time-sliced", "gate")

    def half_of(file, data):
        file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sluice_tools.measure.rows._write_all", half_of)
    with pytest.raises(OSError):
        rows.add(other, [critical(), best_effort()])
    assert rows.file.read_bytes() == before and not rows.has(other)


@pytest.mark.parametrize("content", [b"a,b\n\xff\xfe,2\n", b'"' + b"x" * 200_000])
def test_what_is_no_csv_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "r.csv").write_bytes(content)
    with pytest.raises(CommandError, match="is not a CSV"):
        Rows(tmp_path / "r.csv")


def test_rows_of_other_settings_are_not_taken(tmp_path):
    file = tmp_path / "settings.json"
    claim(file, {"seconds": 3}, "a demo with another --seconds-per-phase")
    claim(file, {"seconds": 3}, "")
    with pytest.raises(CommandError, match="holds a demo with another --seconds-per-phase; give another --out"):
        claim(file, {"seconds": 5}, "a demo with another --seconds-per-phase")
    file.write_text("")  # a call that was killed before it measured anything
    claim(file, {"seconds": 5}, "")


def test_an_error_of_the_measurement_is_not_one_of_its_folder(tmp_path):
    """It once was reported as: --out: cannot write sluice."""
    with pytest.raises(FileNotFoundError), output_folder(tmp_path / "out"):
        raise FileNotFoundError(2, "No such file or directory", "sluice")


def test_a_csv_of_other_columns_is_refused(tmp_path):
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CommandError, match="other columns"):
        Rows(tmp_path / "r.csv")


def test_a_folder_is_measured_in_by_one_at_a_time(tmp_path):
    with output_folder(tmp_path / "out"):
        child = os.fork()
        if child == 0:
            try:
                with output_folder(tmp_path / "out"):
                    os._exit(0)
            except CommandError as error:
                os._exit(10 + error.code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12
    with output_folder(tmp_path / "out"):
        pass


# Programs


def shell(script: str) -> Program:
    return Program(["sh", "-c", script])


def test_a_program_may_print_any_bytes():
    """A byte that is no UTF-8 once ended the thread that reads: the program then hung at a full pipe."""
    program = shell(
        r"printf 'ready\n\377\n' >&2; i=0; while [ $i -lt 3000 ]; do echo $i 0123456789012345678 >&2; i=$((i+1)); done;"
        "echo last >&2; echo '{}'"
    )
    try:
        program.wait_for("last", 20)
        assert program.result() == {}
    finally:
        program.end()


def test_a_program_that_prints_no_result_is_said():
    program = shell("echo nothing to do >&2")
    try:
        with pytest.raises(RuntimeError, match="printed no result: nothing to do"):
            program.result()
    finally:
        program.end()


# A sitting


def sitting(folder, measure, cells, limit_s=None):
    rows = Rows(folder / "r.csv")
    group = Group(cells, lambda: contextlib.nullcontext(measure))
    return rows, Sitting("test", rows, [group], limit_s).run()


def test_a_sitting_measures_what_is_missing_only(tmp_path, capsys):
    cells = [Cell("s", "m", name) for name in ("a", "b", "c")]
    Rows(tmp_path / "r.csv").add(cells[1], [critical()])
    seen = []

    def measure(cell):
        seen.append(cell.name)
        return [critical()]

    rows, outcome = sitting(tmp_path, measure, cells)
    assert seen == ["a", "c"] and all(map(rows.has, cells))
    assert (outcome.left, outcome.failed, outcome.interrupted) == (0, 0, False)
    assert "1 of 3 cells are measured already" in capsys.readouterr().err


def test_a_cell_that_cannot_be_measured_leaves_the_others(tmp_path):
    def measure(cell):
        if cell.name == "b":
            raise CellError("no such thing")
        return [critical()]

    rows, outcome = sitting(tmp_path, measure, [Cell("s", "m", name) for name in "abc"])
    assert [row["cell"] for row in rows.rows] == ["a", "c"]
    assert [(row["cell"], row["error"]) for row in rows.errors] == [("b", "no such thing")]
    assert (outcome.left, outcome.failed) == (0, 1)


def test_another_failure_ends_the_group(tmp_path):
    def measure(cell):
        if cell.name == "b":
            raise RuntimeError("the program died")
        return [critical()]

    rows, outcome = sitting(tmp_path, measure, [Cell("s", "m", name) for name in "abc"])
    assert [row["cell"] for row in rows.rows] == ["a"]
    assert (outcome.left, outcome.failed) == (1, 1)


def test_nothing_is_begun_that_would_end_after_the_limit(tmp_path):
    rows, outcome = sitting(
        tmp_path, lambda cell: [critical()], [Cell("s", "m", "a", 1, 1.0), Cell("s", "m", "b", 1, 1e9)], limit_s=100
    )
    assert [row["cell"] for row in rows.rows] == ["a"] and outcome.left == 1


def test_ctrl_c_keeps_what_is_measured(tmp_path):
    def measure(cell):
        if cell.name == "b":
            raise KeyboardInterrupt
        return [critical()]

    rows, outcome = sitting(tmp_path, measure, [Cell("s", "m", name) for name in "abc"])
    assert [row["cell"] for row in rows.rows] == ["a"]
    assert outcome.interrupted and outcome.left == 2 and outcome.failed == 0


# The summary and its table


def test_figures_are_against_alone_of_the_same_repeat(tmp_path):
    entries = {
        entry.cell: entry
        for entry in measured(
            tmp_path,
            {
                ALONE: [[critical(1.0)], [critical(2.0)]],
                BEST_EFFORT_ALONE: [[best_effort(10)], [best_effort(20)]],
                "none": [
                    [critical(3.0, active_share=0.2), best_effort(8)],
                    [critical(4.0, active_share=0.95), best_effort(10)],
                ],
            },
            repeats=2,
        )
    }
    none = entries["none"]
    assert none.x["p50"] == [3.0, 2.0] and none.share == [0.8, 0.5]
    # Nearly always active: the ideal says nothing of the second repeat.
    assert none.of_ideal == [pytest.approx(1.0)]
    assert none.repeats == 2 and none.jobs == [500, 500]


def test_the_table_shows_the_median_and_the_range(tmp_path):
    entries = measured(
        tmp_path,
        {
            ALONE: [[critical(1.0)], [critical(1.0)]],
            BEST_EFFORT_ALONE: [[best_effort(10)], [best_effort(10)]],
            "none": [[critical(2.0, dropped=4), best_effort(8)], [critical(4.0, jobs=400), best_effort(9)]],
        },
        repeats=2,
    )
    line = "| none † 4 | 400-500 | 3.000 [2.000-4.000] | 3.00 | 2.000 [2.000-2.000] | 1.00 | 85 [80-90] % | - |"
    assert line in table.markdown(entries)
    assert "Median over the repeats" in " ".join(table.notes(entries))


def test_no_verdict_on_p99_where_a_repeat_has_none(tmp_path):
    """The repeat with too few jobs for a p99 may be the slow one: without it the cell looks good."""
    cells = {ALONE: [[critical(1, 1)]] * 2, BEST_EFFORT_ALONE: [[best_effort(10)]] * 2}
    cells["bare"] = [[critical(2, 9), best_effort(9)]] * 2
    cells |= {f"device:{us}us": [[critical(1, 2), best_effort(9)], [critical(8, None, jobs=40)]] for us in (100, 200)}
    entries = measured(tmp_path, cells, repeats=2)
    by_cell = {entry.cell: entry for entry in entries}
    assert "the critical p50" in verdict.judge(by_cell["bare"], by_cell["device:100us"])
    target = parse_target("p99=3ms")
    assert verdict.choose_spacing(entries, target) == "No cell has enough jobs for a p99: measure for longer."


def test_a_target_is_kept_in_every_repeat(tmp_path):
    cells = {f"device:{us}us": [[critical(1, 2)], [critical(1, late)]] for us, late in ((100, 2.5), (200, 9))}
    target = parse_target("p99=3ms")
    assert verdict.choose_spacing(measured(tmp_path, cells, repeats=2), target) == "For p99 <= 3 ms: T = 100 us."


def test_the_slowest_job_stands_in_where_there_is_no_p99(tmp_path):
    entries = measured(tmp_path, {"none": [critical(2.0, None, jobs=30)]})
    assert "| none | 30 | 2.000 | - | 4.000 max | - |" in table.markdown(entries)
    assert "too few for a p99" in " ".join(table.notes(entries))


def test_a_table_for_a_terminal_fits_100_columns(tmp_path):
    name = "device:200us, announced"
    entries = measured(
        tmp_path,
        {
            ALONE: [[critical(100.0)]] * 3,
            BEST_EFFORT_ALONE: [[best_effort()]] * 3,
            name: [[critical(250.0 + n, 1000.0 + n), best_effort(9 + n / 10)] for n in range(3)],
        },
        repeats=3,
    )
    text = table.wrapped([table.text(entries), *table.notes(entries)])
    assert max(map(len, text.splitlines())) <= 100, text
    assert name in text


# The verdict


def judged(folder, bare, other) -> str:
    entries = {
        entry.cell: entry
        for entry in measured(
            folder,
            {ALONE: [critical(1.0, 1.0)], BEST_EFFORT_ALONE: [best_effort(10)], "bare": bare, "device:200us": other},
        )
    }
    return verdict.judge(entries["bare"], entries["device:200us"])


def test_a_gain_is_said_with_its_price(tmp_path):
    text = judged(tmp_path, [critical(2, 3), best_effort(8.5)], [critical(1.1, 1.5), best_effort(8)])
    assert text == (
        "Under device:200us the critical p99 falls from 3.000 ms to 1.500 ms (1.50 × alone); "
        "best effort keeps 80 % of its own speed, less than the 85 % without gating."
    )


def test_worse_than_bare_is_said_aloud(tmp_path):
    text = judged(tmp_path, [critical(2, 3), best_effort(8)], [critical(2.5, 4), best_effort(8)])
    assert "RISES from 3.000 ms to 4.000 ms" in text and "Gating does not pay here" in text


def test_best_effort_lost_for_nothing_is_said_aloud(tmp_path):
    text = judged(tmp_path, [critical(2, 3), best_effort(8)], [critical(2, 3), best_effort(6)])
    assert "stays at 3.000 ms" in text and "Gating does not pay here" in text


def test_no_verdict_comes_from_too_few_jobs(tmp_path):
    text = judged(tmp_path, [critical(2, None, jobs=500), best_effort()], [critical(1, None, jobs=19), best_effort()])
    assert text.startswith("Too few critical jobs to judge device:200us (19;")


def test_a_difference_within_the_spread_is_none(tmp_path):
    entries = {
        entry.cell: entry
        for entry in measured(
            tmp_path,
            {
                "bare": [[critical(2, 3.0)], [critical(2, 3.6)]],
                "device:200us": [[critical(2, 2.5)], [critical(2, 3.2)]],
            },
            repeats=2,
        )
    }
    assert "stays at" in verdict.judge(entries["bare"], entries["device:200us"])


def spaced(folder, p99s: dict):
    cells = {ALONE: [critical(1, 1)], BEST_EFFORT_ALONE: [best_effort(10)]}
    return measured(folder, cells | {f"device:{us}us": [critical(1, p99), best_effort(9)] for us, p99 in p99s.items()})


def test_the_largest_t_at_the_lowest_latency_is_chosen(tmp_path):
    entries = spaced(tmp_path, {100: 1.5, 200: 1.52, 1000: 2.5})
    assert verdict.choose_spacing(entries, None).startswith("T = 200 us is the largest measured T")
    target = parse_target("p99=3x")
    assert verdict.choose_spacing(entries, target) == ("For p99 <= 3 × alone: T = 1000 us (best effort keeps 90 %).")
    assert "No measured T keeps p99 <= 1 ms; device:100us comes nearest" in verdict.choose_spacing(
        entries, parse_target("p99=1ms")
    )
    # Prevents: best effort is slowed down for a target that is kept without Sluice.
    assert verdict.choose_spacing(entries, target, entries[-1]) == (
        "p99 <= 3 × alone is kept without gating (best effort keeps 90 %): use policy none."
    )


def test_the_driver_is_named_with_what_the_gpu_does_about_slices(monkeypatch, tmp_path):
    """Figures with short slices must not be compared with those of a GPU that ignores them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(needs, "driver_version", lambda: "580.1")
    monkeypatch.setattr(needs.slice_answers, "loaded_driver", lambda: "580.1")
    monkeypatch.setattr(needs, "gpus", lambda *_: {"devices": [{"uuid": "GPU-a"}, {"uuid": "GPU-b"}]})
    answer = needs.slice_answers.Answer("obeyed", 0.26, 1.2)
    assert needs.slice_answers.record("GPU-b", "580.1", answer, {"XDG_CACHE_HOME": str(tmp_path)})
    assert needs.driver_and_slices("sluice", 0) == "580.1, slices: no answer yet"
    assert needs.driver_and_slices("sluice", 1) == "580.1, slices: obeyed (0.26 ms)"
    monkeypatch.setattr(needs, "driver_version", lambda: "")
    assert needs.driver_and_slices("sluice", 1) == ""
