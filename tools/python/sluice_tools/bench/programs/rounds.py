"""How many rounds are made: until each axis is decided, or the most."""

import argparse
from dataclasses import dataclass

from sluice_tools.bench.programs.results import summarize
from sluice_tools.bench.programs.verdict import verdicts

MOST_ROUNDS = 12
# The rounds end early only by what is this sure: each look at the results would else have the whole chance of an error,
# and three times as many equal mixes be called worse. After the most rounds the usual level counts (Haybittle and
# Peto's rule for looks at a trial that runs).
EARLY = 0.01


@dataclass(frozen=True)
class Rounds:
    """At least so many, and at most."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


def rounds_of(text: str) -> Rounds:
    """Of --rounds: N, or N:M with the most rounds, too."""
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isdecimal() and 0 < int(part) < 10_000 for part in parts):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of rounds, as 5, or 5:12 for at least 5 and at most 12"
        )
    least = int(parts[0])
    most = int(parts[1]) if len(parts) == 2 else max(least, MOST_ROUNDS)
    if most < least:
        raise argparse.ArgumentTypeError(f"'{text}': the most rounds are fewer than the least")
    return Rounds(least, most)


def undecided(rows: list[dict]) -> dict[str, list[str]]:
    """What more rounds may decide, by condition. rows: of one mix and mode."""
    judgments = [one for verdict in verdicts(summarize(rows), EARLY) for one in verdict.judgments]
    return {one.cell: one.open for one in judgments if one.open}


def said(found: dict[str, list[str]]) -> str:
    return "; ".join(f"{cell}: {', '.join(names)}" for cell, names in found.items())
