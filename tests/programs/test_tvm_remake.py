"""The kept contents of packs give the programs that were measured: a change of TVM or of a schedule shows here."""

import lzma
import os
import signal

import pytest
from places import TREE
from sluice_tools.programs import contents, pack, remake, tvm_setup

tvm_setup.load()
KEPT = TREE / "docs" / "data" / "programs"


@pytest.mark.parametrize(
    ("name", "network", "programs"), [("cuda-b8", "mlp", 16), ("cuda-new", "pool-14", 3), ("llvm-b1", "lstm", 48)]
)
def test_a_kept_network_is_made_again(tmp_path, name, network, programs):
    assert remake.remake(remake.Plan(KEPT / "packs.json", [name], [network], tmp_path, 1)) == 0
    lines = list(pack.read_lines(tmp_path / f"{name}.programs"))
    assert sum(line["kind"] == "program" for line in lines) == programs


def test_another_index_is_another_program(tmp_path, capsys):
    (of,) = contents.read(KEPT / "packs.json", ["cuda-new"])
    text = lzma.decompress((KEPT / "cuda-new.contents.xz").read_bytes()).decode()
    number = next(n for n, network in enumerate(of.networks) if network.name == "pool-14")
    task = next(n for n, task in enumerate(of.tasks) if task.network == number)
    old, other = of.tasks[task].indices[-1], next(i for i in range(9) if i not in of.tasks[task].indices)
    lines = [line.replace(f" {old}", f" {other}") if line.startswith(f"{task} ") else line for line in text.split("\n")]
    (tmp_path / "cuda-new.contents.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    (tmp_path / "packs.json").write_bytes((KEPT / "packs.json").read_bytes())
    assert remake.remake(remake.Plan(tmp_path / "packs.json", ["cuda-new"], ["pool-14"], tmp_path, 1)) == 1
    assert f"not as before: task {of.tasks[task].id} of pool-14" in capsys.readouterr().err


def kill(part) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_fails_its_network_only(tmp_path, capsys, monkeypatch):
    """As the kernel kills it if memory is short. A pool of processes would wait indefinitely."""
    monkeypatch.setattr(remake, "_make", kill)
    assert remake.remake(remake.Plan(KEPT / "packs.json", ["cuda-new"], ["pool-14", "pool-28"], tmp_path, 2)) == 1
    assert capsys.readouterr().err.count("ended by SIGKILL") == 2
