"""`sluice records files` and `stat`: figures against those computed by hand, the published files, and errors."""

import json
import re

import pytest
from request_records import lasting, record, refused, sitting, write
from sluice_tools.records import analysis, cli, folders, reader, summary


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """`sluice records` in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        capsys.readouterr()
        code = cli.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


# Prevents: folders that the published scripts do not look for. Both are in the published catalogue.
@pytest.mark.parametrize(("ms", "name"), [(105, "11145471626182783555"), (150, "9624955804878585299")])
def test_the_hash_is_the_published_one(ms, name):
    models = ("vgg19", "resnet50", "googlenet", "gpt128v2", "yolov2")
    assert folders.folder_hash(1000, dict.fromkeys(models, ms)) == name


# Lengths below, at and above whole words of 8 bytes; from std::hash<std::string> of libstdc++.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 6142509188972423790),
        ("a", 4993892634952068459),
        ("12345678", 10113836418918046885),
        ("123456789abcdef", 11258708842651572843),
    ],
)
def test_the_hash_of_any_length(text, value):
    assert folders.murmur(text.encode()) == value


def test_ratio_and_violations(tmp_path):
    """Ratios 1 (never less), 2, 3 and 4.5."""
    (row,) = summary.rows(sitting(tmp_path, lasting(5, 20, 30, 45)))
    assert (row["ratio_min"], row["ratio_avg"], row["ratio_max"]) == (1, 2.625, 4.5)
    # Deviations -1.625, -0.625, 0.375 and 1.875; of a sample, so by three.
    assert row["ratio_std"] == pytest.approx((6.6875 / 3) ** 0.5)
    assert (row["above_2x"], row["above_4x"]) == (2, 1)


def test_one_percentile_everywhere(tmp_path):
    """Linear between ranks, and no p99 of fewer than 100 requests."""
    (row,) = summary.rows(sitting(tmp_path, lasting(10, 20, 30, 60)))
    assert (row["p50_ms"], row["p99_ms"], row["max_ms"]) == (25, None, 60)
    (row,) = summary.rows(sitting(tmp_path, lasting(*range(1, 102))))
    assert (row["p50_ms"], row["p99_ms"]) == (51, 100)


def test_every_result_is_counted_once(tmp_path):
    """A request without an answer has a latency, but none that belongs in percentiles and ratios."""
    names = ("resource_exhausted", "deadline_exceeded", "cancelled", "internal", "unavailable")
    lost = [refused(100, 9000, name, deadline_ms=50) for name in names]
    answered = lasting(20, 30, 40, deadline_ms=30)
    (row,) = summary.rows(sitting(tmp_path, answered + lost))
    kinds = ("requests", "ok", "refused", "expired", "cancelled", "failed", "with_deadline")
    assert [row[kind] for kind in kinds] == [8, 3, 1, 1, 1, 2, 8]
    assert row["late"] == 1  # 30 is in time
    assert (row["p50_ms"], row["max_ms"], row["ratio_max"]) == (30, 40, 4)


def test_a_row_per_model_and_one_for_all(tmp_path):
    rows = summary.rows(sitting(tmp_path, lasting(20, 20) + lasting(60, model="b", limit=20)))
    assert [(row["model"], row["requests"], row["ratio_avg"]) for row in rows] == [
        ("a", 2, 2),
        ("b", 1, 3),
        ("total", 3, pytest.approx(7 / 3)),
    ]
    assert rows[1]["ratio_std"] is None


def test_blocks_of_a_tenth():
    """An upper end belongs to its block, and the last block is the last that holds a ratio."""
    assert analysis.blocks([1.35, 1.0, 1.1, 1.15]) == [(1.0, 0), (1.1, 2), (1.2, 1), (1.3, 0), (1.4, 1)]


def test_the_published_folders(run, tmp_path):
    """data/MODE/HASH/I.json with the published keys and units; a request without an answer is in none."""
    records = [
        record(0, [(5, 9), (12, 16.5)], id="first", ended=17),
        refused(50, 60, "cancelled"),
        record(100, [(101, 109)]),
        record(210, [(210, 220)], tag="FIFO"),
        record(311, [(312, 320)], tag="FIFO"),
    ]
    code, out, err = run("files", write(tmp_path / "r.jsonl", records))
    assert (code, err) == (0, "")
    # Arrivals of a under EDF: 0, 50 and 100 ms; under FIFO 210 and 311 ms.
    edf, fifo = (folders.folder_hash(2, {"a": ms}) for ms in (50, 101))
    assert f"data/EDF/{edf}: 2 requests; 1 without an answer left out; mean time between arrivals: a 50 ms" in out
    assert json.loads((tmp_path / "data/catalogue.json").read_text()) == {
        edf: {"count": 2, "a": 50},
        fifo: {"count": 2, "a": 101},
    }
    found = sorted(str(file.relative_to(tmp_path / "data")) for file in (tmp_path / "data").rglob("*.json"))
    names = [f"EDF/{edf}/{i}.json" for i in (0, 1)] + [f"FIFO/{fifo}/{i}.json" for i in (0, 1)]
    assert found == [*names, "catalogue.json"]
    first = json.loads((tmp_path / "data/EDF" / edf / "0.json").read_text())
    zero = 1_795_000_000_000_000  # in us
    assert first == {
        "tag": "first",
        "model_name": "a",
        "recv_time": zero,
        "finish_time": zero + 17_000,
        "total_cost_by_ms": 17,
        "child_model_execute_cost_by_ms": [4, 4.5],
        "child_model_run_time": [[zero + 5000, zero + 9000], [zero + 12_000, zero + 16_500]],
        "execute_cost": 8.5,
        "wait_cost": 8.5,
        "limit_cost_by_ms": 10,
    }
    assert json.loads((tmp_path / "data/EDF" / edf / "1.json").read_text())["tag"] == "1"


def test_existing_data_is_left_alone(run, tmp_path):
    """The published run is skipped if its data exists; a folder without its last file was cut off."""
    file = write(tmp_path / "r.jsonl", lasting(5, 6, 7))
    run("files", file)
    (folder,) = (tmp_path / "data/EDF").iterdir()
    (folder / "0.json").write_text("mine")
    code, out, _ = run("files", file)
    assert (code, out) == (0, f"data/EDF/{folder.name}: the data of this load exists, skipped\n")
    assert (folder / "0.json").read_text() == "mine"
    (folder / "2.json").unlink()
    run("files", file)
    assert (folder / "2.json").exists() and (folder / "0.json").read_text() != "mine"


def test_the_published_name_of_a_mode(run, tmp_path):
    run("files", write(tmp_path / "r.jsonl", lasting(5, 6, tag="PARALLER")))
    assert [one.name for one in (tmp_path / "data").iterdir() if one.is_dir()] == ["PARALLEL"]


def test_lambdas_that_are_given(tmp_path):
    """In the order in which they are named, then by name: the published hash depends on it."""
    found = sitting(tmp_path, lasting(5, 5, model="x") + lasting(5, 5, model="b") + lasting(5, 5, model="c"))
    assert list(folders.lambdas_of(found, {}).items()) == [("b", 1000), ("c", 1000), ("x", 1000)]
    given = cli._lambdas(["x=105", "off=0", "90"])
    assert list(folders.lambdas_of(found, given).items()) == [("x", 105), ("off", 0), ("b", 90), ("c", 90)]


def test_the_published_analysis(run, tmp_path):
    file = write(tmp_path / "r.jsonl", lasting(11, 24, id="q") + lasting(13.5, model="b"))
    code, out, _ = run("stat", file, "--out", "BenchMark")
    folder = tmp_path / "BenchMark/EDF/r"
    assert code == 0 and "written: BenchMark/EDF/r" in out
    text = {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}
    assert sorted(text) == [
        "models/accumulate/a_accumulate.csv",
        "models/accumulate/b_accumulate.csv",
        "models/block/a_block.csv",
        "models/block/b_block.csv",
        "radios.csv",
        "radios_sort.csv",
        "statistic.json",
        "total_accumulate.csv",
        "total_block.csv",
    ]
    assert text["radios.csv"] == "id, model-name, radio\nq , a , 1.1\nq , a , 2.4\n2 , b , 1.35\n"
    assert text["radios_sort.csv"].splitlines()[1:] == ["q , a , 1.1", "2 , b , 1.35", "q , a , 2.4"]
    assert text["models/block/b_block.csv"] == "limit, count\n1.0 ,  0\n1.1 ,  0\n1.2 ,  0\n1.3 ,  0\n1.4 ,  1\n"
    assert text["total_accumulate.csv"].splitlines()[2:6] == ["1.1 ,  1", "1.2 ,  1", "1.3 ,  1", "1.4 ,  2"]
    assert text["total_accumulate.csv"].splitlines()[-1] == "2.4 ,  3"
    statistic = json.loads(text["statistic.json"])
    assert list(statistic) == ["a", "b", "total"]
    assert statistic["a"] == {"min": 1.1, "avg": 1.75, "max": 2.4, "std": pytest.approx(1.3 / 2**0.5)}


def test_published_folders_are_read_like_records(run, tmp_path):
    """Their times are microseconds, and their tag is the request's."""
    file = write(tmp_path / "r.jsonl", [record(i, [(i, i + 8), (i + 9, i + 30)], id=f"n{i}") for i in range(12)])
    run("files", file)
    (from_file,), (from_folder,) = reader.read([file]), reader.read([tmp_path / "data"])
    assert from_folder.scheduler == "EDF"
    assert summary.rows(from_folder) == summary.rows(from_file)
    assert [one.id for one in from_folder.requests] == [f"n{i}" for i in range(12)]
    assert from_folder.requests[3].steps == pytest.approx(from_file.requests[3].steps)


def test_stat_prints_a_table_or_json(run, tmp_path):
    file = write(tmp_path / "r.jsonl", [*lasting(20, 50), refused(7000, 7001, "resource_exhausted")])
    _, out, _ = run("stat", file)
    assert out.splitlines()[0] == "EDF"
    assert re.sub(" +", " ", out.splitlines()[2]) == "a 35.00 - 3.50 5.00 2.12 50.0% 50.0% 3 2 1 0 0 0 0"
    _, out, _ = run("stat", "--json", file)
    (found,) = json.loads(out)["schedulers"]
    assert (found["scheduler"], found["name"], found["folder"]) == ("EDF", "r", None)
    assert found["models"][0]["refused"] == 1


def test_schedulers_are_told_apart(tmp_path):
    """One file may hold several, and several files the same one."""
    one = write(tmp_path / "one.jsonl", lasting(5, tag="EDF") + lasting(6, tag="DLIR"))
    two = write(tmp_path / "two.jsonl", lasting(7, tag="EDF"))
    assert [found.label for found in reader.read([one, two, two])] == ["EDF (one)", "DLIR", "EDF (two)"]


_GOOD = lasting(5)[0]
_BROKEN = [
    ("", "holds no record; `sluice serve --records FILE` writes a line for each request"),
    ("{", ":1: not JSON: "),
    ("\n[1]\n", ":2: not a record of a request, but [1]"),
    (json.dumps(_GOOD) + "\n" + json.dumps(_GOOD)[:50], ":2: not JSON: "),
    *(
        (json.dumps({k: v for k, v in _GOOD.items() if k != key}), f":1: no '{key}'; a record has the keys of")
        for key in ("tag", "model_name", "recv_time", "total_cost_by_ms", "child_model_run_time", "limit_cost_by_ms")
    ),
    (json.dumps(_GOOD | {"finish_time": "1"}), """:1: 'finish_time' is "1", must be a number"""),
    (json.dumps(_GOOD | {"recv_time": float("nan")}), ":1: 'recv_time' is NaN, must be a number"),
    (json.dumps(_GOOD | {"deadline_ms": True}), ":1: 'deadline_ms' is true, must be a number"),
    (json.dumps(_GOOD | {"model_name": 3}), ":1: 'model_name' is 3, must be a text"),
    (json.dumps(_GOOD | {"limit_cost_by_ms": 0}), ":1: 'limit_cost_by_ms' is 0, must be above 0"),
    (json.dumps(_GOOD | {"child_model_run_time": 3}), ":1: 'child_model_run_time' is 3, must be a list"),
    (json.dumps(_GOOD | {"child_model_run_time": [[1]]}), ":1: 'child_model_run_time' holds [1], must hold pairs"),
]


# Prevents: a traceback, or figures of half a file.
@pytest.mark.parametrize("command", ["stat", "files", "report"])
@pytest.mark.parametrize(("content", "message"), _BROKEN, ids=[message for _, message in _BROKEN])
def test_broken_records_are_refused_in_one_line(run, tmp_path, command, content, message):
    (tmp_path / "r.jsonl").write_text(content)
    code, out, err = run(command, "r.jsonl")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("sluice records: r.jsonl") and message in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["stat", "nowhere.jsonl"], "cannot read nowhere.jsonl: No such file or directory"),
        (["stat", "."], ". holds no 0.json; name a file of `sluice serve --records`, or data/MODE/HASH"),
        (["files", "."], ". is a folder; give a file of `sluice serve --records`"),
        (["files", "r.jsonl"], "r: one request of a has no interval; give --lambda a=MS"),
        (["files", "r.jsonl", "--lambda", "z=5"], "--lambda z=5: r has no request of z"),
        (["files", "r.jsonl", "--lambda", "1.5"], "--lambda: found '1.5', allowed: MS or MODEL=MS, in whole ms"),
        (["files", "lost.jsonl"], "lost: EDF answered no request"),
        (["files", "up.jsonl", "--lambda", "5"], "'../up' cannot be the name of a file"),
        (["stat", "up.jsonl", "--out", "o"], "'../up' cannot be the name of a file"),
    ],
)
def test_wrong_usage_is_one_line(run, tmp_path, args, message):
    write(tmp_path / "r.jsonl", lasting(5))
    write(tmp_path / "lost.jsonl", [refused(0, 1, "cancelled")])
    write(tmp_path / "up.jsonl", lasting(5, tag="../up"))
    code, out, err = run(*args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_broken_catalogue_is_kept(run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/catalogue.json").write_text("{")
    code, _, err = run("files", write(tmp_path / "r.jsonl", lasting(5, 6)))
    assert code == 2 and re.match(r"sluice records: data/catalogue.json is not JSON: .*; move it away\n", err)
    assert (tmp_path / "data/catalogue.json").read_text() == "{"
