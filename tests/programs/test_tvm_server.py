"""A real server, real runs of `make`, and ONNX files, broken ones too."""

import contextlib
import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from places import PACKAGE
from sluice_tools.common.errors import CommandError
from sluice_tools.programs import check, cli, models, networks, pack, server, tvm_setup
from test_server import TRANSCRIPT

COMMAND = [sys.executable, "-m", "sluice_tools.programs"]


def serve(*requests: str) -> list[str]:
    done = subprocess.run(
        [*COMMAND, "serve"],
        input="".join(line + "\n" for line in requests),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE)},
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_server_answers_as_recorded():
    answers = serve(*(json.dumps(t["request"]) for t in TRANSCRIPT))
    assert [json.loads(line) for line in answers] == [t["answer"] for t in TRANSCRIPT]


def test_nothing_but_answers_reaches_the_client(tmp_path):
    """TVM's C++ writes warnings; a library that wrote one to standard output would break the protocol."""
    code = (
        "import os, subprocess\n"
        "from sluice_tools.programs import server\n"
        "def noisy(self, request):\n"
        "    print('python'); os.write(1, b'descriptor\\n'); subprocess.run(['echo', 'child']); return {}\n"
        "server.Server._hello = noisy\n"
        "server.serve()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input='{"id":1,"do":"hello"}\n',
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE), "PATH": "/usr/bin:/bin"},
        timeout=100,
    )
    assert done.stdout == '{"id":1,"ok":true}\n'
    assert all(word in done.stderr for word in ("python", "descriptor", "child"))


def torch_or_skip() -> None:
    """For networks of torch, which need the checkout's .venv (./x torch)."""
    try:
        tvm_setup.torch_path()
    except CommandError as missing:
        pytest.skip(str(missing))


def answer(one: server.Server, request: dict) -> dict:
    found = one.answer(json.dumps(request))
    assert found.pop("ok"), found
    return found


def imported(tmp_path, name: str, target: str) -> tuple[server.Server, list[dict], dict]:
    """A server that imported the network, the lines of its tasks, and the request that makes another one load them."""
    one, file = server.Server(), str(tmp_path / "tasks")
    tasks = answer(one, {"do": "import", "name": name, "target": target, "save": file})["tasks"]
    return one, tasks, {"do": "import", "tasks": file, "target": target}


@pytest.mark.parametrize("name", ["pool-14", "squeezenet_v1.1"])
def test_saved_tasks_make_the_same_programs(name, tmp_path):
    """Else an index would mean another program once the server that imported the network has ended."""
    if name == "squeezenet_v1.1":
        torch_or_skip()
    one, tasks, load = imported(tmp_path, name, "cuda -arch=sm_90")
    loaded = networks.load(load["tasks"], tvm_setup.target_of(load["target"]))
    assert [task.line() for task in loaded] == tasks
    requests = []
    for task in [line["task"] for line in tasks[:3]]:
        sample = answer(one, {"do": "sample", "task": task, "count": 2, "seed": 1, "want": []})["programs"]
        indices = [program["index"] for program in sample]
        assert len(indices) == 2
        requests.append({"do": "apply", "task": task, "indices": indices, "want": ["features", "source"]})
        requests.append({"do": "default", "task": task})
    first, *others = serve(*map(json.dumps, [load, *requests]))
    assert json.loads(first) == {"id": None, "ok": True}
    assert [json.loads(line) for line in others] == [{"ok": True} | answer(one, request) for request in requests]


def test_saved_tasks_run_on_the_cpu(tmp_path):
    one, (task,), load = imported(tmp_path, "softmax-64", "llvm")
    time = {"do": "time", "task": task["task"], "index": 1, "repeats": 2, "min_ms": 1}
    reference = {"do": "reference", "task": task["task"], "seed": 3}
    answer(one, reference | {"folder": str(tmp_path / "one")})
    answers = serve(*map(json.dumps, [load, time, reference | {"folder": str(tmp_path / "other")}]))
    timed = json.loads(answers[1])
    assert timed["correct"] and len(timed["seconds"]) == 2, timed
    one_outputs, other = ((tmp_path / folder / "1.bin").read_bytes() for folder in ("one", "other"))
    assert one_outputs == other


def make(*arguments: str) -> int:
    return cli.main(["make", *arguments])


def test_make_goes_on_where_it_was_torn(tmp_path, monkeypatch, capsys):
    from sluice_tools.programs import make as maker

    monkeypatch.setattr(maker, "_PIECE", 16)
    path = tmp_path / "a.programs"
    arguments = ("--models", "pool-14,pool-16", "--per-task", "24", "--sources", "1", "-o", str(path))
    assert make(*arguments) == 0
    whole = list(pack.read_lines(path))
    path.write_bytes(path.read_bytes()[:-3000])  # as if the machine had stopped while the last piece was written
    left = len(list(pack.read_lines(path)))
    assert 5 < left < len(whole)
    capsys.readouterr()
    assert make(*arguments) == 2
    assert "exists: add --resume" in capsys.readouterr().err
    assert make(*arguments, "--resume") == 0
    ids = [item["id"] for item in pack.read_lines(path) if item["kind"] == "program"]
    assert len(ids) == len(set(ids)) == 48
    assert sum("source" in item for item in pack.read_lines(path)) == 2
    assert check.check_pack(path) == 0
    assert make(*arguments, "--resume", "--seed", "9") == 2
    assert "another target, TVM or seed" in capsys.readouterr().err


def test_a_pack_that_is_torn_in_its_first_piece_is_not_emptied(tmp_path, capsys):
    path = tmp_path / "a.programs"
    arguments = ("--models", "pool-14", "--per-task", "16", "-o", str(path), "--resume")
    path.touch()  # as of a `make` that was killed before its first write
    assert make(*arguments[:-1]) == 0
    items = list(pack.read_lines(path))
    pack.write_lines(path, items)
    torn = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(torn)
    left = list(pack.read_lines(path))
    assert 3 < len(left) < len(items)
    assert make(*arguments, "--seed", "9") == 2
    assert path.read_bytes() == torn, "a refused run changes nothing"
    capsys.readouterr()
    assert make(*arguments) == 0
    assert f"16 programs wanted, {len(left) - 3} there" in capsys.readouterr().err
    assert list(pack.read_lines(path))[: len(left)] == left and check.check_pack(path) == 0
    path.write_bytes(b"not xz at all")
    assert make(*arguments) == 2
    assert "is not a pack" in capsys.readouterr().err and path.read_bytes() == b"not xz at all"


def test_a_reference_has_what_the_tasks_of_a_pack_compute(tmp_path, capsys):
    path, out = tmp_path / "a.programs", tmp_path / "r"
    assert make("--models", "pool-14,dense-64", "--per-task", "1", "-o", str(path)) == 0
    items = list(pack.read_lines(path))
    first, _ = (item for item in items if item["kind"] == "task")
    items.append({**first, "task": "0" * 16})
    items += [{"kind": "network", "name": "/nowhere/a.onnx", "batch": 1, "calls": [{"task": "0" * 16, "after": []}]}]
    pack.write_lines(path, items)
    (out / f"{first['task']}.unfinished").mkdir(parents=True)  # of a run that was killed
    assert cli.main(["reference", str(path), "-o", str(out)]) == 0
    said = capsys.readouterr().err
    assert "2 of 3 tasks; 1 cannot be made" in said and "left out: cannot read /nowhere/a.onnx" in said
    tasks = {item["name"]: item for item in items if item["kind"] == "task" and item["task"] != "0" * 16}
    assert sorted(folder.name for folder in out.iterdir()) == sorted(item["task"] for item in tasks.values())
    (pool,) = (item for name, item in tasks.items() if "pool" in name)
    x, y = (
        numpy.fromfile(out / pool["task"] / f"{number}.bin", buffer["dtype"]).reshape(buffer["shape"])
        for number, buffer in enumerate(pool["buffers"])
    )
    assert [buffer["output"] for buffer in pool["buffers"]] == [False, True]
    padded = numpy.pad(x[0], ((0, 0), (1, 1), (1, 1)), constant_values=-numpy.inf)
    assert y[0, 3, 2, 4] == padded[3, 4:7, 8:11].max()
    times = {file: file.stat().st_mtime_ns for file in out.glob("*/*.bin")}
    assert cli.main(["reference", str(path), "-o", str(out)]) == 0
    assert times == {file: file.stat().st_mtime_ns for file in out.glob("*/*.bin")}


def test_a_full_disk_ends_reference(tmp_path, capsys):
    """A script must not take the tasks so far for all of them."""
    path, out = tmp_path / "a.programs", tmp_path / "r"
    assert make("--models", "dense-64", "--per-task", "1", "-o", str(path)) == 0
    (task,) = (item["task"] for item in pack.read_lines(path) if item["kind"] == "task")
    (out / f"{task}.unfinished").mkdir(parents=True)
    (out / f"{task}.unfinished" / "1.bin").symlink_to("/dev/full")
    capsys.readouterr()
    assert cli.main(["reference", str(path), "-o", str(out)]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last == f"sluice programs: {out}/{task}.unfinished/1.bin: No space left on device"
    assert list(out.iterdir()) == []


def test_an_interrupted_make_keeps_what_it_made(tmp_path):
    path = tmp_path / "a.programs"
    arguments = ["--models", "dense-64", "--per-task", "2000", "-o", str(path)]
    process = subprocess.Popen(
        [*COMMAND, "make", *arguments], stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": str(PACKAGE)}
    )
    while "programs wanted" not in process.stderr.readline():
        pass
    time.sleep(5)
    process.terminate()
    said = process.communicate(timeout=100)[1]
    assert process.returncode == 143 and "Traceback" not in said
    made = sum(item["kind"] == "program" for item in pack.read_lines(path))
    assert 0 < made < 2000 and f"{made} of 2000 programs" in said


def test_a_signal_that_tvm_swallows_ends_make(tmp_path, monkeypatch):
    from sluice_tools.programs import make as maker

    def sample(*_):
        with contextlib.suppress(SystemExit):  # as TVM does
            os.kill(os.getpid(), signal.SIGTERM)
        return [], {}

    monkeypatch.setattr(maker.programs, "sample", sample)
    with pytest.raises(SystemExit) as ended:
        make("--models", "dense-64", "--per-task", "4", "-o", str(tmp_path / "a.programs"))
    assert ended.value.code == 143


def test_a_network_that_fails_costs_no_other(tmp_path, capsys):
    path = tmp_path / "a.programs"
    assert make("--models", "/nowhere/a.onnx,softmax-64", "--per-task", "2", "-o", str(path)) == 0
    assert "left out: cannot read /nowhere/a.onnx" in capsys.readouterr().err
    assert [item["name"] for item in pack.read_lines(path) if item["kind"] == "network"] == ["softmax-64"]


def onnx_model(operator: str, first: int | str = "batch", domain: str = "") -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, 8])
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], domain=domain)], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture
def relu(tmp_path):
    onnx.save(onnx_model("Relu"), tmp_path / "relu.onnx")
    with zipfile.ZipFile(tmp_path / "relu.zip", "w") as archive:
        archive.write(tmp_path / "relu.onnx", "folder/relu.onnx")
        archive.writestr("README", "a zip has more than the model")
    return tmp_path


def shape_of(place: str, batch: int = 1) -> list[int]:
    _, tasks = networks.extract("n", batch, models.load("remoteonnx", place, batch), tvm_setup.target_of("llvm"))
    return tasks[0].buffers()[0]["shape"]


def test_onnx_from_path_address_and_zip(relu):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=relu)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/relu.zip"
        places = [str(relu / "relu.onnx"), (relu / "relu.onnx").as_uri(), str(relu / "relu.zip"), address]
        assert [shape_of(place, 4) for place in places] == [[4, 8]] * 4
    finally:
        server.shutdown()
        server.server_close()


def refused(place: str, batch: int = 1) -> str:
    with pytest.raises(CommandError) as error:
        models.load("remoteonnx", place, batch)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_broken_onnx_file_is_one_line(relu):
    data = (relu / "relu.onnx").read_bytes()
    (relu / "torn.onnx").write_bytes(data[:-20])
    (relu / "empty.onnx").write_bytes(b"")
    (relu / "text.onnx").write_text("not a model")
    for name in ("torn", "empty", "text"):
        assert f"{name}.onnx is no ONNX file" in refused(str(relu / f"{name}.onnx"))
    with zipfile.ZipFile(relu / "none.zip", "w") as archive:
        archive.writestr("README", "no model")
    assert "holds 0 .onnx files, not 1" in refused(str(relu / "none.zip"))
    assert "cannot read" in refused("http://127.0.0.1:9/a.onnx")
    assert "give a path, or an address" in refused("ftp://example.org/a.onnx")


def test_an_operator_that_tvm_lacks_is_one_line(relu):
    onnx.save(onnx_model("Fancy", domain="org.example"), relu / "fancy.onnx")
    assert "Fancy" in refused(str(relu / "fancy.onnx"))


def test_a_fixed_batch_is_not_changed_silently(relu):
    onnx.save(onnx_model("Relu", first=2), relu / "two.onnx")
    assert shape_of(str(relu / "two.onnx"), 2) == [2, 8]
    assert "fixed to batch 2, so batch 1 is impossible: its first" in refused(str(relu / "two.onnx"), 1)


def test_networks_of_torch():
    """Batch norms must be folded away, views must be no tasks."""
    torch_or_skip()
    target = tvm_setup.target_of("cuda -arch=sm_90")
    network, tasks = networks.extract("bert_tiny", 2, models.load("transformers", "bert_tiny", 2), target)
    assert len(network["calls"]) > len(tasks) > 10
    assert "softmax" in {task.name for task in tasks}  # not the guarded softmax of torch's own attention
    import torch

    query = torch.ones(1, 1, 2, 4)
    torch.nn.functional.scaled_dot_product_attention(query, query, query, enable_gqa=False)  # torch's own again
    assert not any("reshape" in task.name for task in tasks)
    network, tasks = networks.extract("r", 1, models.load("local", "resnet-18", 1), target)
    assert len(network["calls"]) == 23 and len(tasks) == 18
    assert not any("sqrt" in task.name or "divide" in task.name for task in tasks)
    assert any(len(call["after"]) == 2 for call in network["calls"])  # a sum of two branches
    with pytest.raises(CommandError, match="no local model 'nothing'"):
        models.load("local", "nothing", 1)
