"""Contents of packs: they must be enough to make it again, and a pack that is not the same must be noticed."""

import json
import random
import re

import pytest
from places import FIXTURE, TREE
from random_pack import random_pack, written
from sluice_tools.common.errors import CommandError
from sluice_tools.programs import catalog, cli, contents, pack

KEPT = TREE / "docs" / "data" / "programs"


@pytest.mark.parametrize("seed", range(30))
def test_contents_that_are_written_are_read_the_same(tmp_path, seed):
    items = random_pack(seed, "a")
    made = contents.of_packs([written(tmp_path, "a", items)])
    contents.write(made, tmp_path)
    assert contents.read(tmp_path / "packs.json", []) == made
    assert made[0].sha256 == contents.digest(items)


@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_the_pack_is_kept(tmp_path, seed):
    """The first programs of each task are measured first, and a run that ends early has those."""
    items = random_pack(seed, "a")
    (of,) = contents.of_packs([written(tmp_path, "a", items)])
    order: list[tuple] = []
    for what, number in of.lines:
        if what == "network":
            order.append((of.networks[number].name,))
        else:
            order.append((of.tasks[what].id, number) if isinstance(what, int) else (of.tasks[number].id,))
    by_kind = {"network": ("name",), "task": ("task",), "program": ("task", "index")}
    assert order == [tuple(item[key] for key in by_kind[item["kind"]]) for item in items[1:]]


@pytest.mark.parametrize("seed", range(30))
def test_a_line_that_changes_changes_the_hash_of_its_part_and_of_the_pack(tmp_path, seed):
    items = random_pack(seed, "a")
    (before,) = contents.of_packs([written(tmp_path, "a", items)])
    changed = random.Random(seed).choice(items[1:])
    changed["more"] = 1
    (after,) = contents.of_packs([written(tmp_path, "b", items)])
    assert before.sha256 != after.sha256
    other = [task.id for task, was in zip(after.tasks, before.tasks) if task.hash != was.hash]
    other += [network.name for network, was in zip(after.networks, before.networks) if network.hash != was.hash]
    assert other == [changed["name"] if changed["kind"] == "network" else changed["task"]]


def test_the_order_of_keys_does_not_count():
    items = random_pack(0, "a")
    assert contents.digest([dict(reversed(item.items())) for item in items]) == contents.digest(items)


def renamed(item: dict, draw: random.Random) -> dict:
    """The line as TVM makes it of another network that calls the task."""
    item = json.loads(json.dumps(item))
    if item["kind"] == "task":
        return item | {"name": re.sub(r"(?<=[a-z])\d*(?=_|$)", lambda _: str(draw.randint(1, 99)), item["name"])}
    if "source" in item:
        for name in sorted(set(re.findall(r"__restrict__ (\w+)_ptr", item["source"]))):
            other = draw.choice(["lv", "param_", "input"]) + str(draw.randint(100, 999))
            item["source"] = re.sub(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])", other, item["source"])
        (kernel, *_) = item["kernels"]
        draw.shuffle(kernel["args"])
        head = re.search(r"main_kernel\w*\((.*?)\)", item["source"])
        assert head
        arguments = head[1].split(", ")
        draw.shuffle(arguments)
        item["source"] = item["source"].replace(head[1], ", ".join(arguments))
    return item


@pytest.mark.parametrize("seed", range(10))
def test_names_that_a_network_gives_do_not_count(seed):
    """Two networks call a task. The pack has the names of one of them, and another may make it again."""
    draw = random.Random(seed)
    items = [item for item in pack.read_lines(FIXTURE) if item["kind"] in ("task", "program")]
    others = [renamed(item, draw) for item in items]
    assert items != others and contents.digest(items) == contents.digest(others)


@pytest.mark.parametrize("seed", range(30))
def test_any_other_number_of_a_source_counts(seed):
    draw = random.Random(seed)
    item = draw.choice([item for item in pack.read_lines(FIXTURE) if "source" in item])
    number = draw.choice(list(re.finditer(r"(?<![\w.])\d+(?![\w.])", item["source"])))
    changed = item["source"][: number.start()] + f"{int(number[0]) + 1}" + item["source"][number.end() :]
    assert contents.digest([item]) != contents.digest([item | {"source": changed}])


def test_a_task_may_be_of_a_network_of_another_pack(tmp_path):
    first, second = random_pack(1, "first"), random_pack(2, "second")
    task = next(item for item in first if item["kind"] == "task")
    paths = [written(tmp_path, "first", first), written(tmp_path, "second", [*second, task])]
    with pytest.raises(CommandError, match=f"second.programs: no network of these packs calls task {task['task']}"):
        contents.of_packs(paths[1:])
    contents.write(contents.of_packs(paths), tmp_path)
    (of,) = contents.read(tmp_path / "packs.json", ["second"])
    network = of.networks[of.tasks[-1].network]
    assert network.name.startswith("first-") and not network.hash
    assert ("network", of.tasks[-1].network) not in of.lines  # the pack has no line of it


def test_a_torn_pack_has_no_contents(tmp_path, capsys):
    path = tmp_path / "a.programs"
    path.write_bytes(FIXTURE.read_bytes()[:-20_000])
    assert cli.main(["contents", str(path), "-o", str(tmp_path)]) == 2
    assert "torn" in capsys.readouterr().err and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "a.contents.xz").unlink(), "a.contents.xz: No such file"),
        (lambda folder: (folder / "a.contents.xz").write_bytes(b"text"), "a.contents.xz is damaged"),
        (lambda folder: (folder / "packs.json").write_text("{"), "packs.json: not JSON"),
        (
            lambda folder: (folder / "packs.json").write_text(
                json.dumps({name: entry | {"programs": 7} for name, entry in manifest(folder).items()})
            ),
            "does not have the 7 programs",
        ),
    ],
)
def test_what_is_damaged_is_said_in_a_line(tmp_path, change, said):
    pack.write_lines(tmp_path / "a.programs", list(pack.read_lines(FIXTURE)))
    contents.write(contents.of_packs([tmp_path / "a.programs"]), tmp_path)
    change(tmp_path)
    with pytest.raises(CommandError, match=said):
        contents.read(tmp_path / "packs.json", [])


def manifest(folder) -> dict:
    return json.loads((folder / "packs.json").read_text())


def test_an_unknown_pack_is_refused(tmp_path):
    with pytest.raises(CommandError, match=r"packs\.json has no none, only cuda-b1, "):
        contents.read(KEPT / "packs.json", ["none"])


def test_the_kept_contents_can_be_made():
    """A network that no code makes any more would be lost."""
    for of in contents.read(KEPT / "packs.json", []):
        for network in of.networks:
            catalog.check(network.name)
        assert {task.network for task in of.tasks} <= set(range(len(of.networks)))
        assert all(len(set(task.indices)) == len(task.indices) for task in of.tasks)
