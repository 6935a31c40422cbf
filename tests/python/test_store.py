"""The store: no half exports, no lost variants, nothing left behind."""

import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import spawn
from sluice_tools.models import aoti
from sluice_tools.models.store import Store

FAST = ("squeezenet1_1", "--size", "64", "64")


@pytest.fixture
def quick_compiler(monkeypatch):
    """Stands in for AOTInductor's compiler, which takes half a minute; see test_aoti.py."""

    def compile_and_package(program, package_path):
        with open(package_path, "w") as file:
            file.write("package")
        compile_and_package.module = program.module()

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_and_package)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda _path: compile_and_package.module)
    return compile_and_package


def test_variants_lie_beside_each_other(models, quick_compiler):
    """An export that drops the others' variants makes runs fail that worked before."""
    models.export(*FAST)
    for batch in ("1", "4", "4"):
        models.export(*FAST, "--format", "aoti", "--device", "cpu", "--batch", batch, "--force")
    found = models.model("squeezenet1_1")["variants"]
    assert [(v["format"], v["batch"]) for v in found] == [("torchscript", "any"), ("aoti", 1), ("aoti", 4)]
    assert found[1] == {
        "format": "aoti",
        "file": "model_b1_3x64x64_cpu.pt2",
        "input": [3, 64, 64],
        "dtype": "float32",
        "batch": 1,
        "device": "cpu",
        "resizes": False,
    }
    assert sorted(p.name for p in (models.store / "squeezenet1_1").iterdir()) == sorted(
        [v["file"] for v in found] + ["model.json"]
    )


def test_a_wrong_package_is_not_put_into_the_store(models, quick_compiler, monkeypatch):
    models.export(*FAST)
    before = models.model("squeezenet1_1")
    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda _path: lambda x: x[:, 0, 0, :1])
    line = models.refused(1, "export", *FAST, "--format", "aoti", "--device", "cpu")
    assert "package of squeezenet1_1 is wrong" in line
    assert models.model("squeezenet1_1") == before
    assert sorted(p.name for p in models.store.iterdir()) == ["squeezenet1_1"]


def test_what_is_there_is_exported_again_only_by_force(models):
    assert models.export(*FAST)[0]["exported"]
    file = models.store / "squeezenet1_1" / "model.pt"
    old = file.stat().st_ino
    assert not models.export(*FAST)[0]["exported"]
    assert file.stat().st_ino == old
    assert models.export(*FAST, "--force")[0]["exported"]
    assert file.stat().st_ino != old


def test_a_file_that_is_gone_is_exported_again(models):
    models.export(*FAST)
    (models.store / "squeezenet1_1" / "model.pt").unlink()
    assert "file missing" in models("list")[1]
    assert models.export(*FAST)[0]["exported"]


def test_other_weights_replace_a_model_only_by_force_and_wholly(models, quick_compiler):
    """Two variants of one model with different weights could not be compared."""
    models.export(*FAST)
    models.export(*FAST, "--format", "aoti", "--device", "cpu")
    line = models.refused(2, "export", *FAST, "--seed", "3")
    assert "has weights random, seed 0, not random, seed 3; --force" in line
    models.export(*FAST, "--seed", "3", "--force")
    assert [v["format"] for v in models.model("squeezenet1_1")["variants"]] == ["torchscript"]
    assert sorted(p.name for p in (models.store / "squeezenet1_1").iterdir()) == ["model.json", "model.pt"]


def test_an_export_keeps_the_splits_of_the_model(models, quick_compiler):
    """An export of one more variant would throw away hours of `sluice split`."""
    models.export(*FAST)
    described = models.store / "squeezenet1_1" / "model.json"
    splits = [{"blocks": 2, "cuts": [30]}]
    described.write_text(json.dumps({**json.loads(described.read_text()), "splits": splits}))
    models.export(*FAST, "--format", "aoti", "--device", "cpu")
    assert models.model("squeezenet1_1")["splits"] == splits
    models.export(*FAST, "--seed", "3", "--force")
    assert "splits" not in models.model("squeezenet1_1")


def test_list_and_show(models):
    assert "no models in" in models("list")[1]
    models.export(*FAST)
    code, out, _ = models("list", "--json")
    listed = json.loads(out)
    assert (code, listed["store"]) == (0, str(models.store))
    assert [model["name"] for model in listed["models"]] == ["squeezenet1_1"]
    assert listed["models"][0]["variants"][0]["bytes"] > 1_000_000
    assert "random, seed 0" in models("list")[1]
    assert "input 3x64x64, float32, batch any" in models("show", "squeezenet1_1")[1]
    assert json.loads(models("show", "squeezenet1_1", "--json")[1]) == listed["models"][0]


def test_a_broken_model_json_hides_no_other_model(models):
    models.export(*FAST)
    broken = models.store / "broken"
    broken.mkdir()
    (broken / "model.json").write_text("{")
    code, out, err = models("list")
    assert code == 0 and "squeezenet1_1" in out
    assert "cannot read" in err and str(broken) in err


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("waited in vain")


# Stops in the middle of an export. Without torch, whose import takes seconds.
STUCK = """
import sys, time
from sluice_tools.models import cli
def stuck(args, store):
    with store.work_folder() as work:
        (work / "model.pt").write_text("half")
        open(sys.argv[1], "w").close()
        time.sleep(600)
cli._export = stuck
sys.exit(cli.main(["export", "squeezenet1_1", "--force", "--store", sys.argv[2]]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_export_that_dies_leaves_the_store_as_it_was(models, tmp_path, number):
    """A reader would load half a file, or the disk would fill with them."""
    models.export(*FAST)
    before = (models.store / "squeezenet1_1" / "model.pt").read_bytes()
    reached = tmp_path / "reached"
    process = spawn(sys.executable, "-c", STUCK, str(reached), str(models.store))
    try:
        wait_for(reached.exists)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert Store(models.store).names() == ["squeezenet1_1"]
    assert (models.store / "squeezenet1_1" / "model.pt").read_bytes() == before
    left = [p.name for p in models.store.iterdir() if p.name != "squeezenet1_1"]
    if number == signal.SIGKILL:
        assert len(left) == 1  # nobody was there to remove it: the next export does
        models.export(*FAST, "--force")
        left = [p.name for p in models.store.iterdir() if p.name != "squeezenet1_1"]
    else:
        assert process.returncode == 130
        assert err.strip().splitlines()[-1].startswith("sluice models: interrupted")
    assert left == []


def test_an_interrupt_in_the_middle_of_a_file(models, monkeypatch):
    """Not even a model of the same name may be touched."""
    models.export(*FAST)
    before = (models.store / "squeezenet1_1" / "model.pt").read_bytes()

    def interrupted(path, _data):
        with open(path, "wb") as file:
            file.write(b"half")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    assert "interrupted" in models.refused(130, "export", *FAST, "--force")
    assert (models.store / "squeezenet1_1" / "model.pt").read_bytes() == before
    assert [p.name for p in models.store.iterdir()] == ["squeezenet1_1"]


def test_a_running_export_is_not_taken_for_a_dead_one(tmp_path):
    """Two exports at once: the second may not remove the first one's files."""
    store = Store(tmp_path)
    with store.work_folder() as first:
        with store.work_folder() as second:
            assert first.is_dir() and second.is_dir()
        assert first.is_dir() and not second.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_just_begins_is_not_taken_for_a_dead_one(tmp_path, monkeypatch):
    """Its folder exists before the lock in it: another export at that instant would remove it."""
    make, others = tempfile.mkdtemp, []

    def other_export():
        with Store(tmp_path).work_folder():
            pass

    def begin_together(**place):
        folder = make(**place)
        if not others:
            others.append(threading.Thread(target=other_export))
            others[0].start()
            others[0].join(0.5)  # it waits for us; without that it ends at once
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", begin_together)
    with Store(tmp_path).work_folder() as folder:
        others[0].join()
        assert folder.is_dir()


def test_aoti_files_of_two_architectures_have_two_names(monkeypatch):
    """A package of one GPU would overwrite that of another in a store shared by machines."""
    files = set()
    for arch in ("sm_80", "sm_90"):
        monkeypatch.setattr(aoti, "architecture", lambda arch=arch: arch)
        variant = aoti.describe([3, 224, 224], torch.float32, 8, "cuda")
        assert (variant["gpu_arch"], variant["device"]) == (arch, "cuda")
        files.add(variant["file"])
    assert len(files) == 2
