"""The command line of `sluice bench serve`."""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path

from sluice_tools.bench.serve import colocate, colocate_plan, cost, order, plan, training
from sluice_tools.bench.serve.setting import Setting
from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, EXIT_INTERRUPTED, Parser, usage_error
from sluice_tools.measure.experiments import sluice_program
from sluice_tools.measure.needs import ON_CPU, gpus
from sluice_tools.measure.rows import claim, output_folder

_EXAMPLES = """\
parts:
  order     six schedulers, five models, batches of 16, load from 0.5 to 1.1 (about 4 min)
  training  one model next to a training program: bare, gated, announced, with a target (about 2 min)
  colocate  64 models and a training job: all modes, MPS, static partitions (about 5 min a load)
  cost      the server itself, next to tritonserver with the same models (about 5 min)

examples:
  sluice bench serve                                  all parts, on GPU 0
  sluice bench serve --limit-s 480                    as much as fits; run it again to go on
  sluice bench serve --part order --loads 0.85,1.1 --schedulers DLIR,EDF --repeats 3
  sluice bench serve --part training --seconds 10
  sluice bench serve --part colocate --pool-gb 13.5,60 --seconds 60 --limit-s 1500
  sluice bench serve --part colocate --traffic light,burst --systems normal,park,colocate-l1
  sluice bench serve --part cost --triton /opt/tritonserver/bin/tritonserver
  sluice bench serve --table results/serve            tables anew, without a GPU

exit codes: 0: all went well, also where the limit ended it; 1: a cell failed (it is measured again
by the next call); 2: wrong usage
"""
PARTS = {"order": order, "training": training, "colocate": colocate, "cost": cost}
_IN_ALL = ("order", "training", "cost")  # without --part


def _list_of(read):
    """An argument type: values between commas, each read by `read`, which raises ValueError."""

    def read_all(text: str) -> list:
        try:
            return [read(part.strip()) for part in text.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read_all


def _one_of(names: tuple):
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"'{name}' is not one of {', '.join(names)}")
        return name

    return check


def _positive(text: str) -> float:
    if not 0 < (value := float(text)) < math.inf:
        raise ValueError(f"must be above 0, found {text}")
    return value


def _load(text: str) -> float:
    if not 0 < (load := float(text)) <= 10:
        raise ValueError(f"a load is above 0 and at most 10, found {text}")
    return load


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice bench serve",
        description="Measure the model server: its schedulers, what it does next to training, and what it costs. "
        "What is in --out already is not measured again.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("--part", choices=tuple(PARTS), action="append", help="only this part; may be given again")
    add("--seconds", type=float, default=4.0, metavar="S", help="a cell lasts this long (default 4)")
    add("--repeats", type=int, default=1, metavar="N", help="of the cells with load (default 1)")
    add("--limit-s", type=float, metavar="S", help="begin no cell that would end later")
    loads = ",".join(f"{load:g}" for load in sorted(plan.LOADS))
    add("--loads", type=_list_of(_load), metavar="X,...", help=f"of the part order (default {loads})")
    schedulers = ",".join(plan.SCHEDULERS)
    add(
        "--schedulers",
        type=_list_of(_one_of(plan.SCHEDULERS)),
        metavar="S,...",
        help=f"of the part order (default {schedulers})",
    )
    law = "poisson: a Poisson process (default); poisson-ms: the published, nearly periodic one"
    add("--arrival", choices=plan.LAWS, default=plan.LAWS[0], help=law)
    systems = tuple(system.name for system in colocate_plan.SYSTEMS if system.trains and system.infers)
    add("--systems", type=_list_of(_one_of(systems)), metavar="S,...", help="of the part colocate (default all)")
    loads = ",".join(colocate_plan.LOADS)
    traffic = f"of the part colocate (default {loads})"
    add("--traffic", type=_list_of(_one_of(colocate_plan.LOADS)), metavar="T,...", help=traffic)
    pool = "of the part colocate: memory of inference and training (default: the GPU's)"
    add("--pool-gb", type=_list_of(_positive), metavar="G,...", help=pool)
    add("--models", type=int, default=None, metavar="N", help="of the part colocate (default 64; 4 with --gpu sim)")
    triton = "of the part cost (default: $TRITON_SERVER, else that of the Python package nvidia-pytriton)"
    add("--triton", metavar="PROGRAM", help=triton)
    add("--device", type=int, default=0, metavar="N", help="index of the GPU")
    sim = "sim runs small models on the CPU: to try the command, not to measure"
    add("--gpu", choices=("real", "sim"), default="real", help=sim)
    out = Path("results/serve")
    add("--out", type=Path, default=out, metavar="DIR", help=f"default: {out}")
    add("--store", type=Path, metavar="DIR", help="of the exported models (default: OUT/store)")
    add("--json", action="store_true", help="print the cells as JSON instead of the tables")
    # For the tests: a stand-in for the training program.
    add("--programs", type=Path, help=argparse.SUPPRESS)
    add("--table", type=Path, metavar="DIR", help="measure nothing: the tables of what is in DIR")
    return parser


def _options(arguments: list) -> argparse.Namespace:
    options = _parser().parse_args(arguments)
    positive = {"--seconds": options.seconds, "--repeats": options.repeats}
    positive |= {"--models": options.models} if options.models is not None else {}
    positive |= {"--limit-s": options.limit_s} if options.limit_s is not None else {}
    for name, value in positive.items():
        if not 0 < value < math.inf:
            raise usage_error(f"{name} must be above 0")
    options.parts = list(dict.fromkeys(options.part or _IN_ALL))
    return options


def _show(folder: Path, as_json: bool) -> None:
    """Prints the tables of all parts that have been measured, and writes them into serve.md."""
    parts = [PARTS[name].tables(folder) for name in PARTS]
    text = "\n\n".join(paragraph for part in parts for paragraph in part) + "\n"
    (folder / "serve.md").write_text(text)
    if not as_json:
        print(text, end="")
        return
    files = {name: folder / PARTS[name].FILE for name in PARTS}
    cells = {name: file.read_text().splitlines() for name, file in files.items() if file.exists()}
    print(json.dumps({name: [json.loads(line) for line in lines] for name, lines in cells.items()}))


def _measure(options, folder: Path) -> int:
    setting = Setting(
        sluice=options.sluice,
        out=folder,
        store=options.store or folder / "store",
        gpu=options.gpu,
        device=options.device,
        seconds=options.seconds,
        repeats=options.repeats,
        deadline=options.deadline,
        loads=options.loads,
        schedulers=options.schedulers,
        law=options.arrival,
        systems=options.systems,
        traffic=options.traffic,
        pools_gb=options.pool_gb,
        models=options.models or (4 if options.gpu == "sim" else 64),
        programs=options.programs,
        triton=options.triton,
    )
    worst = EXIT_FINE
    for part in options.parts:
        print(f"sluice bench: {part}", file=sys.stderr, flush=True)
        code = PARTS[part].run(setting)
        if code == EXIT_INTERRUPTED:
            return code
        worst = max(worst, code)
    return worst


def _use_gpu(options) -> None:
    """Makes the chosen GPU the only one that servers and programs see: a training program takes the first."""
    found = gpus(options.sluice, "real", options.device, ON_CPU)["devices"]
    if len(found) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = found[options.device]["uuid"]
        options.device = 0


def _run(options) -> int:
    if options.table:
        if not any((options.table / part.FILE).is_file() for part in PARTS.values()):
            raise usage_error(f"no results of sluice bench serve in {options.table}")
        _show(options.table, options.json)
        return EXIT_FINE
    options.sluice = sluice_program()
    options.deadline = time.monotonic() + options.limit_s if options.limit_s else None
    if options.gpu == "real":
        _use_gpu(options)
    with output_folder(options.out.resolve()) as folder:
        claim(folder / "settings.json", {"gpu": options.gpu}, "results of another kind of GPU")
        with contextlib.suppress(KeyboardInterrupt):
            code = _measure(options, folder)
            _show(folder, options.json)
            return code
    return EXIT_INTERRUPTED


def main(arguments: list) -> int:
    return run_command("bench", lambda: _run(_options(arguments)))
