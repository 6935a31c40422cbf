"""How much two programs slow each other on one GPU without gates, from the share of the SMs that each needs."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from sluice_tools.opbench.pairs import Pair


def by_demand(mine: float, other: float) -> float:
    """Shares of the SMs from 0 to 1. Programs that fit together do not slow each other; else all share the SMs by what
    they need. Knows nothing of memory bandwidth."""
    return max(1.0, mine + other)


def demand_of_grid(kernels: Sequence[Mapping], sms: int) -> float:
    """The share of the SMs that have a block of the kernel with the most threads. kernels: of a pack's program."""

    def product(of: Sequence[int]) -> int:
        return math.prod(of)

    widest = max(kernels, key=lambda kernel: product(kernel["grid"]) * product(kernel["block"]))
    return min(1.0, product(widest["grid"]) / sms)


Learn = Callable[[Sequence[tuple[Pair, int, float]]], Sequence[float]]


def errors(pairs: Sequence[Pair], demand: Mapping[str, float], learn: Learn | None = None) -> dict[str, float]:
    """Mean absolute error of each way to predict a slowdown, over both programs of every pair whose demands are known.
    `mean`: the mean of the pairs that have neither of the two operators. Empty if there are no such pairs. `learned`:
    what `learn` predicts for each (pair, side, slowdown)."""
    known = [
        (one, side, slowdown)
        for one in pairs
        for side, slowdown in enumerate(one.slowdown)
        if slowdown is not None and all(program in demand for program in one.programs)
    ]
    found: dict[str, list[float]] = {"alone": [], "halves": [], "mean": [], "demand": []}
    for one, side, slowdown in known:
        others = [value for other, _, value in known if not set(other.tasks) & set(one.tasks)]
        mine, beside = (demand[one.programs[place]] for place in (side, 1 - side))
        found["alone"].append(abs(slowdown - 1))
        found["halves"].append(abs(slowdown - 2))
        found["demand"].append(abs(slowdown - by_demand(mine, beside)))
        if others:
            found["mean"].append(abs(slowdown - statistics.mean(others)))
    if learn and known:
        predicted = zip(learn(known), known)
        found["learned"] = [abs(slowdown - value) for value, (_, _, slowdown) in predicted if not math.isnan(value)]
    return {name: statistics.mean(values) for name, values in found.items() if values}


def placement(pairs: Sequence[Pair], demand: Mapping[str, float], learn: Learn | None = None) -> dict[str, float]:
    """How good a partner each way to predict finds. Every program with two or more measured partners chooses among
    them, by the least predicted mean of both slowdowns; the result is the measured one, mean over these programs
    (`newcomers`: how many). `best`: all choose the best partner; `random`: any. Equal predictions share the choice.
    `alone` and `halves` would be `random`. Empty if no program has a choice."""
    known = [one for one in pairs if None not in one.slowdown and all(program in demand for program in one.programs)]
    sides = [(one, side, slowdown or 0.0) for one in known for side, slowdown in enumerate(one.slowdown)]
    measured = [_both([slowdown for _, _, slowdown in sides], number) for number in range(len(known))]
    choices = [[n for n, one in enumerate(known) if name in one.programs] for name in sorted(demand)]
    choices = [numbers for numbers in choices if len(numbers) > 1]
    if not choices:
        return {}
    costs = {
        "best": measured,
        "demand": [by_demand(demand[one.programs[0]], demand[one.programs[1]]) for one in known],
        "random": [0.0] * len(known),
    }
    if learn:
        values = [math.inf if math.isnan(value) else value for value in learn(sides)]
        costs["learned"] = [_both(values, number) for number in range(len(known))]

    def chosen(cost: Sequence[float], numbers: Sequence[int]) -> float:
        least = min(cost[number] for number in numbers)
        return statistics.mean(measured[number] for number in numbers if cost[number] == least)

    found = {name: statistics.mean(chosen(cost, numbers) for numbers in choices) for name, cost in costs.items()}
    return {"newcomers": len(choices), **found}


def _both(values: Sequence[float], number: int) -> float:
    return (values[2 * number] + values[2 * number + 1]) / 2


def place(demands: Mapping[str, float], gpus: int) -> tuple[list[tuple[str, ...]], float]:
    """At most two models on each GPU, with the least sum of slowdowns. Returns the models of each GPU that is used, and
    that sum. Raises ValueError if there are too many models."""
    names = sorted(demands)
    if len(names) > 2 * gpus:
        raise ValueError(f"{len(names)} models need {math.ceil(len(names) / 2)} GPUs, two on each, not {gpus}")

    @cache
    def best(left: tuple[str, ...], free: int) -> tuple[float, tuple[tuple[str, ...], ...]]:
        if not left:
            return 0.0, ()
        if len(left) > 2 * free:
            return math.inf, ()
        first, rest = left[0], left[1:]
        choices = []
        sum_, groups = best(rest, free - 1)
        choices.append((1 + sum_, ((first,), *groups)))
        for other in rest:
            both = 2 * by_demand(demands[first], demands[other])
            sum_, groups = best(tuple(name for name in rest if name != other), free - 1)
            choices.append((both + sum_, ((first, other), *groups)))
        return min(choices)

    total, groups = best(tuple(names), gpus)
    return list(groups), total
