"""Which value of a sweep is best, by an objective that the user states."""

import re
from dataclasses import dataclass

from sluice_tools.common.errors import usage_error

DEFAULT = "slowdown with p50 <= 1.2"
_WORDS = ("p50", "p99", "mean", "slowdown")
_LIMIT = re.compile(r"\s*(\w+)\s*<=\s*([0-9.]+)\s*")


@dataclass
class Objective:
    smallest: str
    limits: dict  # word: largest allowed, × alone

    def text(self) -> str:
        limits = " and ".join(f"{word} <= {most:g}" for word, most in self.limits.items())
        return self.smallest + (f" with {limits}" if limits else "")

    def excess(self, figures: dict) -> float:
        """By how much the limits are missed, as a share of them; 0 where they are kept."""
        return max([figures[word] / most - 1 for word, most in self.limits.items()] + [0.0])

    def rank(self, figures: dict) -> tuple:
        """The least is the best. Of values that are equally good, none is named that another one beats."""
        others = (figures.get(word) for word in (*self.limits, *_WORDS))
        return figures[self.smallest], *(float("inf") if value is None else value for value in others)


def parse(text: str) -> Objective:
    smallest, word, rest = text.partition(" with ")
    parts = rest.split(" and ") if word else []
    limits = [found for part in parts if (found := _LIMIT.fullmatch(part))]
    words = [smallest.strip(), *(found[1] for found in limits)]
    if len(limits) < len(parts) or not all(word in _WORDS for word in words):
        raise usage_error(f"--objective: '{text}' is not like '{DEFAULT}'; words: {', '.join(_WORDS)}")
    try:
        return Objective(words[0], {found[1]: float(found[2]) for found in limits})
    except ValueError:
        raise usage_error(f"--objective: '{text}' has a limit that is not a number") from None


def best(figures: dict, objective: Objective) -> tuple:
    """figures: by policy, its words. The best policy, and whether it keeps the limits; the one that
    misses them least where none does. (None, False) without any."""
    known = {
        policy: one
        for policy, one in figures.items()
        if all(one.get(word) is not None for word in (objective.smallest, *objective.limits))
    }
    if not known:
        return None, False
    kept = [policy for policy, one in known.items() if objective.excess(one) <= 0]
    if kept:
        return min(kept, key=lambda policy: objective.rank(known[policy])), True
    return min(known, key=lambda policy: (objective.excess(known[policy]), objective.rank(known[policy]))), False
