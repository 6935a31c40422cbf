"""The requests of the LLM server: Gamma arrivals, lognormal lengths. The same seed makes the same requests."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

CV = 2.0  # of the times between arrivals: bursts, where Poisson has 1


@dataclass(frozen=True)
class Lengths:
    """Lognormal, cut at both ends. sigma: of the logarithm."""

    median: float
    sigma: float
    least: int
    most: int

    def draw(self, chance: random.Random) -> int:
        drawn = round(chance.lognormvariate(math.log(self.median), self.sigma))
        return min(max(drawn, self.least), self.most)


@dataclass(frozen=True)
class Shape:
    """Tokens of prompts and of outputs. A second output token is the first that has a time since another."""

    prompt: Lengths
    new: Lengths


FULL = Shape(Lengths(128, 0.8, 8, 512), Lengths(64, 0.6, 2, 256))
TINY = Shape(Lengths(8, 0.8, 2, 32), Lengths(6, 0.6, 2, 16))


@dataclass(frozen=True)
class Request:
    due_s: float  # when it arrives, from the begin
    prompt: int
    new: int


def requests(shape: Shape, per_s: float, seed: int) -> Iterator[Request]:
    """Endless, in the order of arrival."""
    chance, at = random.Random(seed), 0.0
    form = 1 / CV**2
    while True:
        at += chance.gammavariate(form, 1 / (per_s * form))
        yield Request(at, shape.prompt.draw(chance), shape.new.draw(chance))
