"""The page of a measurement: the verdict, the figure, the table. Needs plotly and jinja2."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from sluice_tools.errors import run_error
from sluice_tools.measure import table
from sluice_tools.measure.summary import Entry

_PACKAGES = ("numpy", "plotly", "jinja2")
MISSING = "no page: this Python lacks plotly or jinja2 (./x reports)"


def can_write() -> bool:
    return all(importlib.util.find_spec(package) for package in _PACKAGES)


def write(
    file: Path,
    command: str,
    title: str,
    kinds: list,
    entries: list[Entry],
    answers: list,
    groups: Sequence = (),
    closing: Sequence = (),
) -> None:
    """kinds: (text, doubtful), as in report.page; groups: further figures, likewise.

    answers: sentences, the most important first. Raises CommandError if the page cannot be written.
    """
    from sluice_tools.measure.figure import tradeoff
    from sluice_tools.report import page

    kind = ", simulated" if any("imulated" in text for text, _ in kinds) else ""
    blocks = table.blocks(entries)
    several = len(blocks) > 1
    names = list(dict.fromkeys(entry.cell for entry in entries if entry.together))
    drawn = [tradeoff(block, names, kind, ", ".join(filter(None, key)) if several else "") for key, block in blocks]
    text = page.render(
        command,
        title,
        kinds,
        list(groups),
        lead=[("Latency against best-effort speed", "", drawn, several)],
        heading="What came out?",
        answers=[("", answers[0], answers[1:])] if answers else [],
        table=_table(entries),
        closing=list(closing),
    )
    try:
        page.write(file, text)
    except OSError as error:
        raise run_error(f"cannot write {error.filename}: {error.strerror}") from error


def _table(entries: list[Entry]) -> dict:
    rows = []
    blocks = table.blocks(entries)
    several = len(blocks) > 1
    head, *lines = table.shown([table.HEAD, *(table.cells(entry) for _, block in blocks for entry in block)])
    texts_of = iter(lines)
    for key, block in blocks:
        for place in range(len(block)):
            texts = [", ".join(filter(None, key)), *next(texts_of)][not several :]
            rows.append({"first": place == 0, "cells": [{"text": text, "none": text == "-"} for text in texts]})
    return {
        "head": ["what", *head][not several :],
        "left": 1 + several,
        "rows": rows,
        "caption": " ".join(table.notes(entries)),
    }
