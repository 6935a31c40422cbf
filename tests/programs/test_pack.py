"""Packs: what an interrupted run leaves must be readable, and a pack that lies about itself must be noticed."""

import json
import lzma

import pytest
from places import FIXTURE
from sluice_tools.common.errors import CommandError
from sluice_tools.programs import check, cli, knobs, pack


def lines_of(path):
    return list(pack.read_lines(path))


def test_pieces_are_read_as_one_pack(tmp_path):
    path = tmp_path / "a.programs"
    pack.write_lines(path, [{"kind": "pack"}])
    pack.write_lines(path, [{"kind": "task", "task": "t"}, {"kind": "program"}], append=True)
    assert [item["kind"] for item in lines_of(path)] == ["pack", "task", "program"]
    assert lzma.decompress(path.read_bytes()).count(b"\n") == 3  # any xz reads it


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_piece_is_said_and_mended(tmp_path, capsys, kept):
    path = tmp_path / "a.programs"
    pack.write_lines(path, [{"kind": "pack"}])
    whole = path.read_bytes()
    pack.write_lines(path, [{"kind": "program", "id": n} for n in range(50)], append=True)
    path.write_bytes(path.read_bytes()[: len(whole) + kept if kept > 0 else kept])
    read = 50 if kept < 0 else 0
    assert lines_of(path) == [{"kind": "pack"}, *({"kind": "program", "id": n} for n in range(read))]
    assert f"torn: the last piece of {len(path.read_bytes()) - len(whole)} bytes is" in capsys.readouterr().err
    pack.mend_torn_end(path)
    pack.write_lines(path, [{"kind": "program", "id": "new"}], append=True)
    assert [item.get("id") for item in lines_of(path)] == [None, *range(read), "new"]
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("at", [0, 8, 30, -1])  # in the header, in the data, in the footer
def test_a_damaged_piece_is_not_taken_for_a_torn_end(tmp_path, at):
    """A bit that flips must not cost the pieces behind it."""
    path, ends = tmp_path / "a.programs", [0]
    for number in range(6):
        pack.write_lines(path, [{"kind": "pack", "number": number}], append=True)
        ends.append(path.stat().st_size)
    damaged = bytearray(path.read_bytes())
    damaged[(ends[2] if at >= 0 else ends[3]) + at] ^= 1
    path.write_bytes(damaged)
    for use in (lines_of, pack.mend_torn_end):
        with pytest.raises(CommandError, match=f"a.programs: damaged in the piece from byte {ends[2]} to {ends[3]};"):
            use(path)
    assert path.read_bytes() == damaged and list(tmp_path.iterdir()) == [path]


def torn_fixture(tmp_path):
    """A pack in one piece, as `xz` makes it, that was cut off while it was copied."""
    path = tmp_path / "a.programs"
    path.write_bytes(FIXTURE.read_bytes()[:-20_000])
    return path


def test_the_lines_of_a_torn_first_piece_are_kept(tmp_path):
    """An emptied pack would cost the days in which it was made."""
    path = torn_fixture(tmp_path)
    left = lines_of(path)
    assert 10 < len(left) < len(lines_of(FIXTURE)) and left == lines_of(FIXTURE)[: len(left)]
    pack.mend_torn_end(path)
    assert lzma.decompress(path.read_bytes()).count(b"\n") == len(left)
    assert lines_of(path) == left


def test_check_says_that_a_pack_is_torn(tmp_path, capsys):
    path = torn_fixture(tmp_path)
    assert check.check_pack(path) == 1
    said = capsys.readouterr()
    assert "4 networks, 6 tasks, " in said.out and "; torn: " in said.out and said.out.count("\n") == 1
    assert said.err == ""


def test_what_is_no_pack_is_refused_in_a_line(tmp_path):
    path = tmp_path / "a.programs"
    path.write_bytes(b"not xz at all")
    with pytest.raises(CommandError, match="is not a pack"):
        lines_of(path)
    path.write_bytes(FIXTURE.read_bytes()[:100])
    with pytest.raises(CommandError, match="is not a pack"):
        lines_of(path)
    path.write_bytes(lzma.compress(b'{"kind":"pack"}\n{"kind":\n'))
    with pytest.raises(CommandError, match="line 2 is not JSON"):
        lines_of(path)
    path.write_bytes(lzma.compress(b'{"name":"x"}\n'))
    with pytest.raises(CommandError, match='line 1 has no "kind"'):
        lines_of(path)


def test_the_fixture_holds_together(capsys):
    assert cli.main(["check", str(FIXTURE)]) == 0
    assert "4 networks, 6 tasks, 60 programs" in capsys.readouterr().out


def test_the_fixture_has_what_readers_expect():
    items = lines_of(FIXTURE)
    tasks = {item["task"]: item for item in items if item["kind"] == "task"}
    programs = [item for item in items if item["kind"] == "program"]
    assert sum("source" in program for program in programs) == 12
    for program in programs:
        buffers = len(tasks[program["task"]]["buffers"])
        used = {number for kernel in program["kernels"] for number in kernel["args"]}
        assert used == set(range(buffers + len(program["extra"])))  # no buffer is missing, no scratch buffer is idle
        assert program["position"] == sorted(set(program["position"]))
        assert program["position"][-1] < program["nodes"]
    assert {len(program["kernels"]) for program in programs} >= {1, 2, 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p.update(index=p["index"] + 1), "does not give the program's decisions"),
        (lambda p: p.update(index=10**15), "is none of the"),
        (lambda p: p.update(sketch=p["sketch"] + 1), "does not give the program's decisions"),
        (lambda p: p.update(task="0" * 16), "no line before describes"),
        (lambda p: p["features"][0].pop(), "is not 164 wide"),
        (lambda p: p["position"].pop(), "differ in number"),
    ],
)
def test_check_names_the_fault(tmp_path, capsys, change, said):
    items = lines_of(FIXTURE)
    change(next(item for item in items if item["kind"] == "program"))
    pack.write_lines(tmp_path / "b.programs", items)
    assert check.check_pack(tmp_path / "b.programs") == 1
    out = capsys.readouterr().out
    assert said in out and out.count("\n") == 1


def test_the_index_behind_the_last_is_that_of_tvms_own_schedule(tmp_path):
    items = lines_of(FIXTURE)
    program = next(item for item in items if item["kind"] == "program")
    task = next(item for item in items if item["kind"] == "task" and item["task"] == program["task"])
    program |= {"index": sum(map(knobs.size, task["sketches"])), "sketch": 0, "entity": []}
    pack.write_lines(tmp_path / "b.programs", items)
    assert check.check_pack(tmp_path / "b.programs") == 0


def test_a_pack_needs_its_head(tmp_path, capsys):
    pack.write_lines(tmp_path / "b.programs", lines_of(FIXTURE)[1:])
    assert check.check_pack(tmp_path / "b.programs") == 1
    assert "the first line is no pack line" in capsys.readouterr().out


def test_a_missing_file_is_a_line(capsys):
    assert cli.main(["check", "/nowhere/a.programs"]) == 1
    assert capsys.readouterr().err.strip() == "sluice programs: /nowhere/a.programs: No such file or directory"


def test_json_numbers_of_an_index_stay_exact():
    index = max(item["index"] for item in lines_of(FIXTURE) if item["kind"] == "program")
    assert index > 2**32 and json.loads(json.dumps(index)) == index
