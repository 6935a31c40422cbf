"""What is refused: in one line, with the right exit code, before any work."""

import csv
import os
import subprocess
import sys

import pytest
import torch
import torchvision
from conftest import environment
from sluice_tools.bench.programs.figures import FIELDS
from sluice_tools.models import names


def test_usage(models):
    assert "did you mean 'resnet50'?" in models.refused(2, "export", "resnet5O")
    assert "unknown model '../x'" in models.refused(2, "export", "../x")
    assert "'0' is not a whole number" in models.refused(2, "export", "resnet18", "--batch", "0")
    assert "takes any batch" in models.refused(2, "export", "resnet18", "--batch", "8")
    assert "--weights is for one" in models.refused(2, "export", "alexnet", "vgg11", "--weights", "x")
    assert "sluice models export vgg11 makes it" in models.refused(2, "show", "vgg11")
    assert "is not a model name" in models.refused(2, "show", "../vgg11")
    assert not models.store.exists()


def test_one_unknown_name_stops_all(models):
    """Otherwise the error comes after minutes of work on the names before it."""
    models.refused(2, "export", "squeezenet1_1", "resnet5O")
    assert not models.store.exists()


def test_detection_limits(models):
    name = "fasterrcnn_resnet50_fpn"
    line = models.refused(2, "export", name, "--format", "aoti")
    assert "torch.export refuses" in line and "--format torchscript" in line
    assert "boxes need float32" in models.refused(2, "export", name, "--dtype", "bfloat16")
    assert "takes any size" in models.refused(2, "export", name, "--size", "720", "1280")
    assert "--train takes classification and text models" in models.refused(2, "export", name, "--train")
    assert "exclude each other" in models.refused(2, "export", "resnet18", "--train", "--format", "aoti")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu(models):
    line = models.refused(1, "export", "resnet18", "--format", "aoti", "--device", "cuda")
    assert "torch finds none" in line


def test_weights_that_do_not_fit(models, tmp_path):
    path = tmp_path / "weights.pth"

    def refused(state) -> str:
        torch.save(state, path)
        return models.refused(2, "export", "squeezenet1_1", "--weights", str(path))

    state = torchvision.models.squeezenet1_1(weights=None).state_dict()
    lacking = {key: value for key, value in state.items() if key != "features.0.bias"}
    assert "'features.0.bias' is missing;" in refused(lacking)
    assert "'extra' is unexpected;" in refused({**state, "extra": torch.zeros(1)})
    wrong = {**state, "classifier.1.bias": torch.zeros(10)}
    assert "'classifier.1.bias' is [10] where the model has [1000]" in refused(wrong)
    assert "not a state_dict" in refused([1, 2])
    other = torchvision.models.mobilenet_v3_small(weights=None).state_dict()
    assert "(and 51 more)" in refused(other)
    path.write_text("no weights")
    assert "is not a file of weights" in models.refused(2, "export", "squeezenet1_1", "--weights", str(path))
    assert "no weights file" in models.refused(2, "export", "squeezenet1_1", "--weights", "/none")


def test_a_size_that_the_model_cannot_take(models):
    line = models.refused(1, "export", "squeezenet1_1", "--size", "4", "4")
    assert "cannot be made into TorchScript" in line
    assert list(models.store.iterdir()) == []


def test_a_store_that_cannot_be_written(models):
    models.store.parent.mkdir(exist_ok=True)
    models.store.write_text("a file where the folder should be")
    line = models.refused(1, "export", "squeezenet1_1")
    assert "cannot write to the store" in line and "--store" in line


def test_a_python_without_torch_names_the_command(tmp_path):
    """`import torch` must fail here although this Python has it."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    environ = environment() | {"SLUICE_VENV": "/no/such/.venv"}
    environ["PYTHONPATH"] = f"{tmp_path}:{environ['PYTHONPATH']}"
    command = [sys.executable, "-m", "sluice_tools.models"]
    listed = subprocess.run([*command, "list", "--store", str(tmp_path)], env=environ, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    result = subprocess.run([*command, "export", "resnet18"], env=environ, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.endswith("/.venv/bin/pip install torch==2.11.0 torchvision==0.26.0\n")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="not run by ctest")
def test_the_launcher_finds_package_and_python(tmp_path):
    """`sluice models` works from any folder, and an unusable SLUICE_PYTHON is no silent fallback."""
    program = os.environ["SLUICE_TEST_PROGRAM"]
    environ = {k: v for k, v in environment().items() if k != "PYTHONPATH"}
    environ |= {"SLUICE_MODELS": str(tmp_path)}
    for python in ({}, {"SLUICE_PYTHON": sys.executable}):
        result = subprocess.run(
            [program, "models", "list"], env=environ | python, cwd="/", capture_output=True, text=True
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert f"no models in {tmp_path}" in result.stdout
    result = subprocess.run(
        [program, "models", "list"], env=environ | {"SLUICE_PYTHON": "/none"}, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stderr == "sluice models: SLUICE_PYTHON names /none, which is not a program\n"


@pytest.mark.skipif("SLUICE_TEST_PROGRAM" not in os.environ, reason="not run by ctest")
def test_files_are_utf_8_in_any_locale(tmp_path):
    """A page that was made under ISO-8859-1 could not be read elsewhere; under ASCII there was none at all."""
    row = {"subject": "décode+prefill", "mode": "time-sliced", "cell": "alone", "repeat": "1", "role": "critical"}
    with (tmp_path / "programs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerow(row)
    # As an old locale: Python takes neither of its ways out of the locale C.
    environ = environment() | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [os.environ["SLUICE_TEST_PROGRAM"], "bench", "programs", "--table", tmp_path]
    result = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "décode" in (tmp_path / "programs.md").read_text(encoding="utf-8")


def test_a_pipe_that_nobody_reads(tmp_path):
    """`sluice models list | head`, which is no error of the user's."""
    read, write = os.pipe()
    os.close(read)
    code = "import sys; from sluice_tools.models.cli import main; sys.exit(main())"
    called = subprocess.run(
        [sys.executable, "-c", code, "list", "--store", str(tmp_path)],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    os.close(write)
    assert (called.returncode, called.stderr) == (1, "")


def test_the_names_are_those_of_torchvision(models):
    """They are read from its files: a new way to register a model would go unseen."""
    families = {"classification": torchvision.models, "detection": torchvision.models.detection}
    families |= {"segmentation": torchvision.models.segmentation}
    expected = {name: task for task, module in families.items() for name in torchvision.models.list_models(module)}
    known = names.tasks()
    assert {name: task for name, task in known.items() if task != "text"} == expected


def test_a_misspelt_name_is_refused_without_torch(models, monkeypatch):
    monkeypatch.setattr("sluice_tools.models.cli._import_torch", lambda: pytest.fail("imported torch"))
    assert "did you mean 'resnet50'?" in models.refused(2, "export", "resnet5O")
    code, out, _ = models("list", "--available")
    assert code == 0 and "classification  resnet50\n" in out
