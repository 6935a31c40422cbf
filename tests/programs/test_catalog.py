"""A wrong name or file is refused before TVM is imported, which takes half a minute. Needs no TVM."""

import pytest
from sluice_tools.common.errors import CommandError
from sluice_tools.programs import catalog, cli, server


def refused(name: str, source: str | None = None) -> str:
    with pytest.raises(CommandError) as error:
        catalog.check(name, source)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_names_have_a_source():
    names = ("matmul-64", "lstm", "bert_tiny", "a.onnx", "http://x/a", "resnet-18", "matmul_64")
    sources = ["simple", "simple", "transformers", "remoteonnx", "remoteonnx", "local", "local"]
    assert [catalog.source_of(name) for name in names] == sources


@pytest.mark.parametrize("name", ["resnet-18", "resnet18", "dcgan", "gpt2", "softmax-4096", "http://x/a.onnx"])
def test_right_names_pass(name):
    catalog.check(name)


def test_what_is_wrong_is_said():
    assert "did you mean 'resnet-18'?" in refused("resnet-81")
    assert "did you mean 'bert_base'?" in refused("bertbase")
    assert "is no simple operator" in refused("softmax-4097")
    assert "no transformer 'bert_gigantic': one of" in refused("bert_gigantic", "transformers")
    assert "modelsource 'disk' is not one of simple" in refused("a", "disk")
    assert refused("/nowhere/a.onnx") == "cannot read /nowhere/a.onnx: no such file"


@pytest.fixture
def no_tvm(monkeypatch):
    def fail():
        raise AssertionError("TVM is imported")

    monkeypatch.setattr("sluice_tools.programs.tvm_setup.load", fail)


def test_the_commands_refuse_before_tvm(no_tvm, tmp_path, capsys):
    out = str(tmp_path / "a.programs")
    for arguments in (
        ["make", "--models", "/nowhere/a.onnx,resnet-81", "-o", out],
        ["network", "resnet-81", "r.jsonl"],
    ):
        assert cli.main(arguments) == 2
    assert "cannot read /nowhere/a.onnx" in capsys.readouterr().err
    with pytest.raises(AssertionError, match="TVM is imported"):  # one of them is right: the others are left out later
        cli.main(["make", "--models", "/nowhere/a.onnx,resnet-18", "-o", out])


def test_the_server_refuses_before_tvm(no_tvm):
    line = '{"id":1,"do":"import","name":"/nowhere/a.onnx","target":"llvm"}'
    assert server.Server().answer(line)["error"] == "cannot read /nowhere/a.onnx: no such file"
