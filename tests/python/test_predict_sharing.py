"""`sluice predict job_time`, `pairs` and `place`, on made-up data with known answers. Prevents: an admission that
believes a time that is too short, and models that share a GPU although they fill it."""

import json
import math
import random

import pytest
from sluice_tools.opbench.pairs import Pair
from sluice_tools.predict_sharing import cli, job_time, slowdown
from sluice_tools.programs.pack import write_lines


def test_a_time_that_grows_linearly_is_found_exactly():
    times = {1: 1.5, 8: 5.0, 32: 17.0}  # 1 + 0.5 * batch
    assert job_time.between(times, 16) == (pytest.approx(9.0), "between 8 and 32")
    assert job_time.between(times, 2)[0] == pytest.approx(2.0)
    assert job_time.between(times, 64) == (pytest.approx(33.0), "beyond 32")
    assert job_time.between(times, 8) == (5.0, "measured")
    assert job_time.left_out(times) == {8: pytest.approx(0)}


def test_a_gpu_that_is_not_full_makes_the_prediction_no_shorter_than_the_truth():
    def truth(batch: int) -> float:
        return max(2.0, 0.4 * batch)

    times = {batch: truth(batch) for batch in (1, 4, 32)}
    for batch in range(1, 65):
        assert job_time.between(times, batch)[0] >= truth(batch) * (1 if batch <= 32 else 0.9), batch


def test_times_that_fall_are_not_extrapolated_below_zero():
    assert job_time.between({1: 3.0, 2: 2.0}, 50) == (2.0, "beyond 2")
    assert job_time.between({4: 3.0, 8: 4.0}, 1) == (3.0, "that of 4")


def pair(a, b, slow, kind="mps"):
    return Pair(kind, "H200", (a, b), (f"fused_{a}", f"fused_{b}"), 1.0, slow, False)


def test_demand_predicts_programs_that_share_the_sms_by_what_they_need():
    demand = {"a": 0.25, "b": 0.5, "c": 1.0, "d": 1.0}
    exact = [
        pair(x, y, (slowdown.by_demand(demand[x], demand[y]),) * 2)
        for x, y in [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    ]
    assert exact[0].slowdown == (1.0, 1.0)
    assert exact[1].slowdown == (1.25, 1.25)
    found = slowdown.errors(exact, demand)
    assert found["demand"] == 0
    assert found["alone"] == pytest.approx((0 + 0.25 + 0.5 + 1) / 4)
    assert found["halves"] == pytest.approx((1 + 0.75 + 0.5 + 0) / 4)
    # Of each pair only the pair with neither of its operators counts: (a,b) with (c,d), (a,c) with (b,d).
    assert found["mean"] == pytest.approx((1 + 0.25 + 0.25 + 1) / 4)


def test_slowdowns_are_learned_from_other_operators_only():
    pytest.importorskip("xgboost")
    from sluice_tools.predict_sharing import learned

    random_numbers = random.Random(1)
    sizes = {f"p{number}": number / 16 for number in range(48)}
    pairs = [
        Pair("mps", "H200", (a, b), (f"t{a}", f"t{b}"), 1.0, (1 + sizes[b], 1 + sizes[a]), False, (1e-4, 1e-4))
        for a, b in (random_numbers.sample(sorted(sizes), 2) for _ in range(300))
    ]
    demand = dict.fromkeys(sizes, 1.0)

    def error(known_pairs, features):
        return slowdown.errors(known_pairs, demand, lambda known: learned.slowdowns(known, features))["learned"]

    good = error(pairs, {name: [size] for name, size in sizes.items()})
    assert good < 0.15
    assert error(pairs, {name: [0.0] for name in sizes}) > 4 * good, "nothing to learn from"
    # Each operator has a feature of its own that says everything. No pair that tests has trained, so it says nothing.
    own = {name: [float(name == other) for other in sizes] for name in sizes}
    assert error(pairs, own) > 4 * good


def test_features_of_a_program_are_those_of_its_leaves_and_its_largest_kernel():
    from sluice_tools.predict_sharing import learned

    kernels = [{"grid": [2, 2, 1], "block": [32, 1, 1]}, {"grid": [8, 1, 1], "block": [16, 1, 1]}]
    found = learned.features_of({"features": [[1.0, 0.0], [3.0, 4.0]], "kernels": kernels})
    assert found == [2.0, 2.0, 3.0, 5.0, 2.0]


def test_a_program_that_got_nothing_has_no_slowdown_to_predict():
    assert slowdown.errors([pair("a", "b", (None, 1.5))], {"a": 1.0, "b": 0.5}) == {
        "alone": 0.5,
        "halves": 0.5,
        "demand": 0,
    }


def test_a_newcomer_gets_the_partner_that_is_predicted_to_be_best():
    demand = {"new": 0.5, "small": 0.25, "half": 0.5, "big": 1.0}
    measured = [
        pair("small", "new", (1.2, 1.4)),  # 1.3
        pair("new", "half", (1.0, 1.2)),  # 1.1
        pair("new", "big", (3.0, 2.0)),  # 2.5
        pair("new", "unknown", (1.0, 1.0)),
        pair("half", "big", (1.0, None)),
    ]
    # Only `new` has a choice. small and half fit next to it, so demand takes either.
    expected = {"newcomers": 1, "best": 1.1, "demand": 1.2, "random": (1.3 + 1.1 + 2.5) / 3}
    assert slowdown.placement(measured, demand) == pytest.approx(expected)

    def learn(known):
        return [math.nan if "half" in one.programs else demand[one.programs[1 - side]] for one, side, _ in known]

    assert slowdown.placement(measured, demand, learn)["learned"] == pytest.approx(1.3), "half has no prediction"
    assert slowdown.placement(measured[:1], demand) == {}


def test_the_demand_is_that_of_the_widest_kernel():
    kernels = [{"grid": [4, 1, 1], "block": [32, 1, 1]}, {"grid": [11, 3, 2], "block": [256, 1, 1]}]
    assert slowdown.demand_of_grid(kernels, 132) == 0.5
    assert slowdown.demand_of_grid(kernels, 16) == 1.0


def test_models_that_fit_together_share_a_gpu():
    demands = {"big": 0.9, "large": 0.8, "small": 0.1, "tiny": 0.2}
    groups, total = slowdown.place(demands, 2)
    assert sorted(groups) == [("big", "small"), ("large", "tiny")]
    assert total == pytest.approx(4.0)
    assert slowdown.place({"a": 0.9, "b": 0.9, "c": 0.1}, 2)[0] in ([("a", "c"), ("b",)], [("a",), ("b", "c")])
    assert slowdown.place({"a": 1.0, "b": 1.0}, 2) == ([("a",), ("b",)], 2.0), "each its own"
    with pytest.raises(ValueError, match="3 models need 2 GPUs"):
        slowdown.place({"a": 1, "b": 1, "c": 1}, 1)


def op_csv(path, model, batch, rows, gpu="sm_90"):
    head = (
        "model,batch,gpu,node,ms,kernels,few_blocks_ms,sm_ms,grid,block,registers,shared_bytes,operator,inputs,kernel"
    )
    lines = [f"{model},{batch},{gpu},0,{ms},1,0,{sm_ms},1x1x1,32x1x1,8,0,aten::relu,," for ms, sm_ms in rows]
    path.write_text("\n".join([head, *lines]) + "\n")
    return str(path)


def test_the_commands_read_what_opbench_writes(tmp_path, capsys):
    one = op_csv(tmp_path / "a.csv", "resnet", 1, [(1, 0.2), (1, 0.2)])
    eight = op_csv(tmp_path / "b.csv", "resnet", 8, [(5, 5), (4, 4)])
    assert cli.main(["job_time", one, eight, "--batch", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predicted"] == [{"batch": 4, "ms": 5.0, "from": "between 1 and 8"}]
    assert cli.main(["place", one, eight, "--gpus", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["demand"] == {"resnet at batch 1": 0.2, "resnet at batch 8": 1.0}
    assert found["sum_of_slowdowns"] == pytest.approx(2.4)

    write_lines(
        tmp_path / "a.programs",
        [
            {"kind": "program", "id": name, "kernels": [{"grid": [blocks, 1, 1], "block": [32, 1, 1]}]}
            for name, blocks in [("a", 33), ("b", 132)]
        ],
    )
    record = {"kind": "stream", "device": "H200", "programs": ["a", "b"], "tasks": ["x", "y"], "error": 0}
    record |= {"speedup": 1.2, "slowdown": [1.25, 1.5], "disturbed": False}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(record) + "\n")
    assert cli.main(["pairs", str(tmp_path / "pairs.jsonl"), str(tmp_path / "a.programs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stream"]["demand"] == pytest.approx(0.125)
    with (tmp_path / "pairs.jsonl").open("a") as file:
        file.write(json.dumps(record | {"programs": ["a", "c"], "slowdown": [1.0, 1.0]}) + "\n")
    write_lines(
        tmp_path / "c.programs",
        [{"kind": "program", "id": "c", "kernels": [{"grid": [33, 1, 1], "block": [32, 1, 1]}]}],
    )
    packs = [str(tmp_path / name) for name in ("pairs.jsonl", "a.programs", "c.programs")]
    assert cli.main(["pairs", *packs]) == 0
    assert capsys.readouterr().out.split("\n")[-5:-1] == [
        "stream: slowdown of both if each of 1 newcomers chooses a partner",
        "  best     1.000",
        "  demand   1.000",
        "  random   1.188",
    ]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["job_time", "1:2", "--batch", "4"], "at least two batch sizes"),
        (["job_time", "1:2", "8-3", "--batch", "4"], "'8-3' is neither BATCH:MS"),
        (["job_time", "1:2", "8:0", "--batch", "4"], "must be above 0"),
        (["job_time", "1:2", "1:3", "--batch", "4"], "batch size 1 is there twice"),
        (["job_time", "none.csv", "1:3", "--batch", "4"], "none.csv: not an op.csv"),
    ],
)
def test_mistakes_are_one_line(capsys, args, line):
    assert cli.main(args) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_models_of_a_cpu_are_not_placed(tmp_path, capsys):
    file = op_csv(tmp_path / "a.csv", "resnet", 1, [(1, 0)], gpu="cpu")
    assert cli.main(["place", file, "--gpus", "1"]) == 2
    assert "measured on a CPU" in capsys.readouterr().err
