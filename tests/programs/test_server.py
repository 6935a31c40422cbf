"""The program server's side of the contract with the C++ side, on a recorded transcript. Needs no TVM.

test_tvm_server.py asks a real server the same questions and expects the same answers.
"""

import importlib.metadata
import json
from pathlib import Path

import pytest
from sluice_tools.programs import knobs, server

TRANSCRIPT = [json.loads(line) for line in (Path(__file__).parent / "transcript.jsonl").read_text().splitlines()]
PROGRAM = {"kind", "id", "task", "sketch", "index", "entity", "kernels", "extra"}
KERNEL = {"name", "grid", "block", "shared", "static_shared", "local", "args"}


def answered(do: str, ok: bool = True) -> list[dict]:
    return [t["answer"] for t in TRANSCRIPT if t["request"]["do"] == do and t["answer"]["ok"] == ok]


def test_every_answer_has_the_number_of_its_request():
    assert [t["answer"]["id"] for t in TRANSCRIPT] == [t["request"]["id"] for t in TRANSCRIPT]


def test_without_tvm_the_answer_says_how_to_get_it(monkeypatch):
    """Prevents: a command that reports how its server ended, under a line of the server's own."""

    def missing(package: str):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    answer = server.Server().answer('{"id": 1, "do": "hello"}')
    assert not answer["ok"] and " has no apache-tvm, " in answer["error"] and "\n" not in answer["error"]
    assert "pip install apache-tvm==" in answer["error"]


def test_an_error_is_one_line():
    errors = [t["answer"]["error"] for t in TRANSCRIPT if not t["answer"]["ok"]]
    assert len(errors) == 4
    assert all(text and "\n" not in text and "Traceback" not in text for text in errors)


def test_an_import_has_a_network_and_its_tasks():
    (answer,) = answered("import")
    (task,) = answer["tasks"]
    assert answer["network"]["calls"] == [{"task": task["task"], "after": []}]
    assert len(task["task"]) == 16 and task["flop"] > 0
    assert [buffer["output"] for buffer in task["buffers"]] == [False, True]
    assert sum(map(knobs.size, task["sketches"])) > 1000


def test_a_program_has_all_keys():
    for answer in answered("sample") + answered("apply"):
        program = answer["programs"][0]
        assert program.keys() >= PROGRAM | {"features", "position", "nodes"}
        assert all(kernel.keys() == KERNEL for kernel in program["kernels"])
        assert all(len(row) == 164 for row in program["features"])
        assert len(program["features"]) == len(program["position"])
    assert "source" in answered("apply")[0]["programs"][0]
    assert "source" not in answered("sample")[0]["programs"][0]  # it was not wanted


def test_an_invalid_index_is_an_error_at_its_place():
    first, second = answered("apply")[0]["programs"]
    assert first["index"] == 0
    assert second.keys() == {"error"} and "past the last" in second["error"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "JSONDecodeError"),
        ("[1]", "a request is a JSON object"),
        ("{}", '"do" is None, not one of hello'),
        ('{"do":["hello"]}', "not one of"),
        ('{"id":7,"do":"sample","task":"0"}', "task '0' is of no network"),
        ('{"id":7,"do":"apply"}', "the request has no 'task'"),
    ],
)
def test_a_bad_request_is_answered_and_does_not_end_the_server(line, said):
    one = server.Server()
    answer = one.answer(line)
    assert answer["ok"] is False and said in answer["error"] and "\n" not in answer["error"]
    assert one.answer("{}")["ok"] is False
