"""How much two programs slow each other, learned from measured pairs. Needs xgboost and numpy."""

import math
from collections.abc import Mapping, Sequence

from sluice_tools.common.command import how_to_get
from sluice_tools.common.errors import usage_error
from sluice_tools.opbench.pairs import Pair

_FOLDS = 8
_ROUNDS = 200
_TREES = {
    "objective": "reg:absoluteerror", "max_depth": 3, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.5,
    "nthread": 1,
}  # fmt: skip


def features_of(program: Mapping) -> list[float]:
    """The mean of the features of the leaves; logarithms of blocks and threads of each kernel, the largest of each."""
    rows = program["features"]
    means = [sum(column) / len(rows) for column in zip(*rows)]
    kernels = program["kernels"]
    return (
        means
        + [math.log2(max(math.prod(kernel[what]) for kernel in kernels)) for what in ("grid", "block")]
        + [float(len(kernels))]
    )


def slowdowns(
    known: Sequence[tuple[Pair, int, float]], features: Mapping[str, Sequence[float]], seed: int = 0
) -> list[float]:
    """A prediction for each (pair, side, slowdown), by trees that saw no pair with either of its operators. The
    operators are in folds; NaN where no pair is left to learn from. The trees learn the median of the logarithm."""
    try:
        import numpy
        import xgboost
    except ImportError:
        raise usage_error(f"--learned needs xgboost: {how_to_get('xgboost-cpu')}") from None
    tasks = sorted({task for one, _, _ in known for task in one.tasks})
    fold = {task: number % _FOLDS for number, task in enumerate(tasks)}
    keys = [frozenset(fold[task] for task in one.tasks) for one, _, _ in known]
    rows = numpy.array([_row(one, side, features) for one, side, _ in known], dtype=numpy.float32)
    logs = numpy.log([slowdown for _, _, slowdown in known])
    found = numpy.full(len(known), numpy.nan)
    for key in set(keys):
        train = [not key & other for other in keys]
        if not any(train):
            continue
        test = [key == other for other in keys]
        lesson = xgboost.DMatrix(rows[train], logs[train])
        trees = xgboost.train(_TREES | {"seed": seed}, lesson, _ROUNDS)
        found[test] = numpy.exp(trees.predict(xgboost.DMatrix(rows[test])))
    return found.tolist()


def _row(one: Pair, side: int, features: Mapping[str, Sequence[float]]) -> list[float]:
    sides = (side, 1 - side)
    return [number for place in sides for number in (*features[one.programs[place]], math.log(one.alone_s[place]))]
