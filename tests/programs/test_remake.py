"""Packs made again: the same lines in the same order, or no pack. What TVM does is played from the pack itself."""

import random

import pytest
from random_pack import random_pack, written
from sluice_tools.programs import contents, pack, remake
from sluice_tools.programs.tvm_setup import FFI_VERSION, TVM_VERSION


class Kept:
    """The contents of a random pack, and the parts that TVM would make."""

    def __init__(self, folder, seed: int):
        self.items = random_pack(seed, "a")
        self.items[0] |= {"tvm": TVM_VERSION, "ffi": FFI_VERSION}
        self.folder, self.out, self.made = folder, folder / "out", 0
        written(folder, "a", self.items)
        contents.write(contents.of_packs([folder / "a.programs"]), folder)
        self.fails: set[int] = set()  # numbers of networks

    def plan(self, *models: str) -> remake.Plan:
        return remake.Plan(self.folder / "packs.json", [], list(models), self.out, 1)

    def make_all(self, parts, jobs) -> None:
        for part in parts:
            if part.network in self.fails:
                continue
            network = part.of.networks[part.network]
            tasks = {task.id for task in part.of.tasks if task.network == part.network}
            mine = [item for item in self.items if item.get("task") in tasks or item.get("name") == network.name]
            random.Random(part.network).shuffle(mine)  # TVM has tasks in the order of the calls
            pack.write_lines(part.path, mine)
            self.made += 1


@pytest.fixture(params=range(8))
def kept(request, tmp_path, monkeypatch) -> Kept:
    made = Kept(tmp_path, request.param)
    monkeypatch.setattr(remake, "_make_all", made.make_all)
    return made


def test_the_pack_is_the_same(kept):
    assert remake.remake(kept.plan()) == 0
    assert list(pack.read_lines(kept.out / "a.programs")) == kept.items
    assert [path.name for path in kept.out.iterdir()] == ["a.programs"]


def test_what_is_there_is_not_made_again(kept, capsys):
    assert remake.remake(kept.plan()) == 0
    before = kept.made
    assert remake.remake(kept.plan()) == 0 and kept.made == before
    assert capsys.readouterr().err.count("as before") == 2


def test_another_line_is_named_and_makes_no_pack(kept, capsys):
    """Programs that differ from those that were measured would give their times to others."""
    changed = random.Random(kept.items[0]["seed"]).choice(kept.items[1:])
    changed["more"] = 1
    assert remake.remake(kept.plan()) == 1
    said = capsys.readouterr().err
    name = f"network {changed['name']}" if changed["kind"] == "network" else f"task {changed['task']}"
    assert f"not as before: {name}" in said and not (kept.out / "a.programs").exists()


def test_a_missing_program_makes_no_pack(kept, capsys):
    lost = next((item for item in kept.items if item["kind"] == "program"), None)
    if lost is None:
        pytest.skip("this pack has none")
    kept.items.remove(lost)
    assert remake.remake(kept.plan()) == 1
    assert f"not as before: task {lost['task']}" in capsys.readouterr().err


def test_an_interrupted_run_goes_on(kept):
    kept.fails = {1}
    assert remake.remake(kept.plan()) == 1 and not (kept.out / "a.programs").exists()
    kept.fails = set()
    assert remake.remake(kept.plan()) == 0 and kept.made == 3
    assert list(pack.read_lines(kept.out / "a.programs")) == kept.items


def test_one_network_alone_is_in_the_order_of_the_pack(kept):
    first = next(item for item in kept.items if item["kind"] == "network")
    called = {call["task"] for call in first["calls"]}
    assert remake.remake(kept.plan(first["name"])) == 0
    expected = [item for item in kept.items[1:] if item.get("task") in called or item is first]
    assert list(pack.read_lines(kept.out / "a.programs"))[1:] == expected


def test_a_part_of_a_pack_is_no_whole_one(kept, capsys):
    """Behind `./x data`, the predictor would be trained with a few programs."""
    first = next(item for item in kept.items if item["kind"] == "network")
    assert remake.remake(kept.plan(first["name"])) == 0
    with pytest.raises(remake.CommandError, match=r"a\.programs exists and is not as before: remove it"):
        remake.remake(kept.plan())


def test_another_version_of_tvm_is_refused(kept, monkeypatch):
    monkeypatch.setattr(remake.tvm_setup, "TVM_VERSION", "0.28")
    with pytest.raises(remake.CommandError, match=f"a was made with TVM {TVM_VERSION}"):
        remake.remake(kept.plan())
