"""What TVM makes: sketches, launch dimensions, features, networks. A change of TVM shows here first."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy
import pytest
from emulate import run
from places import FIXTURE, PACKAGE
from sluice_tools.common.errors import CommandError
from sluice_tools.programs import tvm_setup

tvm_setup.load()
import tvm  # noqa: E402
from sluice_tools.programs import (  # noqa: E402
    catalog,
    check,
    cpu,
    cuda,
    knobs,
    lowered,
    make,
    models,
    network_run,
    networks,
    pack,
    programs,
)  # fmt: skip
from sluice_tools.programs.space import Refused  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm_ffi import structural_walk  # noqa: E402

CUDA, LLVM = tvm_setup.target_of("cuda -arch=sm_90"), tvm_setup.target_of("llvm")


def tasks_of(name: str, target=CUDA, batch: int = 1):
    return networks.extract(name, batch, models.load(catalog.source_of(name), name, batch), target)


def clipped() -> tvm.IRModule:
    """CUDA C spells infinity with a macro of a header that NVRTC does not have."""
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.clip(x, 0.25, float("inf")))
        builder.emit_func_output(result)
    return builder.finalize()


def the_task(name: str, target=CUDA):
    return tasks_of(name, target)[1][0]


def test_mutators_do_not_crash():
    """The pinned apache-tvm-ffi: with a later one this program dies of a segmentation fault."""
    code = (
        "from sluice_tools.programs import tvm_setup; tvm_setup.load()\n"
        "from tvm.s_tir import meta_schedule as ms\n"
        "from sluice_tools.programs import models, networks\n"
        "target = tvm_setup.target_of('llvm')\n"
        "_, tasks = networks.extract('m', 1, models.load('simple', 'matmul-64', 1), target)\n"
        "ms.TuneContext(mod=tasks[0].mod, target=target, space_generator='post-order-apply', num_threads=1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(PACKAGE)}, timeout=120)


@pytest.mark.parametrize("name", ["softmax-64", "mlp-32", "conv-7", "pool-14", "layer_norm-64", "lstm-32"])
def test_programs_compute_what_the_task_says(name, tmp_path):
    """Launch dimensions, order of arguments and scratch buffers: each program runs on the CPU as its pack says.

    TVM's own schedule comes first: it must not change the task."""
    for task in tasks_of(name)[1]:
        expected, buffers = cpu.reference(task, 3), task.buffers()
        lines = [programs.describe_default(task), *programs.sample(task, 2, 1, {"source"})[0]]
        assert [line["index"] == task.space.size for line in lines] == [True, False, False]
        assert len(lines[0]["features"]) == len(lines[0]["position"]) > 0
        for line in lines:
            arrays = [numpy.full_like(e, 7) if b["output"] else e.copy() for e, b in zip(expected, buffers)]
            run(line, arrays, tmp_path)
            for found, wanted, buffer in zip(arrays, expected, buffers):
                if buffer["output"]:
                    numpy.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_infinity_is_defined(tmp_path):
    _, (task,) = networks.extract("clip", 1, clipped(), CUDA)
    line = programs.sample(task, 1, 1, {"source"})[0][0]
    assert "CUDART_INF_F)" in line["source"]
    x, result = cpu.reference(task, 1)
    arrays = [x.copy(), numpy.zeros_like(result)]
    run(line, arrays, tmp_path)
    numpy.testing.assert_array_equal(arrays[1], result)


def test_the_bytes_of_arrays_are_counted_by_kernel():
    body = """
  alignas(64) float local_ptr[16];
  __shared__ alignas(64) float pad_ptr[100];
  __shared__ half other_ptr[3];
  for (int i = 0; i < 4; ++i) {
    uint key[2];
    local_ptr[3] = pad_ptr[7];
  }
"""
    assert cuda.array_bytes(body) == {"static_shared": 406, "local": 72}
    lines = programs.sample(the_task("layer_norm-64"), 20, 0, {"kernels"})[0]
    assert any(len({kernel["static_shared"] for kernel in line["kernels"]}) == 2 for line in lines)


def test_a_softmax_may_be_three_kernels():
    lines, _ = programs.sample(the_task("softmax-64"), 20, 1, {"kernels"})
    kernels = Counter(len(line["kernels"]) for line in lines)
    assert kernels[3] and kernels[1]
    three = next(line for line in lines if len(line["kernels"]) == 3)
    assert three["extra"] == [512, 512]  # maximum and sum of 128 rows
    assert [kernel["name"] for kernel in three["kernels"]] == ["main_kernel", "main_kernel_1", "main_kernel_2"]


def test_rows_of_features_belong_to_the_leaves_of_the_walk():
    """If TVM ordered the rows in another way, each row would get the position of another store."""
    task = the_task("softmax-64")
    line = next(line for line in programs.sample(task, 20, 1, {"features", "kernels"})[0] if len(line["kernels"]) == 3)
    walk = lowered.walk(lowered.lower(task.space.schedule(line["index"])))
    assert [position for _, position in walk.leaves] == line["position"]
    kinds = []
    for (buffer, _), row in zip(walk.leaves, line["features"]):
        add, divide, compare, exponential = row[1] > 0, row[3] > 0, row[4] > 0, row[5] > 0
        kinds.append((str(buffer.name).split("_shared")[0], divide, compare, exponential and not add))
    names = [name for name, *_ in kinds]
    assert [name for name, _, compare, _ in kinds if compare] == [n for n in names if "max" in n and "cross" not in n][
        :1
    ]
    assert [name for name, divide, *_ in kinds if divide] == ["T_softmax_norm"]
    assert names.index("T_softmax_norm") == len(names) - 1


def test_a_position_is_that_of_the_first_store_of_a_value():
    """A leaf at the place of the initialising store would sit outside of the loops that do its work."""
    task = the_task("dense-64")
    line = programs.sample(task, 1, 1, {"features"})[0][0]
    function = lowered.lower(task.space.schedule(line["index"]))
    nodes: list = []
    structural_walk(function.body, ((tirx.For, nodes.append), (tirx.BufferStore, nodes.append)), order="pre")
    assert line["nodes"] == len(nodes)
    for (buffer, position), reported in zip(lowered.walk(function).leaves, line["position"]):
        assert position == reported and nodes[position].buffer.same_as(buffer)
        assert not isinstance(nodes[position].value, tirx.FloatImm)


def test_leaves_and_rows_agree_where_tvm_drops_loops():
    """PerStoreFeature drops loops of length 1 before it lowers a reduction over threads: pooling shows it."""
    task = the_task("pool-14")
    lines, left_out = programs.sample(task, 40, 1, {"features"})
    assert len(lines) == 40 and not any("rows of features" in reason for reason in left_out)
    assert {len(line["features"]) for line in lines} >= {1, 2}


def test_features_alone_need_no_compilation(monkeypatch):
    """A tuner looks at thousands of programs that it does not measure."""
    task = the_task("dense-64")
    index = programs.sample(task, 1, 1, {"kernels"})[0][0]["index"]
    full = programs.describe(task, index, {"features", "kernels"})
    assert len(full["kernels"]) == 1 and "source" not in full
    monkeypatch.setattr(cuda, "build", None)
    del full["kernels"], full["extra"]
    assert programs.describe(task, index, {"features"}) == full


def test_an_index_gives_its_decisions_and_the_same_program_again():
    task = the_task("dense-64")
    for line in programs.sample(task, 5, 1, {"source", "features"})[0]:
        assert knobs.entity_of(task.space.sketches, line["index"]) == (line["sketch"], line["entity"])
        fresh = the_task("dense-64")
        assert fresh.id == task.id
        assert programs.describe(fresh, line["index"], {"source", "features"}) == line


def test_decisions_reach_the_schedule():
    task = the_task("dense-64")
    sketch = task.space.sketches[0]
    line = next(line for line in programs.sample(task, 20, 2, set())[0] if line["sketch"] == 0)
    trace = task.space.schedule(line["index"]).trace
    tiles = [list(map(int, trace.decisions[i])) for i in trace.insts if i.kind.name == "SamplePerfectTile"]
    assert tiles == [choice for _, kind, choice in line["entity"] if kind == "sp"]
    assert [knob["extent"] for knob in sketch["knobs"] if knob["type"] == "sp"] == [16, 64, 64]


def test_an_invalid_schedule_is_refused():
    task = the_task("dense-64")
    with pytest.raises(Refused, match="VerifyGPUCode"):
        for index in range(200):
            task.space.schedule(index)
    with pytest.raises(IndexError):
        task.space.schedule(task.space.size)


@pytest.mark.parametrize("name", ["_PASSES", "_EXTRACTOR"])
def test_a_program_that_tvm_cannot_describe_is_left_out(monkeypatch, name):
    """As an error of the request, it would end a tuning of hours."""

    class Failing:
        def __call__(self, _):
            raise tvm.error.InternalError("stack\nCheck failed: (false)")

        def extract_from(self, *_):
            self(None)

    task = the_task("dense-64", LLVM)
    monkeypatch.setattr(lowered, name, Failing())
    with pytest.raises(lowered.Unusable, match="Check failed"):
        programs.describe(task, 0, {"features"})


def test_calls_of_a_network_know_what_they_wait_for():
    network, tasks = tasks_of("lstm-32")
    assert [call["after"] for call in network["calls"]] == [[], [0], [1]]
    assert [call["task"] for call in network["calls"]] == [task.id for task in tasks]
    assert tasks[0].line()["flop"] == 2 * 16 * 32 * 128


def test_a_task_is_the_same_in_two_networks_but_not_for_two_targets():
    assert the_task("matmul-64").id == the_task("matmul-64").id
    assert the_task("matmul-64").id != the_task("matmul-65").id
    assert the_task("matmul-64").id != the_task("matmul-64", LLVM).id


def test_a_cpu_program_runs_and_is_checked(monkeypatch):
    task = the_task("dense-64", LLVM)
    line = programs.sample(task, 1, 1, {"features"})[0][0]
    assert "kernels" not in line and "source" not in line
    timer = cpu.Timer()
    seconds, correct = timer.time(task, line["index"], 1, 3, 1)
    assert correct and len(seconds) == 3 and all(0 < s < 1 for s in seconds)
    real = cpu.reference(task, 0)
    monkeypatch.setattr(cpu, "reference", lambda *_: [*real[:-1], real[-1] + 0.1])
    assert timer.time(task, line["index"], 1, 1, 1)[1] is True, "the data of the last task are kept"
    assert cpu.Timer().time(task, line["index"], 1, 1, 1)[1] is False
    monkeypatch.setattr(cpu, "LONGEST_S", 0)
    assert timer.time(task, line["index"], 1, 3, 1) == ([], True), "too slow"


# Prevents: the check of an installation ends with a fault of its own on a machine that stands still.
def test_an_installation_is_checked_on_a_slow_machine(monkeypatch, capsys):
    monkeypatch.setattr(cpu, "LONGEST_S", 0)
    assert check.check_installation() == 0
    assert "llvm: more than 0 s, result as expected" in capsys.readouterr().out


def test_each_program_of_each_task_is_timed_with_its_own_data():
    timer, built = cpu.Timer(), []
    for name in ("dense-64", "softmax-64", "dense-64"):
        task = the_task(name, LLVM)
        for line in programs.sample(task, 2, 1, set())[0]:
            assert timer.time(task, line["index"], 1, 1, 1)[1]
            built.append(timer._program)
    assert len({id(program) for program in built}) == 6


AUTOTVM = {"input": ["llvm", "name", [], {}], "config": {"index": 0}, "result": [[1e-9], 0, 1, 2]}


def record(task: str, index: int, seconds: float, device="cpu@1", error=0, disturbed=False) -> str:
    details = {"task": task, "device": device, "disturbed": disturbed}
    result = [[] if error else [seconds] * 5, error, 1.0, 2.0]
    return json.dumps({**AUTOTVM, "config": {"index": index}, "result": result, "sluice": details}) + "\n"


def test_a_network_runs_with_the_fastest_recorded_programs(tmp_path, capsys):
    network, tasks = tasks_of("lstm-32", LLVM)
    chosen, lines = {}, []
    for number, task in enumerate(tasks, 1):
        fast, *others = (line["index"] for line in programs.sample(task, 2, 1, set())[0])
        slow = others[0] if others else fast + 1  # some tasks have one program only
        chosen[task.id] = (fast, number * 1e-3)
        # The first record of `slow` is replaced; the others are none of a good program on this device.
        lines += [record(task.id, slow, 1e-9), record(task.id, slow, 1), record(task.id, fast, number * 1e-3)]
        lines += [record(task.id, slow, 1e-9, "cpu@2"), record(task.id, slow, 1e-9, disturbed=True)]
        lines += [record(task.id, slow, 0, error=7), json.dumps(AUTOTVM) + "\n"]
    file = tmp_path / "r.jsonl"
    file.write_text("".join(lines))
    assert network_run.measure(network_run.Plan("lstm-32", 1, [file], 1)) == 0
    sum_ms = sum(chosen[call["task"]][1] * 1e3 for call in network["calls"])
    said = capsys.readouterr().out
    assert f"{len(network['calls'])} calls" in said and f"records: {sum_ms:.3f} ms" in said

    mod = networks.fused(models.load("simple", "lstm-32", 1), LLVM)
    best = {task: (seconds, index) for task, (index, seconds) in chosen.items()}
    tuned_mod = network_run.scheduled(mod, network_run.choose(mod, LLVM, best))
    task = next(task for task in tasks if task.id == network["calls"][0]["task"])
    wanted = task.space.schedule(best[task.id][1]).mod["main"]
    found = tuned_mod[next(network_run.called(mod))].with_attr("global_symbol", "main")
    tvm.ir.assert_structural_equal(found, wanted)
    plain, tuned = (network_run.machine(of, LLVM)["main"] for of in (mod, tuned_mod))
    arguments = network_run.inputs(mod)
    numpy.testing.assert_allclose(tuned(*arguments).numpy(), plain(*arguments).numpy(), rtol=1e-4, atol=1e-4)
    with pytest.raises(CommandError, match=f"no good record of task {task.id}.*; disturbed ones do not count: run"):
        network_run.choose(mod, LLVM, {})
    with pytest.raises(CommandError, match=r"no good record of cpu@4 in .*; disturbed ones do not count: run"):
        network_run.measure(network_run.Plan("lstm-32", 1, [file], 4))


def test_references_are_written_raw(tmp_path):
    task = the_task("dense-64")
    cpu.write_reference(task, 5, str(tmp_path / "r"))
    x, weight, bias, result = (
        numpy.fromfile(tmp_path / "r" / f"{n}.bin", "<f4").reshape(b["shape"]) for n, b in enumerate(task.buffers())
    )
    assert abs(x).max() <= 1 and x.min() < -0.5
    numpy.testing.assert_allclose(result, numpy.maximum(x @ weight + bias, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("source", "name", "batch", "said"),
    [
        ("simple", "conv-5000", 1, "-SIZE of 1 to 4096"),
        ("simple", "resnet-18", 1, "no simple operator"),
        ("transformers", "llama", 1, "no transformer 'llama': one of bert_large"),
        ("elsewhere", "x", 1, "not one of simple, local"),
        ("simple", "conv", 0, "batch 0 is not positive"),
    ],
)
def test_an_unknown_model_is_one_line(source, name, batch, said):
    with pytest.raises(CommandError) as refused:
        models.load(source, name, batch)
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["rocm", "cuda sm_90", "cuda -arch", "cuda -nothing=1"])
def test_an_unknown_target_is_one_line(text):
    with pytest.raises(CommandError) as refused:
        tvm_setup.target_of(text)
    assert text in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["cuda:sm_80", "cuda -arch=sm_80"])
def test_a_pack_has_the_full_name_of_its_target(text, tmp_path):
    assert tvm_setup.target_of(text).arch == "sm_80"
    plan = make.Plan(["dense-64"], [1], 1, text, tmp_path / "a.programs", False, 0, 0)
    assert make.make(plan) == 0
    assert next(pack.read_lines(plan.out))["target"] == "cuda -arch=sm_80"


def test_another_version_of_tvm_is_refused(monkeypatch):
    monkeypatch.setattr(tvm_setup.importlib.metadata, "version", lambda _: "0.1.15.post2")
    with pytest.raises(CommandError, match=r"is 0\.1\.15\.post2, not 0\.27.*run \./x programs"):
        tvm_setup.load()


def test_threads_are_set_for_each_measurement():
    task = the_task("dense-64", LLVM)
    index, timer = programs.sample(task, 1, 1, set())[0][0]["index"], cpu.Timer()
    running = tvm.get_global_func("runtime.NumThreads")
    for threads in (1, os.cpu_count(), 1):
        assert timer.time(task, index, threads, 1, 1)[1]
        assert running() == threads
    for threads in (0, 100000):
        with pytest.raises(CommandError, match=f"threads {threads} is not from 1"):
            timer.time(task, index, threads, 1, 1)


@pytest.mark.parametrize("name", ["mlp", "layer_norm-256", "pool-28", "conv-14"])
def test_a_recorded_program_can_be_made_again(name):
    """Packs in the tree have no CUDA C: task and index must go on meaning the same program."""
    items = list(pack.read_lines(FIXTURE))
    network, tasks = tasks_of(name)
    assert network in items
    for task in tasks:
        assert task.line() in items
        recorded = [item for item in items if item["kind"] == "program" and item["task"] == task.id]
        for line in (recorded[0], recorded[-1]):
            want = {"features"} | ({"kernels", "source"} & line.keys())
            assert programs.describe(task, line["index"], want) == line


def test_programs_that_spill_are_refused(monkeypatch):
    task = the_task("conv-14")
    every = programs.sample(task, 12, 5, {"source"})[0]
    assert not all(cuda.likely_to_spill(line["kernels"]) for line in every)
    assert any(cuda.likely_to_spill(line["kernels"]) for line in every)
    few, left_out = programs.sample(task, 12, 5, {"source", "registers"})
    assert len(few) == 12 and left_out["likely to spill registers"]
    assert not any(cuda.likely_to_spill(line["kernels"]) for line in few)


@pytest.mark.parametrize(
    ("threads", "local", "spills"), [(32, 608, False), (32, 640, True), (1024, 152, False), (1024, 156, True)]
)
def test_a_large_block_has_fewer_registers(threads, local, spills):
    """0.6 of 255 and of 64 registers."""
    assert cuda.likely_to_spill([{"block": [threads, 1, 1], "local": local}]) == spills


def test_a_pack_of_tuned_programs_has_new_ones_of_measured_tasks(tmp_path):
    measured, unmeasured = the_task("dense-64"), the_task("softmax-64")
    made = programs.sample(measured, 6, 2, {"kernels"})[0]
    record = {"input": ["cuda", "dense", [], {}], "version": 0.2}
    lines = [
        record
        | {"config": {"index": index, "entity": []}, "result": [[seconds], 0, 1, 1]}
        | {"sluice": {"task": measured.id, "program": str(index), "device": device}}
        for index, seconds, device in [
            *((line["index"], 1 + number, "H100") for number, line in enumerate(made)),
            (measured.space.size, 0.1, "H100"),  # TVM's own schedule, which has no decisions
        ]
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan = make.Plan(["dense-64", "softmax-64"], [1], 5, "cuda", tmp_path / "a.programs", False, 0, 9, {"source"})
    plan.tuned = [tmp_path / "records.jsonl"]
    assert make.make(plan) == 0
    found = [line for line in pack.read_lines(plan.out) if line["kind"] == "program"]
    assert {line["task"] for line in found} == {measured.id} != {unmeasured.id}
    assert len(found) == 5 and not {line["index"] for line in found} & {line["index"] for line in made}
    assert not any("features" in line for line in found)
    near = [min(sum(a != b for a, b in zip(line["entity"], parent["entity"])) for parent in made[:3]) for line in found]
    assert max(near) <= 3
