"""`sluice opbench report`. Prevents: figures from disturbed or failed records, and pages that lack one."""

import json
import lzma

import pytest
from sluice_tools.common.errors import CommandError
from sluice_tools.opbench import cli, pairs, records


def line(program, device="H200", seconds=1e-3, error=0, disturbed=False, task="t", sms=132):
    details = {"task": task, "program": program, "device": device, "sms": sms, "spread": 1, "disturbed": disturbed}
    result = [[] if error else [seconds] * 5, error, 1.0, 2.0]
    config = {"index": 1, "code_hash": None, "entity": []}
    return json.dumps(
        {"input": ["cuda", f"fused_{task}", [], {}], "config": config, "result": result, "sluice": details}
    )


def pair(first="a", second="b", slowdown=(1.5, 2.0), kind="stream", error=0, disturbed=False):
    found = {
        "kind": kind,
        "device": "H200",
        "programs": [first, second],
        "tasks": [f"fused_{first}", f"fused_{second}"],
    }
    if error:
        return json.dumps({**found, "error": error})
    return json.dumps({**found, "error": 0, "speedup": 1.2, "slowdown": slowdown, "disturbed": disturbed})


def write(path, lines):
    path.write_text("".join(f"{one}\n" for one in lines))
    return path


def test_only_good_records_have_times(tmp_path, capsys):
    file = write(
        tmp_path / "r.jsonl",
        [line("a"), line("b", error=4), line("c", seconds=9, disturbed=True), line("d", seconds=3e-3)],
    )
    assert cli.main([str(file), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["devices"]
    assert (row["records"], row["good"], row["disturbed"], row["errors"]) == (4, 2, 1, {"4": 1})
    assert (row["least_us"], row["median_us"], row["most_us"]) == pytest.approx((1000, 2000, 3000))


def test_of_two_records_the_later_counts(tmp_path):
    found = records.read(write(tmp_path / "r.jsonl", [line("a"), line("a", seconds=2e-3)]))
    assert records.labels(found) == {("a", "H200"): 2e-3}


def test_shares_are_compared_program_by_program(tmp_path):
    lines = [line("a"), line("a", "H200@16", 8e-3, sms=16), line("b", "H200@16", 1, sms=16)]
    assert records.ratios(records.read(write(tmp_path / "r.jsonl", lines))) == {"H200@16": [pytest.approx(8)]}


def test_turning_points_are_the_smallest_share_within_5_percent(tmp_path):
    lines = [line("a", seconds=1e-3), line("a", "H200@64", 1.04e-3, sms=64), line("a", "H200@16", 1.06e-3, sms=16)]
    lines += [line("b", task="u", seconds=1e-3), line("b", "H200@64", 2e-3, task="u", sms=64)]
    lines += [line("c", task="only on one device")]
    found = records.turning_points(records.read(write(tmp_path / "r.jsonl", lines)))
    assert found == {"H200@64": 1, "H200": 1}


def test_turning_points_of_two_gpus_are_two(tmp_path):
    lines = [line("a", seconds=1e-3), line("a", "H200@64", 1e-3, sms=64)]
    lines += [line("a", "H100", 1e-6), line("a", "H100@32", 1e-5, sms=32)]
    found = records.turning_points(records.read(write(tmp_path / "r.jsonl", lines)))
    assert found == {"H200@64": 1, "H100": 1}


HEAD = "modelname,batchsize,target,device,tuner,seed,programs,trials,ms"
LATENCIES = [HEAD, "net,1,cuda,H200,ga,0,tuned,0,", "net,1,cuda,H200,ga,0,tuned,1,9", "net,1,cuda,H200,ga,0,tuned,2,4"]
LATENCIES += ["net,1,cuda,H200,ga,0,tvm,0,5", "net,1,cuda,H200,ga,0,both,2,3"]


def test_latencies_are_those_of_the_trials_and_of_tvms_own_schedules(tmp_path, capsys):
    write(tmp_path / "r.jsonl", [line("a")])
    write(tmp_path / "latency.csv", LATENCIES)
    assert cli.main([str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["latencies"] == {
        "net, batch 1, H200: ga, seed 0": [[1, 9], [2, 4]],
        "net, batch 1, H200: TVM's own": [[0, 5]],
    }
    write(tmp_path / "latency.csv", ["modelname,ms", "net,1"])
    assert cli.main([str(tmp_path), "--json"]) == 2
    assert "latency.csv is no latency.csv of sluice opbench run" in capsys.readouterr().err


def test_a_torn_line_is_dropped_and_another_is_named(tmp_path, capsys):
    for made, read in ((line, records.read), (pair, pairs.read)):
        file = write(tmp_path / "r.jsonl", [made("a")])
        assert len(read(file)) == 1 and capsys.readouterr().err == ""
        file.write_text(file.read_text() + made("b")[:40])
        assert len(read(file)) == 1
        assert "r.jsonl: the last line is torn: dropped" in capsys.readouterr().err
    broken = write(tmp_path / "broken.jsonl", [line("a"), "{}"])
    assert cli.main([str(broken)]) == 2
    assert "broken.jsonl: line 2: not a record" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert cli.main([str(tmp_path / "empty")]) == 2


def test_compressed_records_are_read(tmp_path, capsys):
    file = tmp_path / "r.jsonl.xz"
    file.write_bytes(lzma.compress(line("a").encode() + b"\n"))
    assert [one.program for one in records.read(records.find([tmp_path])[0])] == ["a"]
    file.write_bytes(b"not xz")
    assert cli.main([str(file)]) == 2
    assert "r.jsonl.xz cannot be read" in capsys.readouterr().err


def test_a_pack_is_no_file_of_records(tmp_path, capsys):
    pack = tmp_path / "a.programs"
    pack.write_bytes(lzma.compress(b'{"kind":"pack"}\n'))
    assert cli.main([str(pack)]) == 2
    said = capsys.readouterr().err
    assert "a.programs is not text" in said and said.count("\n") == 1


def test_records_of_autotvm_are_read(tmp_path):
    old = {"input": ["llvm", "conv", [], {}], "config": {"index": 3}, "result": [[0.5], 0, 1, 2]}
    (found,) = records.read(write(tmp_path / "old.json", [json.dumps(old)]))
    assert (found.program, found.device, found.cost) == ("3", "unknown", 0.5)


def test_the_heat_map_says_who_is_slowed_by_whom(tmp_path):
    found = pairs.read(write(tmp_path / "p.jsonl", [pair(slowdown=(9, 9)), pair(slowdown=(1.5, None)), pair("a", "c")]))
    names, cells = pairs.grid(found)
    assert names == ["fused_a a", "fused_b b", "fused_c c"]
    assert cells == [[None, 1.5, 1.5], [None, None, None], [2.0, None, None]], "of two pairs the later counts"


def test_of_many_operators_those_of_one_kind_share_a_row(tmp_path):
    lines = [pair(f"conv2d{n}_add{n}", f"max_pool2d{n}", (1 + n, 2)) for n in range(1, 22)]
    lines.append(pair("conv2d1_add1", "conv2d2_add2", (3, None)))
    names, cells = pairs.grid(pairs.read(write(tmp_path / "p.jsonl", lines)))
    assert names == ["conv2d_add", "max_pool2d"]
    assert cells == [[3, 12], [2, None]], "medians; one program got nothing"


def test_compressed_pairs_are_read(tmp_path):
    plain = write(tmp_path / "p.jsonl", [pair(), pair("a", "c")])
    packed = tmp_path / "p.jsonl.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    assert pairs.is_pairs(packed) and pairs.read(packed) == pairs.read(plain)
    packed.write_bytes(packed.read_bytes()[:40])
    assert not pairs.is_pairs(packed)
    with pytest.raises(CommandError, match="cannot be read"):
        pairs.read(packed)


def test_pairs_and_records_may_be_in_one_folder(tmp_path, capsys):
    lines = [pair(), pair("a", "c", error=4), pair("b", "c", disturbed=True), pair(kind="mps", slowdown=(3, None))]
    write(tmp_path / "pairs.jsonl", lines)
    write(tmp_path / "r.jsonl", [line("a")])
    assert cli.main([str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["records"] for row in answer["devices"]] == [1]
    mps, stream = answer["pairs"]
    assert (stream["pairs"], stream["failed"], stream["disturbed"], stream["median_slowdown"]) == (1, 1, 1, 1.75)
    assert (mps["kind"], mps["median_slowdown"], mps["got_nothing"]) == ("mps", 3, 1)
    broken = write(tmp_path / "broken.jsonl", [pair(), '{"programs": 3}'])
    assert cli.main([str(broken)]) == 2
    assert "line 2: not a record of a pair" in capsys.readouterr().err


PREDICTIONS = ["name,measured_s,predicted_s", "fused_conv,1e-3,1.5e-3", "fused_dense,2e-3,2e-3"]


def test_predictions_are_compared_beside_records_and_not_without(tmp_path, capsys):
    (tmp_path / "transformer").mkdir()
    write(tmp_path / "transformer" / "predictions.csv", PREDICTIONS)
    write(tmp_path / "r.jsonl", [line("a")])
    assert cli.main([str(tmp_path / "r.jsonl"), str(tmp_path / "transformer"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["predictions"] == {"transformer": pytest.approx(0.25)} and len(answer["devices"]) == 1
    assert cli.main([str(tmp_path / "transformer"), "--json"]) == 2
    assert "sluice predict report" in capsys.readouterr().err


def test_a_folder_may_have_records_and_predictions(tmp_path, capsys):
    write(tmp_path / "predictions.csv", PREDICTIONS)
    write(tmp_path / "r.jsonl", [line("a")])
    assert cli.main([str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["devices"]) == len(answer["predictions"]) == 1


def test_the_page_has_a_figure_of_each_kind(tmp_path, capsys):
    folder = tmp_path / "data" / "Performance"
    folder.mkdir(parents=True)
    write(folder / "net-ga-cuda-autotvm.json.tmp", [line("a"), line("b", seconds=5e-4)])
    write(tmp_path / "data" / "latency.csv", LATENCIES)
    write(tmp_path / "data" / "r.jsonl", [line("a"), line("a", "H200@16", 8e-3, sms=16)])
    write(tmp_path / "data" / "pairs.jsonl", [pair()])
    (tmp_path / "lstm").mkdir()
    write(tmp_path / "lstm" / "predictions.csv", PREDICTIONS)
    page = tmp_path / "page.html"
    assert cli.main([str(tmp_path / "data"), str(tmp_path / "lstm"), "-o", str(page)]) == 0
    assert capsys.readouterr().out.endswith(f"lstm: 2 predictions, MAPE 25.0%\npage: {page}\n")
    text = page.read_text()
    for part in ("Times", "Shares of the SMs", "Turning points", "H200: ga", "H200@16", "Pairs", "fused_b b"):
        assert part in text, part
    for part in ("Predicted against measured", "Error by operator", "fused_conv"):
        assert part in text, part


def test_the_axis_of_times_fits_the_times(tmp_path):
    from sluice_tools.opbench import page

    found = records.read(write(tmp_path / "r.jsonl", [line("a"), line("b", seconds=5e-4)]))
    (chart,) = page._times(found, {"H200": "red"})
    places = [chart.x.part(point.x) for point in chart.series[0].points]
    assert chart.x.log and 0 < min(places) < 0.2 and 0.8 < max(places) < 1, "an axis from 0 shows nothing"
