"""Policies, targets, memory limits and what a program gives are read as C++ reads them: tests/shm/grammar_test.cpp
answers the same table."""

import json
from pathlib import Path

import pytest
from sluice_tools.common.errors import CommandError
from sluice_tools.common.grammar import (
    Policy,
    parse_give,
    parse_memory,
    parse_policy,
    parse_target,
    required_policy,
    required_target,
)

TABLE = json.loads((Path(__file__).parents[1] / "data" / "grammar.json").read_text())


@pytest.mark.parametrize("kind, parse", [("policies", parse_policy), ("targets", parse_target)])
def test_the_answers_are_those_of_the_table(kind, parse):
    found = {text: parse(text) for text in TABLE[kind]}
    assert {text: value and str(value) for text, value in found.items()} == TABLE[kind]


@pytest.mark.parametrize("kind, parse", [("memory", parse_memory), ("give", parse_give)])
def test_numbers_are_those_of_the_table(kind, parse):
    assert {text: parse(text) for text in TABLE[kind]} == TABLE[kind]


def test_what_a_policy_means():
    assert parse_policy("device:200us,ahead:2ms") == Policy("device", 200, in_time=True, ahead_us=2000)
    assert [str(parse_policy(text).number) for text in ("device:4", "device:50us", "gate")] == ["4", "50", "None"]
    forms = [parse_policy(text).form() for text in ("device:4", "device:2us", "device:2us,ahead:500us", "gate")]
    assert forms == ["device:N", "device:Tus", "device:Tus,ahead:500us", "gate"]


@pytest.mark.parametrize(
    "text, figure, limit, relative",
    [
        ("p99=50ms", "p99", 50, False),
        ("p50=0.05s", "p50", 50, False),
        ("max=200us", "max", 0.2, False),
        ("p99=1.2x", "p99", 1.2, True),
    ],
)
def test_what_a_target_means(text, figure, limit, relative):
    target = required_target(text, ("p50", "p99", "max"))
    assert (target.figure, target.limit, target.relative) == (figure, pytest.approx(limit), relative)


def test_a_refusal_says_what_is_allowed():
    with pytest.raises(CommandError, match="'sync' is not a policy: none, gate, sync:N"):
        required_policy("sync")
    for text in ("p99=50", "max=", "none", "mean=5ms"):
        with pytest.raises(CommandError, match="is not a"):
            required_target(text, ("p50", "p99", "max"))
    with pytest.raises(CommandError, match="'p98=5ms' is not about one of p50, p99"):
        required_target("p98=5ms", ("p50", "p99"))
