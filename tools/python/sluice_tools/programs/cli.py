"""The command line of `sluice programs`."""

import argparse
import os
import sys
from pathlib import Path

from sluice_tools.common.command import run_command
from sluice_tools.common.errors import EXIT_FINE, Parser, usage_error

_EXAMPLES = """\
examples:
  sluice programs make --models resnet-18,bert_tiny --batch 1,4 --per-task 16 --target cuda:sm_90 -o a.programs
  sluice programs make --models model.onnx --per-task 8 --target llvm -o b.programs --resume
  sluice programs check a.programs
  sluice programs check
  sluice programs reference a.programs -o reference
  sluice programs contents a.programs b.programs -o packs
  sluice programs remake packs/packs.json --packs a -o .
  sluice programs network resnet-18 records.jsonl --threads 1
  sluice programs serve

Exit code 0; 1 the run failed; 2 wrong usage, an unknown model, or packages missing.
"""


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 1,4,8") from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sluice programs",
        epilog=_EXAMPLES,
        description="Tensor programs of networks, made with TVM (docs/reference/programs-format.md).",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("serve", help="answer requests, one JSON object a line, from standard input")
    make = commands.add_parser("make", help="write a pack of random programs")
    make.add_argument(
        "--models", type=_names, required=True, metavar="A,B", help="names, or paths and addresses of ONNX files"
    )
    make.add_argument(
        "--batch", dest="batches", type=_numbers, default=[1], metavar="N,N", help="batch sizes (default: 1)"
    )
    make.add_argument("--per-task", type=int, default=16, metavar="N", help="programs of each task (default: 16)")
    make.add_argument(
        "--target", default="cuda -arch=sm_90", help='cuda:sm_90 (the default), also as "cuda -arch=sm_90", or llvm'
    )
    make.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    make.add_argument("--seed", type=int, default=0, metavar="N", help="(default: 0)")
    make.add_argument("--resume", action="store_true", help="go on with FILE, also with a torn one")
    make.add_argument(
        "--sources", type=int, default=sys.maxsize, metavar="N", help="programs of a task with CUDA C (default: all)"
    )
    make.add_argument(
        "--tuned", type=Path, nargs="+", default=[], metavar="RECORDS",
        help="change the fastest programs of these records instead of random ones; tasks without a record are left out",
    )  # fmt: skip
    make.add_argument("--no-spills", action="store_true", help="none that is likely to spill registers")
    make.add_argument("--no-features", action="store_true", help="leave out TVM's features, which only xgb tuners read")
    network = commands.add_parser("network", help="time a whole network on this CPU, next to the sum of its programs")
    network.add_argument("model", metavar="MODEL", help="a name, or the path or address of an ONNX file")
    network.add_argument("records", nargs="+", type=Path, metavar="RECORDS", help="of sluice opbench measure, llvm")
    network.add_argument("--batch", type=int, default=1, metavar="N", help="(default: 1)")
    network.add_argument("--threads", type=int, default=1, metavar="N", help="of an operator (default: 1)")
    reference = commands.add_parser(
        "reference", help="write inputs and expected outputs for sluice opbench measure --reference"
    )
    reference.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    reference.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="tasks that are there stay")
    listed = commands.add_parser("contents", help="write what packs hold, from which remake makes them again")
    listed.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    listed.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="has packs.json, or gets one")
    remake = commands.add_parser("remake", help="make packs again, and compare them with what they were")
    remake.add_argument("manifest", type=Path, metavar="PACKS.JSON")
    remake.add_argument("--packs", type=_names, default=[], metavar="A,B", help="(default: all)")
    remake.add_argument("--models", type=_names, default=[], metavar="A,B", help="only these networks (default: all)")
    remake.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="finished networks are kept there")
    remake.add_argument(
        "-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes (default: the processors)",
    )  # fmt: skip
    check = commands.add_parser("check", help="check packs; without FILE, that TVM works here")
    check.add_argument("files", nargs="*", type=Path, metavar="FILE")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.command == "check" and options.files:
        from sluice_tools.programs import check

        return max(check.check_pack(path) for path in options.files)
    if options.command == "contents":
        from sluice_tools.programs import contents

        contents.write(contents.of_packs(options.packs), options.out)
        return EXIT_FINE
    from sluice_tools.programs import catalog, tvm_setup

    if options.command == "serve":
        from sluice_tools.programs import server

        return server.serve()
    if options.command in ("make", "network"):
        catalog.check_some(options.models if options.command == "make" else [options.model])
    if options.command == "remake":
        from sluice_tools.programs import remake

        if options.jobs < 1:
            raise usage_error(f"--jobs {options.jobs} is not positive")
        tvm_setup.check_versions()
        keys = ("manifest", "packs", "models", "out", "jobs")
        return remake.remake(remake.Plan(**{key: getattr(options, key) for key in keys}))
    tvm_setup.load()
    if options.command == "check":
        from sluice_tools.programs import check

        return check.check_installation()
    if options.command == "reference":
        from sluice_tools.programs import reference

        return reference.write(options.packs, options.out)
    if options.command == "network":
        from sluice_tools.programs import network_run

        return network_run.measure(network_run.Plan(options.model, options.batch, options.records, options.threads))
    if options.per_task < 1:
        raise usage_error(f"--per-task {options.per_task} is not positive")
    from sluice_tools.programs import make

    keys = ("models", "batches", "per_task", "target", "out", "resume", "seed", "sources", "tuned")
    want = {"source"} | ({"registers"} if options.no_spills else set())
    want |= set() if options.no_features else {"features"}
    return make.make(make.Plan(**{key: getattr(options, key) for key in keys}, want=want))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return run_command("programs", lambda: _run(options))
