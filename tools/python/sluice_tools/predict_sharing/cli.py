"""The command lines of `sluice predict job_time`, `pairs` and `place`."""

import argparse
import csv
import json
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error
from sluice_tools.opbench import pairs as pair_files
from sluice_tools.predict_sharing import job_time, learned, slowdown
from sluice_tools.programs.pack import read_lines


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="sluice predict", description="What can be predicted without a trained predictor.")
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    times = actions.add_parser(
        "job_time",
        help="the time of a job at an unmeasured batch size",
        description="The time of a job at a batch size that was not measured, from two or more that were.",
        epilog="examples:\n  sluice predict job_time 1:0.91 8:2.2 32:7.1 --batch 16\n"
        "  sluice predict job_time data/resnet50-b*/op.csv --batch 16 --json",
    )
    times.add_argument("measured", nargs="+", metavar="BATCH:MS|op.csv", help="a time; or operators, which are summed")
    times.add_argument("--batch", type=_count, nargs="+", required=True, metavar="N", help="batch sizes to predict")
    found = actions.add_parser(
        "pairs",
        help="how well the slowdown of pairs is predicted",
        description="Compares measured slowdowns with predicted ones: the mean absolute error of each way to predict.",
        epilog="example:\n  sluice predict pairs pairs.jsonl resnet.programs --sms 132",
    )
    found.add_argument("pairs", type=Path, metavar="PAIRS", help="of sluice opbench pairs")
    found.add_argument("packs", type=Path, nargs="+", metavar="PACK", help="the packs with those programs")
    found.add_argument("--sms", type=_count, default=132, metavar="N", help="SMs of the GPU (default: %(default)s)")
    found.add_argument("--learned", action="store_true", help="also learn the slowdowns, with xgboost")
    found.add_argument("--seed", type=int, default=0, metavar="S", help="of --learned (default: %(default)s)")
    placed = actions.add_parser(
        "place",
        help="which models share a GPU",
        description="Places models on GPUs, at most two on each, so that they slow each other least. No gates: for\n"
        "models of one priority under MPS.",
        epilog="example:\n  sluice predict place data/*/op.csv --gpus 2",
    )
    placed.add_argument("models", type=Path, nargs="+", metavar="op.csv", help="of opbench run --executor torch")
    placed.add_argument("--gpus", type=_count, required=True, metavar="N", help="GPUs")
    for one in (times, found, placed):
        one.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


_count.__name__ = "whole number above 0"  # argparse says: invalid whole number above 0 value


def _operators(path: Path) -> list[dict]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            for key in ("batch", "ms", "sm_ms"):
                row[key] = float(row[key])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise usage_error(f"{path}: not an op.csv of sluice opbench run --executor torch: {error!r}") from None
    if not rows:
        raise usage_error(f"{path}: has no operators")
    return rows


def _measured(texts: list[str]) -> dict[int, float]:
    """Milliseconds by batch size."""
    times: dict[int, float] = {}
    for text in texts:
        if Path(text).suffix == ".csv":
            rows = _operators(Path(text))
            batch, ms = int(rows[0]["batch"]), sum(row["ms"] for row in rows)
        else:
            try:
                head, _, tail = text.partition(":")
                batch, ms = _count(head), float(tail)
            except ValueError:
                raise usage_error(f"'{text}' is neither BATCH:MS, such as 8:2.2, nor an op.csv") from None
        if not ms > 0:
            raise usage_error(f"'{text}': a time must be above 0")
        if batch in times:
            raise usage_error(f"batch size {batch} is there twice")
        times[batch] = ms
    if len(times) < 2:
        raise usage_error("give the times of at least two batch sizes")
    return times


def _job_time(options) -> int:
    times = _measured(options.measured)
    predicted = [
        {"batch": batch, "ms": ms, "from": how}
        for batch in options.batch
        for ms, how in [job_time.between(times, batch)]
    ]
    left_out = job_time.left_out(times)
    if options.json:
        print(json.dumps({"predicted": predicted, "left_out": left_out}))
        return EXIT_FINE
    for one in predicted:
        print(f"batch {one['batch']}: {one['ms']:.3f} ms ({one['from']})")
    for batch, error in left_out.items():
        print(f"check: batch {batch}, measured, predicted from the others: {100 * error:+.1f} %")
    return EXIT_FINE


def _pairs(options) -> int:
    demand, features = {}, {}
    for pack in options.packs:
        for line in read_lines(pack):
            if line["kind"] == "program" and line.get("kernels"):
                demand[line["id"]] = slowdown.demand_of_grid(line["kernels"], options.sms)
                features[line["id"]] = learned.features_of(line) if options.learned else []
    found = pair_files.latest(pair_files.read(options.pairs))
    learn = (lambda known: learned.slowdowns(known, features, options.seed)) if options.learned else None
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in sorted({one.kind for one in found})}
    result = {kind: slowdown.errors(pairs, demand, learn) for kind, pairs in by_kind.items()}
    placed = {kind: slowdown.placement(pairs, demand, learn) for kind, pairs in by_kind.items()}
    if not any(result.values()):
        raise usage_error(f"{options.pairs}: no good pair whose programs are in the packs")
    if options.json:
        print(json.dumps({kind: errors | {"placement": placed[kind]} for kind, errors in result.items()}))
        return EXIT_FINE
    for kind, errors in result.items():
        print(f"{kind}: mean absolute error of the predicted slowdown")
        _print_table(errors)
        newcomers = placed[kind].pop("newcomers", 0)
        if newcomers:
            print(f"{kind}: slowdown of both if each of {newcomers:.0f} newcomers chooses a partner")
            _print_table(placed[kind])
    return EXIT_FINE


def _print_table(values: dict[str, float]) -> None:
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        print(f"  {name:<8} {value:.3f}")


def _place(options) -> int:
    demands = {}
    for path in options.models:
        rows = _operators(path)
        name = f"{rows[0]['model']} at batch {int(rows[0]['batch'])}"
        ms = sum(row["ms"] for row in rows)
        if name in demands:
            raise usage_error(f"{path}: {name} is there twice")
        if rows[0]["gpu"] == "cpu" or not ms > 0:
            raise usage_error(f"{path}: measured on a CPU; measure it on a GPU (--target cuda)")
        demands[name] = sum(row["sm_ms"] for row in rows) / ms
    try:
        groups, total = slowdown.place(demands, options.gpus)
    except ValueError as error:
        raise usage_error(f"--gpus: {error}") from None
    if options.json:
        print(json.dumps({"gpus": groups, "sum_of_slowdowns": total, "demand": demands}))
        return EXIT_FINE
    for number, group in enumerate(groups):
        slower = slowdown.by_demand(*(demands[name] for name in group)) if len(group) == 2 else 1.0
        needs = ", ".join(f"{name} (needs {100 * demands[name]:.0f} % of the SMs)" for name in group)
        print(f"GPU {number}: {needs}; slowdown {slower:.2f}")
    return EXIT_FINE


def main(args: list[str] | None = None) -> int:
    options = _parser().parse_args(args)
    work = {"job_time": _job_time, "pairs": _pairs, "place": _place}[options.action]
    return run_command(f"predict {options.action}", lambda: work(options))
